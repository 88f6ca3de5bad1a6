"""Runs a command so that it dies with its parent and, started by root, as an ordinary user.

    python -I -S process_launcher.py --parent PID --death-signal N --directory DIR
           [--uid N --gid N] [--group N ...] [--keep-root] [--umask OCTAL] [--reach DIR ...]
           -- COMMAND ...

Started by path with the standard library only: it costs 20 ms and needs nothing installed. It
ends by exec, so the process the parent started is the command itself.

A clone under /root, or in a directory of `mktemp -d`, cannot be reached by another user. For such
a command the private ancestor is covered, in a mount namespace of its own, by an empty directory
that shows only the directories named by --reach, at their own paths.

With --keep-root the command becomes that user by itself, once it has done what only root may do.
"""

import argparse
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18
REFUSED = 126  # what shells answer for a command that is there and cannot be run

libc = ctypes.CDLL(None, use_errno=True)


class CommandRefused(Exception):
    """The command cannot be run as asked; the message is one sentence."""


def read_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="process_launcher.py")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--death-signal", type=int, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--group", type=int, action="append", default=[])
    parser.add_argument("--keep-root", action="store_true")
    parser.add_argument("--umask", type=lambda text: int(text, 8), default=0o077)
    parser.add_argument("--reach", action="append", default=[])
    parser.add_argument("command", nargs="+")
    return parser.parse_args(argv)


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = [os.fsencode(source), os.fsencode(target), kind.encode() if kind else None]
    if libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def ancestors(path: str) -> Iterator[str]:
    """Every directory on the way to `path`, from the root on, without `path` itself."""
    parts = path.split("/")
    for length in range(1, len(parts)):
        yield "/".join(parts[:length]) or "/"


def first_barrier(path: str) -> str | None:
    """The first directory on the way that the effective user may not pass."""
    for ancestor in ancestors(path):
        if not os.access(ancestor, os.X_OK, effective_ids=True):
            return ancestor
    return None


def hidden_directories(reach: list[str], uid: int, gid: int) -> dict[str, str]:
    """Directory to reach → its barrier, for those that `uid` cannot reach by itself."""
    spellings = {f(path) for path in reach for f in (os.path.abspath, os.path.realpath)}
    with effective_user(uid, gid):
        found = {path: first_barrier(path) for path in sorted(spellings)}
    return {path: blocked for path, blocked in found.items() if blocked}


@contextmanager
def effective_user(uid: int, gid: int) -> Iterator[None]:
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def expose_directories(hidden: dict[str, str]) -> None:
    """Shows the hidden directories at their own paths, and nothing else of what hid them."""
    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    handles = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in hidden}
    for blocked in {os.path.realpath(ancestor) for ancestor in hidden.values()}:
        mount("tmpfs", blocked, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=256k")
    for path, handle in handles.items():
        os.makedirs(path, mode=0o755, exist_ok=True)
        mount(f"/proc/self/fd/{handle}", path, None, MS_BIND | MS_REC)
        os.close(handle)


def become_user(
    uid: int, gid: int, groups: list[int], reach: list[str], *, keep_root: bool
) -> None:
    try:
        os.setgroups(groups)
    except PermissionError as error:
        raise CommandRefused(
            "This root may not change users: start Toolcrib as an ordinary user."
        ) from error
    hidden = hidden_directories(reach, uid, gid)
    if hidden:
        try:
            expose_directories(hidden)
        except OSError as error:
            raise CommandRefused(
                f"{next(iter(hidden.values()))} is closed to ordinary users and cannot be opened"
                f" privately here ({error.strerror}): move the checkout or set TOOLCRIB_DATA to a"
                " directory that others can pass."
            ) from error
    with effective_user(uid, gid):
        for path in reach:
            if not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
                raise CommandRefused(f"User {uid} may not read {path}: run chmod -R go+rX on it.")
    if not keep_root:
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def main(argv: list[str]) -> None:
    wanted = read_arguments(argv)
    os.umask(0o022)
    if wanted.uid is not None:
        become_user(wanted.uid, wanted.gid, wanted.group, wanted.reach, keep_root=wanted.keep_root)
    os.umask(wanted.umask)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_PDEATHSIG, wanted.death_signal)  # after the change of user, which clears it
    if os.getppid() != wanted.parent:
        raise CommandRefused("The parent is gone.")
    os.chdir(wanted.directory)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec keeps that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execve(wanted.command[0], wanted.command, os.environ)  # noqa: S606


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (CommandRefused, OSError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(REFUSED)
