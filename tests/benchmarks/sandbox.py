"""What the sandbox costs on this machine, beside what it may cost.

    python -m tests.benchmarks.sandbox [--rounds 200]

Starts a sandboxd of its own, prints one table and ends it. Times are of the monotonic clock, which
is the same inside and outside: a tool's first line says when it ran. Other jobs on the machine
show in every figure; the first line says how busy they are.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.client import SandboxClient
from sandbox.spec import CodeSource, IsolationLevel, Limits, Mount, Profile, RunOutcome, SandboxSpec
from tests.sandbox.conftest import Daemon
from tests.sandbox.run_observer import (
    SPAWN_AND_TELL,
    STUBBORN,
    Meeting,
    all_end,
    arrange,
    pidfds_of,
)

STANDARD = Profile(IsolationLevel.STANDARD)
BEGAN = "import time\nBEGAN = time.monotonic()\ndef main(p):\n    return BEGAN"
MIB = 1 << 20
_GROUPS = f"toolcrib-bench-{os.getpid()}"
_TICK = os.sysconf("SC_CLK_TCK")
_WORKER = "import sys; from tests.benchmarks import sandbox; sandbox.be_worker(*sys.argv[1:])"
_WIDTHS = (56, 12, 12, 16)


@dataclass
class Table:
    """A row: what, median and 95th percentile or one figure, and the target."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def times(self, what: str, values: list[float], target: str) -> None:
        ordered = sorted(values)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        self.show(what, f"{statistics.median(ordered):.2f}", f"{p95:.2f}", target)

    def show(self, what: str, first: str, second: str = "", target: str = "") -> None:
        cells = zip((what, first, second, target), _WIDTHS, strict=True)
        print("".join(f"{cell:<{width}}" for cell, width in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    table = Table()
    with fresh_daemon() as daemon:
        table.show("mode", str(daemon.client.ping()["cgroup_mode"]))
        table.show("other jobs on the machine, ms a second", f"{others_ms():.0f}")
        table.show("", "p50", "p95", "target")
        for measure in (warm, fresh, cold, rate, memory, limits, operations, flood, idle):
            measure(table, daemon, rounds)
    survivors(table)
    cancelled(table)


@contextmanager
def fresh_daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)
        daemon = Daemon(directory, _GROUPS)
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.stop()


def first_line_ms(daemon: Daemon, **options: object) -> float:
    began = time.monotonic()
    result = daemon.run(BEGAN, **options)  # type: ignore[arg-type]
    if result.outcome != RunOutcome.SUCCESS:
        sys.exit(f"a run failed: {result.error_code} {result.error_message}")
    return float(result.output - began) * 1000


def warm(table: Table, daemon: Daemon, rounds: int) -> None:
    """With a pause, so that the next slot is ready, as it is for one caller at a time."""
    for level in (IsolationLevel.STANDARD, IsolationLevel.STRICT, IsolationLevel.RESTRICTED):
        first_line_ms(daemon, profile=Profile(level))
        times, wholes = [], []
        for _ in range(rounds):
            time.sleep(0.02)
            began = time.monotonic()
            times.append(first_line_ms(daemon, profile=Profile(level)))
            wholes.append((time.monotonic() - began) * 1000)
        table.times(f"warm slot, {level}: request to first line, ms", times, "0.5 / 2")
        table.times(f"warm slot, {level}: request to result, ms", wholes, "")


def fresh(table: Table, daemon: Daemon, rounds: int) -> None:
    """An unusual size of /tmp is never in stock: the template forks when it is asked."""
    times = [first_line_ms(daemon, tmp_bytes=MIB + n * 4096) for n in range(rounds // 2)]
    table.times("fresh isolated run from a template, ms", times, "5")


def cold(table: Table, daemon: Daemon, rounds: int) -> None:
    spared, started = [], []
    with tempfile.TemporaryDirectory(prefix="tc") as shared:
        os.chmod(shared, 0o755)
        for number in range(max(rounds // 20, 5)):
            time.sleep(1.3)  # the spare template is made when the processors are idle
            spared.append(first_line_ms(daemon, organization=f"new-{number}"))
            mounted = Profile(IsolationLevel.STANDARD, (Mount(shared, f"/shared-{number}"),))
            started.append(first_line_ms(daemon, profile=mounted))
    table.times("cold: an organization's first run, ms", spared, "25 / 45")
    table.times("cold: first run of a profile with paths, ms", started, "25 / 45")


def rate(table: Table, daemon: Daemon, rounds: int) -> None:
    clients, seconds = 4, rounds / 50
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(_runs_until(daemon, seconds)))
        for _ in range(clients)
    ]
    cpu = tree_ms()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.show("sustained, 4 clients, runs a second", f"{sum(counts) / seconds:.0f}", "", "150")
    used = (tree_ms() - cpu) / max(sum(counts), 1)
    table.show("processor time a run, ms", f"{used:.2f}")


def _runs_until(daemon: Daemon, seconds: float) -> int:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        first_line_ms(daemon)
        count += 1
    return count


def memory(table: Table, daemon: Daemon, rounds: int) -> None:
    time.sleep(0.5)
    sizes = [size_mb(pid) for pid in slots_below(daemon.process.pid)]
    shares = [f"{statistics.mean(column):.1f}" for column in zip(*sizes, strict=True)]
    table.show("a waiting slot: proportional and own memory, MB", *shares, "7")


def limits(table: Table, daemon: Daemon, rounds: int) -> None:
    source = "def main(p):\n    x = []\n    while True: x.append(bytearray(1 << 16))"
    peak = daemon.run(source, memory_bytes=64 * MIB).usage.peak_memory_bytes
    table.show("memory limit of 64 MB: error, %", f"{error(peak, 64 * MIB):.3f}", "", "0.1")
    source = "import os\ndef main(p):\n    for _ in range(3): os.fork()\n    while True: pass"
    used = [daemon.run(source, cpu_s=0.5).usage.cpu_time_ms for _ in range(5)]
    table.show("processor limit of 0.5 s, 8 processes: worst error, %", worst(used, 500), "", "2")
    source = "import time\ndef main(p):\n    time.sleep(60)"
    walls = [daemon.run(source, wall_s=0.5).usage.wall_ms for _ in range(5)]
    table.show("wall limit of 0.5 s: worst error, %", worst(walls, 500), "", "1")


def error(found: float, wanted: float) -> float:
    return (found / wanted - 1) * 100


def worst(found: list[float], wanted: float) -> str:
    return f"{max((error(one, wanted) for one in found), key=abs):.2f}"


def operations(table: Table, daemon: Daemon, rounds: int) -> None:
    source = """
import os, time
def main(p):
    began = time.monotonic()
    for _ in range(5000): os.close(os.open("/dev/null", 0))
    return (time.monotonic() - began) / 5000 * 1e6
"""
    result = daemon.run(source)
    counted = result.usage.filesystem_operations
    table.show(
        "open and close, counted, µs (counted of 5000)", f"{result.output:.1f}", f"{counted}"
    )


def flood(table: Table, daemon: Daemon, rounds: int) -> None:
    source = (
        "import os\ndef main(p):\n    b = bytes(1 << 20)\n    for _ in range(512): os.write(1, b)"
    )
    first_line_ms(daemon)
    before = status_kb(daemon.process.pid, "VmRSS")
    daemon.run(source, output_bytes=1 << 30)
    grown = (status_kb(daemon.process.pid, "VmHWM") - before) / 1024
    table.show("flood of 512 MB: sandboxd grows by, MB", f"{grown:.2f}", "", "2")


def idle(table: Table, daemon: Daemon, rounds: int) -> None:
    time.sleep(2)
    before = (cpu_ticks(daemon.process.pid), wakings(daemon.process.pid))
    time.sleep(5)
    ticks = cpu_ticks(daemon.process.pid) - before[0]
    woken = wakings(daemon.process.pid) - before[1]
    table.show("idle sandboxd, 5 s: processor ticks, wakings", str(ticks), str(woken), "0")


def survivors(table: Table) -> None:
    for whom in ("worker", "sandboxd", "slot"):
        with tempfile.TemporaryDirectory(prefix="tc") as directory, fresh_daemon() as daemon:
            found = kill_and_watch(daemon, Path(directory), whom)
        table.show(f"after SIGKILL of the {whom}: none left after, ms", f"{found:.1f}", "", "50")


def kill_and_watch(daemon: Daemon, directory: Path, whom: str) -> float:
    """Milliseconds until every process of a run with four of them is gone."""
    meeting, marker = arrange(directory), f"marker-{os.urandom(6).hex()}"
    command = [sys.executable, "-c", _WORKER, daemon.path, str(directory), marker]
    with subprocess.Popen(command) as worker:
        meeting.hear()
        members = pidfds_of(marker, besides=worker.pid)
        victims = {"worker": worker.pid, "sandboxd": daemon.process.pid}
        victim = victims.get(whom) or parent_of(members[0])
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        all_end(members, 5)
        elapsed = (time.monotonic() - began) * 1000
        worker.kill()
    return elapsed


def cancelled(table: Table) -> None:
    """From the word to the end of the last process; all of them refuse to end when asked."""
    times = []
    with fresh_daemon() as daemon:
        for _ in range(10):
            with tempfile.TemporaryDirectory(prefix="tc") as directory:
                times.append(_cancel_and_watch(daemon, Path(directory)))
    table.times("cancelled, with stubborn grandchildren: none left after, ms", times, "1000")


def _cancel_and_watch(daemon: Daemon, directory: Path) -> float:
    meeting, marker = arrange(directory), f"marker-{os.urandom(6).hex()}"
    stop = threading.Event()
    options = {"profile": meeting.profile, "parameters": {"marker": marker}, "cancelled": stop}
    run = threading.Thread(target=daemon.run, args=[STUBBORN], kwargs=options)
    run.start()
    meeting.hear()
    members, began = pidfds_of(marker), time.monotonic()
    stop.set()
    all_end(members, 5)
    elapsed = (time.monotonic() - began) * 1000
    run.join()
    return elapsed


def be_worker(path: str, directory: str, marker: str) -> None:
    profile = Meeting(Path(directory)).profile
    program, parameters = CodeSource(SPAWN_AND_TELL), {"marker": marker}
    SandboxClient(path).run(SandboxSpec("bench", profile, Limits(), program, parameters))


def others_ms() -> float:
    before = busy_ms()
    time.sleep(1)
    return busy_ms() - before


def busy_ms() -> float:
    """Processor time that was not idle, of all processors, since boot."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(numbers) - numbers[3] - numbers[4]) * 1000 / _TICK


def tree_ms() -> float:
    """Processor time of everything below sandboxd since it began; 0 without a v2 group."""
    for root in ("unified/", ""):
        path = Path(f"/sys/fs/cgroup/{root}{_GROUPS}/cpu.stat")
        if path.exists():
            return int(path.read_text().split()[1]) / 1000
    return 0


def processes_below(pid: int) -> dict[int, list[int]]:
    """Children by parent, of all that descend from `pid`."""
    found: dict[int, list[int]] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        found[parent] = children_of(parent)
        todo += found[parent]
    return found


def children_of(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def slots_below(pid: int) -> list[int]:
    """Those without children whose parent has several: not a lone template."""
    tree = processes_below(pid)
    return [
        child
        for children in tree.values()
        for child in children
        if len(children) > 1 and not tree.get(child)
    ]


def size_mb(pid: int) -> tuple[float, float]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = dict(re.findall(r"(\w+):\s+(\d+) kB", text))
    own = int(found["Private_Clean"]) + int(found["Private_Dirty"])
    return int(found["Pss"]) / 1024, own / 1024


def status_kb(pid: int, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def wakings(pid: int) -> int:
    tasks = [task / "status" for task in Path(f"/proc/{pid}/task").iterdir()]
    texts = [path.read_text() for path in tasks]
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)


def cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def parent_of(pidfd: int) -> int:
    """Of the process behind a pidfd, as this machine counts."""
    info = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    pid = int(re.search(r"Pid:\s+(\d+)", info)[1])  # type: ignore[index]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main()
