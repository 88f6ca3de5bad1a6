"""Namespaces and mounts: getting out of those one is in, or making new ones to be root of.

Each first tries to become root of a namespace of its own, as any ordinary user may.
"""

import ctypes
import os
import socket
import struct

from tests.attacks.attack import ALL, STANDARD, attack
from tests.attacks.evidence import changed_the_host, got_something
from tests.attacks.kit import (
    NEW_NAMESPACES,
    Parameters,
    call,
    reached_calls,
    rule_a_namespace,
    succeeds,
    what_works,
)

_KINDS = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup")


def unshares(p: Parameters) -> object:
    flags = NEW_NAMESPACES[p["kind"]] | NEW_NAMESPACES["user"]
    call("unshare", flags)
    return [p["kind"]]


def clones_into_a_new_namespace(p: Parameters) -> object:
    flags = NEW_NAMESPACES[p["kind"]] | NEW_NAMESPACES["user"]
    if call("clone", flags | 17, 0, 0, 0, 0) == 0:
        os._exit(0)
    return [p["kind"]]


def clones_by_a_structure(p: Parameters) -> object:
    flags = NEW_NAMESPACES[p["kind"]] | NEW_NAMESPACES["user"]
    arguments = (ctypes.c_ulonglong * 11)(flags, 0, 0, 0, 17)
    if call("clone3", arguments, 88) == 0:
        os._exit(0)
    return [p["kind"]]


for _kind in _KINDS:
    for _body in (unshares, clones_into_a_new_namespace, clones_by_a_structure):
        attack(variant=_kind, extra={"kind": _kind}, together=True)(_body)


@attack()
def takes_a_clock_of_its_own(p: Parameters) -> object:
    """CLONE_NEWTIME shares a bit with the signal in the flags of clone."""
    call("unshare", 0x80 | NEW_NAMESPACES["user"])
    return ["a clock"]


@attack(toothless="one may only enter namespaces one has rights in")
def enters_the_namespaces_of_others(p: Parameters) -> object:
    found = []
    for pid in ("1", "self", p["canary"], p["parent"]):
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            if succeeds(lambda at=f"/proc/{pid}/ns/{kind}": os.setns(os.open(at, os.O_RDONLY))):
                found.append(f"{pid} {kind}")
    return found


@attack(levels=ALL)
def asks_to_enter_a_namespace(p: Parameters) -> object:
    return reached_calls({"setns": (os.pidfd_open(os.getpid()), 0)})


@attack()
def goes_on_as_root_of_a_namespace_in_a_namespace(p: Parameters) -> object:
    rule_a_namespace("mount")
    rule_a_namespace("mount", "net", "ipc", "uts")
    return [os.getuid()]


def mounts(p: Parameters) -> object:
    """What an ordinary user may as root of a namespace. Over what is here, or beside it."""
    succeeds(lambda: rule_a_namespace("mount", "pid", "ipc"))
    source, target, kind, flags = (str(word).encode() for word in p["words"])
    call("mount", source, target or p["arena"].encode(), kind, int(flags), 0)
    return [p["words"]]


_BIND, _MOVE, _REMOUNT, _RECURSIVE, _SHARED = 0x1000, 0x2000, 0x20, 0x4000, 1 << 20
for _name, _words in {
    "memory over the shared directory": ("none", "", "tmpfs", 0),
    "memory over the programs": ("none", "/usr", "tmpfs", 0),
    "a new proc": ("none", "", "proc", 0),
    "sysfs": ("none", "", "sysfs", 0),
    "control groups": ("none", "", "cgroup2", 0),
    "devices": ("none", "", "devtmpfs", 0),
    "terminals": ("none", "", "devpts", 0),
    "message queues": ("none", "", "mqueue", 0),
    "the root once more": ("/", "", "none", _BIND | _RECURSIVE),
    "the programs writable": ("none", "/usr", "none", _BIND | _REMOUNT),
    "the root writable": ("none", "/", "none", _REMOUNT),
    "the root elsewhere": ("/usr", "", "none", _MOVE),
    "propagation to others": ("none", "/", "none", _SHARED | _RECURSIVE),
}.items():
    _hard = _words[2] in ("devtmpfs", "cgroup2", "sysfs") or _name in (
        "the root elsewhere", "the programs writable", "the root writable", "a new proc",
    )  # fmt: skip
    attack(
        variant=_name,
        extra={"words": list(_words)},
        toothless="a user's own namespace may not do this either" if _hard else "",
        together=True,
    )(mounts)


@attack()
def builds_mounts_by_the_newer_calls(p: Parameters) -> object:
    succeeds(lambda: rule_a_namespace("mount"))
    arena = p["arena"].encode()
    return reached_calls(
        {
            "fsopen": (b"tmpfs", 0),
            "open_tree": (-100, arena, 1),
            "move_mount": (-100, arena, -100, arena, 0),
            "fspick": (-100, arena, 0),
            "mount_setattr": (-100, arena, 0, struct.pack("=QQQQ", 0, 0, 0, 0), 32),
            "fsmount": (-1, 0, 0),
            "fsconfig": (-1, 0, 0, 0, 0),
        }
    )


@attack()
def lists_mounts_by_number(p: Parameters) -> object:
    """The newest calls tell of mounts without any /proc."""
    request = struct.pack("=IIQQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0, 0)
    found = (ctypes.c_uint64 * 64)()
    return [n for n in (457, 458) if succeeds(lambda one=n: call(one, request, found, 64, 0))]


@attack(levels=ALL, toothless="an ordinary user may not, sandbox or not")
def takes_mounts_away(p: Parameters) -> object:
    """What lies below a mount comes to light."""
    return what_works(
        {
            at: lambda a=at: call("umount2", a.encode(), 2)
            for at in ("/tmp", "/proc", "/usr", p["arena"])
        }
    )


@attack()
def takes_mounts_away_as_root_of_a_namespace(p: Parameters) -> object:
    succeeds(lambda: rule_a_namespace("mount"))
    succeeds(lambda: call("mount", b"none", p["arena"].encode(), b"tmpfs", 0, 0))
    call("umount2", p["arena"].encode(), 2)
    return [p["arena"]]


@attack()
def moves_its_root(p: Parameters) -> object:
    succeeds(lambda: rule_a_namespace("mount"))
    return what_works({"chroot": lambda: os.chroot(p["arena"])})


@attack()
def exchanges_its_root(p: Parameters) -> object:
    succeeds(lambda: rule_a_namespace("mount"))
    return reached_calls({"pivot_root": (p["arena"].encode(), p["arena"].encode())})


@attack(seen=(changed_the_host, got_something))
def renames_the_host(p: Parameters) -> object:
    succeeds(lambda: rule_a_namespace("uts"))
    return what_works(
        {
            "host": lambda: call("sethostname", b"owned", 5),
            "domain": lambda: call("setdomainname", b"owned", 5),
        }
    )


@attack(toothless="an ordinary user may not, sandbox or not")
def turns_the_clock_back(p: Parameters) -> object:
    succeeds(rule_a_namespace)
    now = (ctypes.c_long * 2)(0, 0)
    return what_works(
        {
            "day": lambda: call("settimeofday", now, 0),
            "clock": lambda: call("clock_settime", 0, now),
        }
    )


@attack()
def builds_a_network_of_its_own(p: Parameters) -> object:
    """With rights in a namespace one reaches parts of the kernel that only root should reach."""
    succeeds(lambda: rule_a_namespace("net"))
    return what_works(
        {
            "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255),
            "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3),
            "netfilter": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12),
        }
    )


def uses_a_program_for_namespaces(p: Parameters) -> object:
    program, *arguments = p["command"]
    child = os.posix_spawn(program, [program, *arguments], dict(os.environ))
    return os.waitpid(child, 0)[1] == 0


for _command in (
    ["/usr/bin/unshare", "-Ur", "true"],
    ["/usr/bin/bwrap", "--bind", "/", "/", "true"],
):
    attack(
        levels=(STANDARD,),
        variant=os.path.basename(_command[0]),
        extra={"command": _command},
        toothless="" if os.path.exists(_command[0]) else "this machine does not have it",
    )(uses_a_program_for_namespaces)


@attack(toothless="rights of the machine's own root are asked for")
def sets_its_user_and_group(p: Parameters) -> object:
    return what_works(
        {
            "user": lambda: os.setuid(0),
            "group": lambda: os.setgid(0),
            "all users": lambda: os.setresuid(0, 0, 0),
            "groups": lambda: os.setgroups([0]),
        }
    )
