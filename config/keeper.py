"""Runs a server of queries, and ends it when one of its threads works for too long or it grows
too large: Oxigraph's own time limit does not stop a query that sorts, groups or joins, and goes on
after whoever asked has gone.

    python -I -S keeper.py --busy-s N --memory-bytes N -- COMMAND ...

Whoever started this starts it again. Started by path with the standard library only.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOOK_S = 1.0
IDLE_SHARE = 0.1  # of the time between two looks; a thread that works less is not stuck
BACKGROUND = "(rocksdb"  # threads that keep the files in order work for as long as they need
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Busy:
    """For how long each thread of a process has worked without a pause."""

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks
        self._used: dict[str, float] = {}
        self._streak: dict[str, float] = {}

    def longest_s(self, since_s: float) -> float:
        """Looks again, `since_s` after the last time."""
        now = dict(_cpu_of_threads(self._tasks))
        self._streak = {
            thread: self._streak.get(thread, 0.0) + since_s
            for thread, used_s in now.items()
            if used_s - self._used.get(thread, used_s) > IDLE_SHARE * since_s
        }
        self._used = now
        return max(self._streak.values(), default=0.0)


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


def keep(command: list[str], busy_s: float, most_bytes: int) -> int:
    """The exit code: the server's, or 1 when it had to be ended."""
    with subprocess.Popen(command, preexec_fn=_die_with_parent) as server:  # noqa: PLW1509
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        busy = Busy(Path(f"/proc/{server.pid}/task"))
        while True:
            try:
                code = server.wait(LOOK_S)
                return code if code >= 0 else 0 if code == -signal.SIGTERM else 1
            except subprocess.TimeoutExpired:
                if flaw := _flaw(server.pid, busy, busy_s, most_bytes):
                    print(f"ERROR {flaw}; ending the server", file=sys.stderr, flush=True)
                    server.kill()


def _flaw(process: int, busy: Busy, busy_s: float, most_bytes: int) -> str:
    if busy.longest_s(LOOK_S) > busy_s:
        return f"a query has worked for more than {busy_s:.0f} s"
    if memory_bytes(process) > most_bytes:
        return f"it holds more than {most_bytes} bytes of memory"
    return ""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="keeper.py")
    parser.add_argument("--busy-s", type=float, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args(argv)
    return keep(wanted.command, wanted.busy_s, wanted.memory_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
