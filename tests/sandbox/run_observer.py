"""Seeing a run from outside without sleeping: a FIFO it writes to, and its processes' ends."""

import os
import select
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.spec import IsolationLevel, Mount, Profile
from tests.conditions import LIMIT_S, until

# For a run that is ended by something else: longer than a test waits for it.
ENDLESS_S = 3600

# Each process of the run carries the marker in its command line.
_CHILD = "import time; time.sleep(86400) # {marker}"


@dataclass
class Meeting:
    """A directory shared with a run, and a FIFO in it."""

    directory: Path

    @property
    def profile(self) -> Profile:
        return Profile(IsolationLevel.STANDARD, (Mount(str(self.directory), "/meet", True),))

    def hear(self, ended: Sequence[object] = ()) -> str:
        """Waits until the run has written to the FIFO. Fails at once if `ended`, which the caller
        fills with the result of the run, is filled first."""
        fifo = os.open(self.directory / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        try:
            until(lambda: wait_readable(fifo, 0.1) or ended)
            assert wait_readable(fifo, 0), f"the run never wrote: {ended}"
            return os.read(fifo, 4096).decode()
        finally:
            os.close(fifo)


def arrange(directory: Path) -> Meeting:
    """The run comes as another user."""
    directory.chmod(0o777)
    os.mkfifo(directory / "fifo")
    (directory / "fifo").chmod(0o666)
    return Meeting(directory)


def wait_readable(descriptor: int, seconds: float = LIMIT_S) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(seconds * 1000))


SPAWN_AND_TELL = """
import subprocess, sys, time
def main(p):
    code = "import time; time.sleep(86400) # " + p["marker"]
    for session in (False, True):
        subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=session)
    subprocess.run([sys.executable, "-S", "-c",
        "import os, sys\\nif os.fork() == 0:\\n os.setsid()\\n"
        " os.execv(sys.executable, [sys.executable, '-S', '-c', " + repr(code) + "])"])
    open("/meet/fifo", "w").write("started")
    time.sleep(86400)
"""


# Grandchildren that lost their parent, stand in sessions of their own and refuse to end.
STUBBORN = """
import subprocess, sys, time
STAY = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(86400) # "
BEAR = "import os, sys; a = [sys.executable, '-S', '-c', sys.argv[1]]\\n" + \\
    "for n in range(4):\\n if os.fork() == 0:\\n  os.setsid()\\n  os.execv(sys.executable, a)"
def main(p):
    subprocess.run([sys.executable, "-S", "-c", BEAR, STAY + p["marker"]])
    open("/meet/fifo", "w").write("started")
    time.sleep(86400)
"""


def pidfds_of(marker: str, *, besides: int = 0) -> list[int]:
    """Handles of all processes on this machine whose command line holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), besides):
            continue
        try:
            if marker.encode() in (entry / "cmdline").read_bytes():
                found.append(os.pidfd_open(int(entry.name)))
        except OSError:
            continue
    return found


def all_pidfds_of(marker: str, count: int) -> list[int]:
    """As soon as there are so many: a program names itself when it has been loaded."""

    def look() -> list[int]:
        if len(found := pidfds_of(marker)) == count:
            return found
        for pidfd in found:
            os.close(pidfd)
        return []

    return until(look)


def all_end(pidfds: list[int], seconds: float = LIMIT_S) -> bool:
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    waiting = set(pidfds)
    while waiting:
        ended = poll.poll(seconds * 1000)
        if not ended:
            return False
        for pidfd, _ in ended:
            poll.unregister(pidfd)
            waiting.discard(pidfd)
    return True
