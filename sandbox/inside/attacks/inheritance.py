"""Attacks on what a process inherits: descriptors, environment and privileges."""

import ctypes
import os
import resource

from sandbox.inside.attacks import EVERY, SANDBOXED, Bait, attack, listed
from sandbox.inside.attacks.raw_calls import (
    PR_CAPBSET_READ,
    PR_GET_DUMPABLE,
    PR_GET_NO_NEW_PRIVS,
    PR_GET_SECCOMP,
    libc,
    prctl,
)

_ENVIRONMENT = frozenset({"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "TMPDIR", "TZ"})
_FIRST_UNKNOWN, _LAST = 4, 1024  # below are the streams and the channel
_SECCOMP_FILTER = 2
_CAPABILITY_VERSION = 0x20080522


@attack("be root", EVERY)
def be_root(bait: Bait) -> str | None:
    return "uid 0" if 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) else None


@attack("find variables of the host's environment", EVERY)
def find_variables(bait: Bait) -> str | None:
    return listed(set(os.environ) - _ENVIRONMENT)


@attack("find descriptors nobody meant to give", EVERY)
def find_descriptors(bait: Bait) -> str | None:
    return listed(str(number) for number in range(_FIRST_UNKNOWN, _LAST) if _is_open(number))


@attack("gain rights by a set-id program", EVERY)
def gain_rights(bait: Bait) -> str | None:
    return None if prctl(PR_GET_NO_NEW_PRIVS) == 1 else "no_new_privs is not set"


@attack("live without a filter of system calls", EVERY)
def live_unfiltered(bait: Bait) -> str | None:
    mode = prctl(PR_GET_SECCOMP)
    return None if mode == _SECCOMP_FILTER else f"seccomp mode {mode}"


@attack("hold a capability", EVERY)
def hold_capability(bait: Bait) -> str | None:
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        return None  # Restricted may not even ask; what capabilities are for is tried elsewhere
    return listed(f"{word:#x}" for word in sets if word)


@attack("get a capability back", SANDBOXED, alone=True)
def regain_capability(bait: Bait) -> str | None:
    return listed(str(number) for number in range(64) if prctl(PR_CAPBSET_READ, number) == 1)


@attack("be read by a neighbour", SANDBOXED)
def be_read(bait: Bait) -> str | None:
    return "dumpable" if prctl(PR_GET_DUMPABLE) else None


@attack("dump core", EVERY)
def dump_core(bait: Bait) -> str | None:
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    return None if limits == (0, 0) else f"core size {limits[1]}"


@attack("take a terminal", EVERY)
def take_terminal(bait: Bait) -> str | None:
    os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    return "it was opened"


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
