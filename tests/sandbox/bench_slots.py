"""What a run costs on this machine. Not a test: `python -m tests.sandbox.bench_slots [seconds]`.

Prints one table. "CPU" is the time of sandboxd and all below it, from its v2 group; "machine" is
all time that was not idle, so with kernel threads that clean up after runs, and other people.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sandbox.client import SandboxClient
from sandbox.spec import IsolationLevel, Limits, Profile, SandboxSpec, Source

ROOT = Path(__file__).resolve().parents[2]
# CLOCK_MONOTONIC is the same inside and outside: the first user line tells when it ran.
_CODE = "import time\nBEGAN = time.monotonic()\ndef main(p):\n    return BEGAN"
_SPEC = SandboxSpec("bench", Profile(IsolationLevel.STANDARD), Limits(), Source(_CODE), {})
_GROUPS = f"toolcrib-bench-{os.getpid()}"
_TICK = os.sysconf("SC_CLK_TCK")


def start_daemon(directory: str, slots: int) -> tuple[subprocess.Popen[bytes], SandboxClient]:
    path = f"{directory}/s"
    command = [sys.executable, "-m", "sandbox.daemon", "--socket", path, "--allow-uid"]
    command += [
        str(os.getuid()),
        "--cgroup-root",
        _GROUPS,
        "--slots",
        str(slots),
    ]
    daemon = subprocess.Popen(command, cwd=ROOT, env={}, stderr=subprocess.DEVNULL)
    client = SandboxClient(path)
    while True:
        try:
            print("mode:", client.ping()["cgroup_mode"], "slots:", slots)
            return daemon, client
        except OSError:
            time.sleep(0.01)


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


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def one_by_one(client: SandboxClient, seconds: float, pause_s: float) -> list[list[float]]:
    first_line, whole = [], []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        result = client.run(_SPEC)
        whole.append((time.monotonic() - began) * 1000)
        first_line.append((result.output - began) * 1000)
        time.sleep(pause_s)
    return [first_line, whole]


def many(client: SandboxClient, clients: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    threads = [
        threading.Thread(target=lambda: latencies.extend(one_by_one(client, seconds, 0)[1]))
        for _ in range(clients)
    ]
    below = tree_ms()
    machine, own, began = busy_ms(), time.process_time(), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, runs = time.monotonic() - began, len(latencies)
    below = tree_ms() - below
    return {
        "runs/s": runs / elapsed,
        "p50 ms": percentile(latencies, 0.5),
        "p95 ms": percentile(latencies, 0.95),
        "CPU ms/run": below / runs,
        "machine ms/run": (busy_ms() - machine) / runs,
        "client ms/run": (time.process_time() - own) * 1000 / runs,
    }


def idle_share(seconds: float) -> float:
    """Processor time other jobs take, in ms per second."""
    before = busy_ms()
    time.sleep(seconds)
    return (busy_ms() - before) / seconds


def memory_of_slots(daemon: int) -> list[tuple[float, float]]:
    """(PSS, private) in MB of every process below that has no child: the slots."""
    rows = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in rows.stdout.splitlines()]
    children: dict[int, list[int]] = {}
    for pid, parent in pairs:
        children.setdefault(parent, []).append(pid)
    below, todo = [], [daemon]
    while todo:
        found = children.get(todo.pop(), [])
        below += found
        todo += found
    return [memory(pid) for pid in below if pid not in children]


def memory(pid: int) -> tuple[float, float]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = dict(re.findall(r"(\w+):\s+(\d+) kB", text))
    private = int(found["Private_Clean"]) + int(found["Private_Dirty"])
    return int(found["Pss"]) / 1024, private / 1024


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)
        daemon, client = start_daemon(directory, slots=8)
        try:
            report(client, daemon.pid, seconds)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
            for tree in Path("/sys/fs/cgroup").glob(f"*/{_GROUPS}"):
                (tree / "daemon").rmdir()
                tree.rmdir()


def report(client: SandboxClient, daemon: int, seconds: float) -> None:
    began = time.monotonic()
    client.run(_SPEC)
    print(f"cold (new template)   {(time.monotonic() - began) * 1000:8.1f} ms")
    time.sleep(0.5)
    sizes = memory_of_slots(daemon)
    print(
        f"slot PSS / private    {statistics.mean(one[0] for one in sizes):8.1f} / "
        f"{statistics.mean(one[1] for one in sizes):.1f} MB over {len(sizes)}"
    )
    print(f"others on the machine {idle_share(1):8.1f} ms/s")
    first, whole = one_by_one(client, seconds, 0.02)
    for name, values in (("first user line", first), ("result in hand", whole)):
        print(
            f"{name:21} {percentile(values, 0.5):8.2f} p50 {percentile(values, 0.95):8.2f} p95"
            f" {max(values):8.2f} max ms, paced, n={len(values)}"
        )
    for clients in (1, 4, 16):
        row = many(client, clients, seconds)
        print(f"{clients:2} clients ", "  ".join(f"{k} {v:7.2f}" for k, v in row.items()))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5)
