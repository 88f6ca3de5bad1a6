"""Watchdog of a query server: end it when one of its threads works for too long or it grows too
large. Oxigraph's own time limit does not stop a query that sorts, groups or joins, and goes on
after the client has disconnected.

    python -I -S watchdog.py --busy-s N --memory-bytes N -- COMMAND ...

The supervisor restarts it. Started by path with the standard library only.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
WAIT_S, SAMPLE_S = 0.2, 1.0
IDLE_SHARE = 0.1  # of the time between two samples; a thread that works less is not stuck
BACKGROUND = "(rocksdb"  # threads that keep the files in order work for as long as they need
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BusyThreads:
    """For how long each thread of a process has worked without a pause."""

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks
        self._used: dict[str, float] = {}
        self._streak: dict[str, float] = {}
        self._sampled_at = time.monotonic()

    def flaw(self, most_s: float) -> str:
        """A sentence when a thread is stuck, else nothing. Samples at most once in `SAMPLE_S`."""
        since_s = time.monotonic() - self._sampled_at
        if since_s >= SAMPLE_S:
            self._sample(since_s)
        longest_s = max(self._streak.values(), default=0.0)
        return f"a query has worked for more than {most_s:.0f} s" if longest_s > most_s else ""

    def _sample(self, since_s: float) -> None:
        now = dict(_cpu_of_threads(self._tasks))
        self._streak = {
            thread: self._streak.get(thread, 0.0) + since_s
            for thread, used_s in now.items()
            if used_s - self._used.get(thread, used_s) > IDLE_SHARE * since_s
        }
        self._used, self._sampled_at = now, time.monotonic()


def _cpu_of_threads(tasks: Path) -> Iterator[tuple[str, float]]:
    with suppress(OSError):
        for thread in os.listdir(tasks):
            with suppress(OSError):
                stat = (tasks / thread / "stat").read_text(encoding="utf-8", errors="replace")
                name, _, rest = stat.partition(" ")[2].rpartition(") ")
                if not name.startswith(BACKGROUND):
                    fields = rest.split()
                    yield thread, (int(fields[11]) + int(fields[12])) / _TICKS_S


def memory_bytes(process: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def watch_server(command: list[str], busy_s: float, most_bytes: int) -> int:
    """The exit code: the server's, or 1 when it had to be ended."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with subprocess.Popen(command, preexec_fn=_die_with_parent) as server:  # noqa: PLW1509
        busy = BusyThreads(Path(f"/proc/{server.pid}/task"))
        while True:
            try:
                code = server.wait(WAIT_S)
                return 0 if stopping.is_set() else code if code >= 0 else 1
            except subprocess.TimeoutExpired:
                if stopping.is_set():
                    server.terminate()
                elif flaw := busy.flaw(busy_s) or _memory_flaw(server.pid, most_bytes):
                    print(f"ERROR {flaw}; ending the server", file=sys.stderr, flush=True)
                    server.kill()


def _memory_flaw(process: int, most_bytes: int) -> str:
    used = memory_bytes(process)
    return f"it holds {used} bytes of memory" if used > most_bytes else ""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="watchdog.py")
    parser.add_argument("--busy-s", type=float, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args(argv)
    return watch_server(wanted.command, wanted.busy_s, wanted.memory_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
