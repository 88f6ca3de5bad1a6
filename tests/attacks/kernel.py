"""Parts of the kernel that no tool needs: the fewer can be reached, the fewer can be broken.

A call that answers anything but "not permitted" or "not there" was reached.
"""

import ctypes
import mmap
import os
import resource
import socket
import struct

from tests.attacks.attack import ALL, ONLY_X86, SANDBOXED, STANDARD, STRICT, attack
from tests.attacks.evidence import left_a_trap
from tests.attacks.kit import (
    NUMBERS,
    Parameters,
    call,
    is_reached,
    libc,
    prctl,
    reached_calls,
    what_works,
)

_PRIVILEGED = "asks for rights that no ordinary user has, before all else"


def calls(p: Parameters) -> object:
    """Arguments as numbers; a text stands for its bytes."""
    return reached_calls(
        {p["call"]: tuple(a.encode() if isinstance(a, str) else a for a in p["with"])}
    )


# name → arguments that are wrong for an ordinary user, or that work
_REACHABLE: dict[str, tuple[object, ...]] = {
    "keyctl": (0, -3, 1),
    "add_key": ("user", "siege", "x", 1, -3),
    "request_key": ("user", "siege-nobody-has", 0, 0),
    "io_uring_setup": (4, 0),
    "io_uring_enter": (-1, 1, 0, 0, 0, 0),
    "io_uring_register": (-1, 0, 0, 0),
    "perf_event_open": (0, 0, -1, -1, 0),
    "userfaultfd": (1,),
    "memfd_create": ("siege", 0),
    "memfd_secret": (0,),
    "inotify_init1": (0,),
    "fanotify_init": (0x200, 0),
    "seccomp": (2, 0, 0),
    "landlock_create_ruleset": (0, 0, 1),
    "personality": (0x40000,),
    "modify_ldt": (0, 0, 0),
    "name_to_handle_at": (-100, "/", 0, 0, 0),
    "mbind": (0, 0, 0, 0, 0, 0),
    "set_mempolicy": (0, 0, 0),
    "get_mempolicy": (0, 0, 0, 0, 0),
    "move_pages": (0, 0, 0, 0, 0, 0),
    "migrate_pages": (0, 0, 0, 0),
    "io_setup": (1, 0),
    "io_submit": (0, 0, 0),
    "splice": (-1, 0, -1, 0, 1, 0),
    "tee": (-1, -1, 1, 0),
    "vmsplice": (-1, 0, 0, 0),
    "mq_open": ("siege", 0, 0, 0),
    "shmget": (0, 4096, 0o1600),
    "semget": (0, 1, 0o1600),
    "msgget": (0, 0o1600),
    "setxattr": ("/siege", "user.x", "1", 1, 0),
    "getxattr": ("/", "user.x", 0, 0),
    "ustat": (0, 0),
    "sysfs": (3, 0, 0),
    "quotactl": (0x80000900, "/dev/null", 0, 0),
    "adjtimex": (0,),
    "clock_adjtime": (0, 0),
    "openat2": (-100, "/", 0, 0),
    "mlockall": (64,),
    "mlock2": (0, 4096, 8),
    "remap_file_pages": (0, 4096, 0, 0, 0),
    "pkey_alloc": (0, 9),
    "sched_setattr": (0, 0, 0),
    "ioprio_get": (9, 0),
    "cachestat": (-1, 0, 0, 0),
    "syncfs": (-1,),
    "sync": (),
    "setpriority": (9, 0, 0),
    "capset": (0, 0),
    "setfsuid": (65534,),
    "kcmp": (0, 0, 9, 0, 0),
    "rt_sigqueueinfo": (0, 0, 0),
    "process_madvise": (-1, 0, 0, 0, 0),
    "sync_file_range": (-1, 0, 0, 0),
    "statmount": (0, 0, 0, 0),
    "listmount": (0, 0, 0, 0),
    "lsm_list_modules": (0, 0, 1),
    "mseal": (1, 0, 0),
    "set_mempolicy_home_node": (1, 0, 0, 0),
}
_PRIVILEGED_CALLS: dict[str, tuple[object, ...]] = {
    "bpf": (0, 0, 0),
    "kexec_load": (0, 0, 0, 0),
    "kexec_file_load": (-1, -1, 0, 0, 0),
    "init_module": (0, 0, "x"),
    "finit_module": (-1, "x", 0),
    "delete_module": ("siege", 0),
    "iopl": (3,),
    "ioperm": (0, 1, 1),
    "syslog": (3, 0, 0),
    "reboot": (0, 0, 0, 0),
    "swapon": ("x", 0),
    "swapoff": ("x",),
    "acct": (0,),
    "vhangup": (),
    "mount": (0, 0, 0, 0, 0),
    "pivot_root": ("x", "x"),
    "chroot": ("/",),
    "lookup_dcookie": (0, 0, 0),
    "open_by_handle_at": (-1, 0, 0),
    "nfsservctl": (0, 0, 0),
    "uselib": ("x",),
    "_sysctl": (0,),
}
_AT_NONE_TOO = frozenset({"keyctl", "add_key", "request_key", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "perf_event_open", "userfaultfd", "bpf", "mount", "pivot_root",
    "kexec_load", "init_module", "finit_module"})  # fmt: skip

for _table, _toothless in ((_REACHABLE, ""), (_PRIVILEGED_CALLS, _PRIVILEGED)):
    for _name, _arguments in _table.items():
        attack(
            levels=ALL if _name in _AT_NONE_TOO else SANDBOXED,
            variant=_name,
            extra={"call": _name, "with": list(_arguments)},
            toothless=_toothless,
            together=True,
        )(calls)


@attack(toothless="this kernel has no such table")
def calls_numbers_of_another_table(p: Parameters) -> object:
    """x32: the same processor, other numbers, other sizes."""
    return [n for n in (39, 41, 165, 272) if is_reached(n | 0x40000000, ())]


@attack(toothless="this kernel has no such calls either")
def calls_unknown_numbers(p: Parameters) -> object:
    unknown = (*range(480, 1100), 0x7FFFFFFF, 0x3FFFFFFF, -1, -2, 1 << 31)
    return [number for number in unknown if is_reached(number, (-1, -1, -1, -1, -1, -1))]


@attack()
def hides_a_number_in_the_high_half_of_a_register(p: Parameters) -> object:
    high = 5 << 32
    return [name for name in ("keyctl", "unshare", "io_uring_setup")
            if is_reached(high | NUMBERS[name], (high, -3, 1))]  # fmt: skip


@attack()
def hides_flags_in_the_high_half_of_a_register(p: Parameters) -> object:
    """A filter that compares 64 bits where the kernel takes 32 is passed like this."""
    high = 7 << 32
    return what_works(
        {
            "prctl": lambda: call("prctl", high | 4, 1, 0, 0, 0),
            "socket": lambda: call("socket", high | 2, 1, 0),
            "socketpair": lambda: call("socketpair", high | 30, 1, 0, 0),
            "ioctl": lambda: call("ioctl", 1, high | 0x5452, struct.pack("=i", 0)),
        }
    )


@attack(levels=(STANDARD, STRICT), ends=("EXITED", "TOOL_ERROR"), toothless=ONLY_X86)
def calls_the_kernel_as_a_program_of_32_bits(p: Parameters) -> object:
    """int 0x80 has numbers of its own: what is allowed there means something else here."""
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return [ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0]


_SETTINGS: dict[str, tuple[int, ...]] = {
    "dumpable": (4, 1),
    "keep capabilities": (8, 1),
    "its secure bits": (28, 1),
    "ambient capabilities": (47, 2, 0),
    "the end of the bounding set": (24, 0),
    "its memory's layout": (35, 3, 4096),
    "a tracer": (0x59616D61, 1),
    "adopter of orphans": (36, 1),
    "the signal of its parent's death": (1, 0),
    "where its calls go": (59, 0, 0, 0, 0),
    "what its clock says": (26, 1),
    "its core's neighbours": (62, 0, 0, 0, 0),
    "merging of pages": (67, 1),
    "input and output for a disk": (57, 1),
    "large pages": (41, 1),
    "memory failures": (33, 0),
    "speculation": (53, 0, 4),
    "names of mappings": (0x53564D41, 0, 0, 0),
    "new privileges": (38, 0),
    "a filter of its own": (22, 1),
    "its timers": (29, 1),
    "endianness": (20, 0),
    "unaligned access": (6, 1),
    "tagged addresses": (55, 0),
    "vector length": (50, 16),
    "writing and executing": (65, 1),
}
_ROOT_ONLY = {"a tracer", "ambient capabilities", "the end of the bounding set",
              "its memory's layout", "its secure bits", "new privileges", "its core's neighbours",
              "input and output for a disk", "endianness", "unaligned access", "tagged addresses",
              "vector length", "where its calls go", "memory failures", "names of mappings",
              "speculation", "a filter of its own"}  # fmt: skip


def sets_for_its_process(p: Parameters) -> object:
    prctl(*p["words"])
    return [p["words"]]


for _name, _words in _SETTINGS.items():
    attack(
        variant=_name,
        extra={"words": list(_words)},
        toothless="refused for other reasons, or not of this machine"
        if _name in _ROOT_ONLY
        else "",
        together=True,
    )(sets_for_its_process)


@attack(levels=ALL, seen=(left_a_trap,))
def leaves_a_core_dump_where_it_stands(p: Parameters) -> object:
    """With all of its memory in it, in a place that is shared."""
    os.chdir(p["arena"])
    if os.fork() == 0:
        os.kill(os.getpid(), 6)
        libc.abort()
    os.wait()
    return []


@attack(levels=ALL, toothless="nobody may raise a hard limit, sandbox or not")
def allows_itself_core_dumps(p: Parameters) -> object:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 24, 1 << 24))
    return ["a core dump"]


@attack()
def opens_a_second_ring_to_the_kernel(p: Parameters) -> object:
    """io_uring makes sockets and opens files without a system call that a filter sees."""
    parameters = ctypes.create_string_buffer(120)
    ring = call("io_uring_setup", 4, parameters)
    mmap.mmap(ring, 4096, flags=mmap.MAP_SHARED, prot=3, offset=0)
    return ["a ring"]


@attack()
def keeps_a_thread_waiting_in_the_kernel_for_a_page(p: Parameters) -> object:
    """userfaultfd holds the kernel in the middle of a copy: what many exploits need."""
    held = call("userfaultfd", 1)
    return [held]


@attack(levels=ALL)
def makes_a_key_that_outlives_it(p: Parameters) -> object:
    key = call("add_key", b"user", p["marker"].encode(), b"x", 1, -4)
    return [key]


@attack()
def loads_a_program_into_the_kernel(p: Parameters) -> object:
    """The old filter of sockets is a program too."""
    one, _ = socket.socketpair()
    program = struct.pack("=HBBI", 0x06, 0, 0, 0xFFFF)
    room = ctypes.create_string_buffer(program)
    header = struct.pack("=H6xQ", 1, ctypes.addressof(room))
    one.setsockopt(1, 26, header)
    return ["a filter on a socket"]


@attack(levels=ALL, toothless="the kernel empties it, sandbox or not")
def sees_secrets_in_memory_it_was_given(p: Parameters) -> object:
    """Fresh memory is empty, whichever process had it before."""
    pages = mmap.mmap(-1, 8 << 20)
    return [at for at in range(0, len(pages), 4096) if pages[at]]
