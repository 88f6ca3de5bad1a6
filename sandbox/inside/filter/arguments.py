"""Arguments under which a system call is allowed, as far as a filter can read them.

Pointers lead to memory that another thread may change after the look, so nothing behind one is
ever asked for.
"""

import errno
from typing import NamedTuple

from sandbox.inside.filter import bpf

YES = bpf.ALLOW
NO, ABSENT, INVALID = bpf.error(errno.EPERM), bpf.error(errno.ENOSYS), bpf.error(errno.EINVAL)
NOT_SUPPORTED, NO_LOCKS = bpf.error(errno.ENOTSUP), bpf.error(errno.ENOLCK)

_WORD, _ALL_BITS = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


class Check(NamedTuple):
    """Holds when the argument's bits under `mask` are one of the values.

    The lower half is enough but for pointers: of all other arguments here the kernel takes an
    int, or gives the upper half no meaning.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD


class ArgumentCase(NamedTuple):
    """`answer` is a seccomp action; given when all the checks hold."""

    checks: tuple[Check, ...]
    answer: int = YES


class Rule(NamedTuple):
    """No two cases of a rule hold for the same arguments."""

    otherwise: int = NO
    cases: tuple[ArgumentCase, ...] = ()


def _if(*checks: Check, otherwise: int = NO) -> Rule:
    return Rule(otherwise, (ArgumentCase(checks),))


def _unless(check: Check) -> Rule:
    return Rule(YES, (ArgumentCase((check,), NO),))


def _value(argument: int, *values: int) -> Check:
    return Check(argument, values)


def _without(argument: int, bits: int) -> Check:
    return Check(argument, (0,), bits)


def _only(argument: int, bits: int) -> Check:
    return Check(argument, (0,), _WORD & ~bits)


def _null(argument: int) -> Check:
    return Check(argument, (0,), _ALL_BITS)


# A set-id file in a writable mount would belong to the outer uid on the host.
_SET_ID_BITS = 0o6000
MODES = {
    "chmod": _if(_without(1, _SET_ID_BITS)),
    "creat": _if(_without(1, _SET_ID_BITS)),
    "fchmod": _if(_without(1, _SET_ID_BITS)),
    "fchmodat": _if(_without(2, _SET_ID_BITS)),
    "fchmodat2": _if(_without(2, _SET_ID_BITS)),
    "mkdir": _if(_without(1, _SET_ID_BITS)),
    "mkdirat": _if(_without(2, _SET_ID_BITS)),
    "open": _if(_without(2, _SET_ID_BITS)),
    "openat": _if(_without(3, _SET_ID_BITS)),
}
MODES_OF_NODES = {
    "mknod": _if(_without(1, _SET_ID_BITS)),
    "mknodat": _if(_without(2, _SET_ID_BITS)),
}

# The low byte of clone's flags is a signal, so CLONE_NEWTIME cannot be asked for there.
_NEW_NAMESPACES, _CLONE_THREAD = 0x7E020000, 0x10000
CLONE = _if(_without(0, _NEW_NAMESPACES))
CLONE_A_THREAD = _if(Check(0, (_CLONE_THREAD,), _NEW_NAMESPACES | _CLONE_THREAD))
# posix_spawn: CLONE_VM, CLONE_VFORK and SIGCHLD. The parent is blocked until the child executes.
CLONE_A_THREAD_OR_SPAWN = Rule(NO, (*CLONE_A_THREAD.cases, ArgumentCase((_value(0, 0x4111),))))
NOT_EVERYBODY = _unless(_value(0, _WORD))  # kill(-1)
OWN_LIMITS = _if(_value(0, 0))  # a hard limit of one's own can be lowered, never raised

_PROT_WRITE, _PROT_EXEC = 2, 4
_MAP_LOCKED, _MAP_HUGETLB = 0x2000, 0x40000
# None of MERGEABLE (which shows who has the same page), COLD and PAGEOUT.
_MADVISE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)
_FADVISE = (0, 1, 2, 3, 5)  # not DONTNEED, which empties the page cache for everybody
_ARCH_SET_FS, _ARCH_GET_FS = 0x1002, 0x1003
_MEMBARRIER = (0, 8, 16, 32, 64)  # QUERY, and what concerns the own process
MEMORY = {
    "arch_prctl": _if(_value(0, _ARCH_SET_FS, _ARCH_GET_FS), otherwise=INVALID),
    "fadvise64": _if(_value(3, *_FADVISE)),
    "madvise": _if(_value(2, *_MADVISE), otherwise=INVALID),
    "membarrier": _if(_value(0, *_MEMBARRIER), otherwise=INVALID),
    "mmap": _if(_without(3, _MAP_LOCKED | _MAP_HUGETLB)),
    "mprotect": Rule(YES),
}
NO_NEW_CODE = {
    "mmap": _if(
        Check(2, (0, _PROT_WRITE, _PROT_EXEC), _PROT_WRITE | _PROT_EXEC),
        _without(3, _MAP_LOCKED | _MAP_HUGETLB),
    ),
    "mprotect": _if(_without(2, _PROT_EXEC)),
}

# PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS
_PRCTL = (3, 15, 16, 21, 23, 39)
# PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECUREBITS, PR_SET_MM, PR_SET_PTRACER
_PRCTL_NEVER = (1, 4, 28, 35, 0x59616D61)
# TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# TIOCSTI and TIOCLINUX type into a terminal; TIOCCONS and TIOCSETD change what it is.
_IOCTL_NEVER = (0x5412, 0x541C, 0x541D, 0x5423)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_FCNTL = (0, 1, 2, 3, 4, 1030)
# F_GETLK, F_SETLK, F_SETLKW, and the three of open file descriptions: seen by all who can open
# the same inode, and /usr and the devices are the same for all.
_FCNTL_LOCKS = (5, 6, 7, 36, 37, 38)
# RWF_DSYNC, RWF_SYNC, RWF_APPEND. RWF_NOWAIT reveals whether a page was read before.
_RWF = 0x2 | 0x4 | 0x10
_RENAME = 1 | 2  # NOREPLACE, EXCHANGE
FILES = {
    **MODES,
    "fcntl": Rule(
        NO,
        (ArgumentCase((_value(1, *_FCNTL),)), ArgumentCase((_value(1, *_FCNTL_LOCKS),), NO_LOCKS)),
    ),
    "ioctl": _if(_value(1, *_IOCTL)),
    "prctl": _if(_value(0, *_PRCTL)),
    "preadv2": _if(_only(5, _RWF), otherwise=NOT_SUPPORTED),
    "prlimit64": OWN_LIMITS,
    "pwritev2": _if(_only(5, _RWF), otherwise=NOT_SUPPORTED),
    "renameat2": _if(_only(4, _RENAME), otherwise=INVALID),
}

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _SEQPACKET, _TCP = 1, 5, 6
_KIND = _WORD & ~(0x80000 | 0x800)  # without SOCK_CLOEXEC, SOCK_NONBLOCK
_OUT_OF_BAND, _ERROR_QUEUE = 1, 0x2000
_NO_RECEIVING = _OUT_OF_BAND | _ERROR_QUEUE
_NO_SENDING = _OUT_OF_BAND | 0x4000000 | 0x20000000  # MSG_ZEROCOPY; MSG_FASTOPEN connects
_SOL_SOCKET = 1
# SO_REUSEADDR, SNDBUF, RCVBUF, KEEPALIVE, LINGER, RCVTIMEO, SNDTIMEO
_SET_SOCKET = (2, 7, 8, 9, 13, 20, 21)
# and SO_TYPE, ERROR, PEERCRED, ACCEPTCONN, PROTOCOL, DOMAIN
_GET_SOCKET = (*_SET_SOCKET, 3, 4, 17, 30, 38, 39)
# TCP_NODELAY, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, QUICKACK, USER_TIMEOUT, NOTSENT_LOWAT
_SET_TCP = (1, 3, 4, 5, 6, 12, 18, 25)
_GET_TCP = (*_SET_TCP, 2, 11)  # and TCP_MAXSEG, INFO


def _option(level: int, names: tuple[int, ...]) -> ArgumentCase:
    return ArgumentCase((_value(1, level), _value(2, *names)))


# A datagram socket could send to an address, so even a pair of sockets is of streams.
PAIRS = {
    "getsockopt": Rule(NO, (_option(_SOL_SOCKET, _GET_SOCKET),)),
    "recvfrom": _if(_without(3, _NO_RECEIVING)),
    "recvmsg": _if(_without(2, _NO_RECEIVING)),
    "sendto": _if(_null(4), _without(3, _NO_SENDING)),
    "setsockopt": Rule(NO, (_option(_SOL_SOCKET, _SET_SOCKET),)),
    "socketpair": _if(_value(0, _AF_UNIX), Check(1, (_STREAM, _SEQPACKET), _KIND)),
}
# With sendmsg come descriptors under way in messages, which the kernel counts for all processes of
# a user together; asyncio writes to connections with it.
CONNECTIONS = {
    "connect": Rule(YES),
    "sendmsg": _if(_without(2, _NO_SENDING)),
    "getsockopt": Rule(NO, (_option(_SOL_SOCKET, _GET_SOCKET), _option(_TCP, _GET_TCP))),
    "setsockopt": Rule(NO, (_option(_SOL_SOCKET, _SET_SOCKET), _option(_TCP, _SET_TCP))),
    "socket": _if(_value(0, _AF_INET, _AF_INET6), Check(1, (_STREAM,), _KIND), _value(2, 0, _TCP)),
}

_PRIVATE, _REALTIME = 128, 256
# Waking by a page of /usr would be heard in every run that sees it. To wait is free: it is how
# threads are joined, and there the kernel itself wakes.
PRIVATE_WAKES = Rule(
    NO,
    (
        ArgumentCase((Check(1, (_PRIVATE,), _PRIVATE),)),
        ArgumentCase((Check(1, (0, 9), _WORD & ~_REALTIME),)),  # FUTEX_WAIT, FUTEX_WAIT_BITSET
    ),
)

_PERSONALITY = (0, _WORD)  # Linux as it is, and the question which one it is
WHERE_ALL_ELSE_IS_OPEN = {
    **MODES,
    **MODES_OF_NODES,
    "clone": CLONE,
    "ioctl": _unless(_value(1, *_IOCTL_NEVER)),
    "kill": NOT_EVERYBODY,
    "personality": _if(_value(0, *_PERSONALITY)),
    "prctl": _unless(_value(0, *_PRCTL_NEVER)),
    "prlimit64": OWN_LIMITS,
    "socket": _if(_value(0, _AF_UNIX, _AF_INET, _AF_INET6)),
    "socketpair": _if(_value(0, _AF_UNIX)),
}
