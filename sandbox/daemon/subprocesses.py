"""Child processes of sandboxd: those it started and waits for, and orphans that it adopted."""

import os
import signal
import subprocess
import threading
from typing import Any, NoReturn

from sandbox.inside import session_kill
from sandbox.inside.layers import libc

_starting = threading.RLock()
_own: set[int] = set()


def become_subreaper() -> None:
    """Orphans of a killed bwrap come to this process, which waits for them."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)


def start_child(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A child whose exit status is its starter's: `reap_orphans` leaves it alone.

    The signals that sandboxd waits for are not blocked in it.
    """
    with _starting:
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            process = subprocess.Popen(command, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        _own.add(process.pid)
    return process


def add_child(pid: int) -> None:
    """A child that was not started here, and that its starter waits for."""
    _own.add(pid)


def remove_child(pid: int) -> None:
    """It was waited for."""
    _own.discard(pid)


def wait_child(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    finally:
        _own.discard(process.pid)


def reap_orphans_forever() -> NoReturn:
    """Needs SIGCHLD to be blocked in every thread."""
    while True:
        signal.sigwait({signal.SIGCHLD})
        reap_orphans()


def reap_orphans() -> None:
    """Wait for those who became children of this process by the death of their parents."""
    with _starting:
        _reap_the_next()
        for pid in _children() - _own:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _reap_the_next() -> None:
    """As long as the next that waits is an orphan: the list below may miss who ends meanwhile."""
    looking = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        while (ended := os.waitid(os.P_ALL, 0, looking)) and ended.si_pid not in _own:
            os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:
        return


def _children() -> set[int]:
    """Of all threads; a thread may end while one looks."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def threads_of(uid: int) -> int:
    """As RLIMIT_NPROC counts them."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if session_kill.uid_of(name) == uid:
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found
