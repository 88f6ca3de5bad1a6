"""Reading and writing what was not shared: by path, by link, by descriptor, by race."""

import ctypes
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path

from tests.attacks.attack import ALL, NOTHING_RUNS, ONLY_ROOT, SANDBOXED, attack
from tests.attacks.evidence import changed_the_host, got_something, leaked_the_secret, left_a_trap
from tests.attacks.kit import (
    Parameters,
    call,
    climbing,
    rule_a_namespace,
    succeeds,
    texts_of,
    what_works,
)


@attack(seen=(leaked_the_secret,))
def reads_a_file_of_the_host(p: Parameters) -> object:
    return texts_of([p["secret"]])


@attack(seen=(leaked_the_secret,))
def climbs_with_dots(p: Parameters) -> object:
    return texts_of([climbing(p["secret"]), f"{p['arena']}/{climbing(p['secret'])}", "../secret"])


@attack(seen=(leaked_the_secret,))
def climbs_out_of_a_shared_directory_by_its_descriptor(p: Parameters) -> object:
    arena = os.open(p["arena"], os.O_RDONLY)
    way = os.open("../secret", os.O_RDONLY, dir_fd=arena)
    return os.read(way, 99).decode()


@attack(seen=(leaked_the_secret,))
def climbs_step_by_step_out_of_a_shared_directory(p: Parameters) -> object:
    os.chdir(p["arena"])
    for _ in range(40):
        os.fchdir(os.open("..", os.O_RDONLY | os.O_DIRECTORY))
    return texts_of([p["secret"].lstrip("/")])


@attack(seen=(leaked_the_secret,))
def climbs_from_a_directory_that_was_moved_up_meanwhile(p: Parameters) -> object:
    os.makedirs(f"{p['arena']}/a/b/c")
    deep = os.open(f"{p['arena']}/a/b/c", os.O_RDONLY)
    os.rename(f"{p['arena']}/a/b/c", f"{p['arena']}/c")
    return os.read(os.open("../../secret", os.O_RDONLY, dir_fd=deep), 99).decode()


@attack(seen=(leaked_the_secret,))
def goes_through_the_magic_links_of_proc(p: Parameters) -> object:
    links = (
        "self/root",
        "1/root",
        "thread-self/root",
        "self/cwd/../../../../..",
        "self/task/1/root",
    )
    return texts_of(f"/proc/{link}{p['secret']}" for link in links)


@attack(seen=(leaked_the_secret,))
def goes_through_open_descriptors_upwards(p: Parameters) -> object:
    held = os.open(p["arena"], os.O_PATH)
    return texts_of([f"/proc/self/fd/{held}/../secret", f"/dev/fd/{held}/../secret"])


@attack(seen=(leaked_the_secret,))
def plants_a_link_and_follows_it(p: Parameters) -> object:
    ways = {"absolute": p["secret"], "relative": "../secret", "long": climbing(p["secret"])}
    for name, target in ways.items():
        os.symlink(target, f"{p['arena']}/{name}")
    return texts_of(f"{p['arena']}/{name}" for name in ways)


@attack(seen=(leaked_the_secret,))
def exchanges_a_directory_for_a_link_while_reading(p: Parameters) -> object:
    """A program that checks the path before using it loses this sooner or later."""
    plain, link = f"{p['arena']}/plain", f"{p['arena']}/link"
    os.mkdir(plain)
    os.symlink(p["base"], link)
    for _ in range(50):
        call("renameat2", -100, plain.encode(), -100, link.encode(), 2)
        if found := texts_of([f"{plain}/secret", f"{p['arena']}/x/../plain/secret"]):
            return found
    return []


@attack(seen=(changed_the_host, got_something))
def links_a_file_of_the_host_into_its_own_place(p: Parameters) -> object:
    name = f"{p['arena']}/mine"
    os.link(p["open"], name)
    Path(name).write_text("changed")
    return name


@attack(seen=(changed_the_host,))
def writes_a_file_that_anybody_may_write(p: Parameters) -> object:
    for path in (p["open"], f"{p['arena']}/../open", f"/proc/self/root{p['open']}"):
        with open(path, "a") as file:
            file.write("x")
    return []


@attack(seen=(changed_the_host,))
def writes_through_a_planted_link(p: Parameters) -> object:
    os.symlink(p["open"], f"{p['arena']}/link")
    return Path(f"{p['arena']}/link").write_text("changed")


@attack(seen=(changed_the_host, got_something))
def changes_what_is_shared_for_reading(p: Parameters) -> object:
    note, gift = f"{p['gift']}/note", p["gift"]
    return what_works(
        {
            "write": lambda: Path(note).write_text("changed"),
            "append": lambda: os.open(note, os.O_WRONLY | os.O_APPEND),
            "truncate": lambda: os.truncate(note, 0),
            "create": lambda: os.open(f"{gift}/new", os.O_CREAT | os.O_WRONLY),
            "directory": lambda: os.mkdir(f"{gift}/newer"),
            "link": lambda: os.symlink("/", f"{gift}/newest"),
            "touch": lambda: os.utime(note),
            "attribute": lambda: os.setxattr(note, "user.x", b"1"),
        }
    )


@attack(seen=(changed_the_host, got_something))
def moves_and_removes_what_is_shared_for_reading(p: Parameters) -> object:
    note, gift = f"{p['gift']}/note", p["gift"]
    return what_works(
        {
            "rename": lambda: os.rename(note, f"{gift}/moved"),
            "back": lambda: os.rename(f"{gift}/moved", note),
            "link": lambda: os.link(note, f"{p['arena']}/note"),
            "remove": lambda: os.unlink(f"{p['arena']}/note"),
            "empty": lambda: os.open(note, os.O_RDWR | os.O_TRUNC),
        }
    )


@attack(seen=(changed_the_host, got_something))
def opens_for_writing_again_what_it_has_for_reading(p: Parameters) -> object:
    held = os.open(f"{p['gift']}/note", os.O_RDONLY)
    again = os.open(f"/proc/self/fd/{held}", os.O_RDWR)
    return os.write(again, b"changed")


@attack(seen=(changed_the_host, got_something))
def writes_beneath_a_read_only_mapping(p: Parameters) -> object:
    """Through /proc/self/mem a process may write where its own mapping says it may not."""
    held = os.open(f"{p['gift']}/note", os.O_RDWR)
    return os.pwrite(held, b"changed", 0)


@attack()
def writes_outside_of_its_places(p: Parameters) -> object:
    mine = {"/tmp", "/dev/shm", p["arena"], "/proc", os.environ.get("TMPDIR", "/tmp")}
    found = []
    for directory in ("/", "/usr", "/usr/lib", "/etc", "/var", "/var/tmp", "/run", "/run/lock",
                      "/home", "/opt", "/srv", "/mnt", "/dev", "/python/lib", "/libraries",
                      "/toolcrib", "/toolcrib/sandbox/inside", p["base"], p["gift"]):  # fmt: skip
        if directory not in mine and succeeds(lambda at=directory: os.mkdir(f"{at}/{p['marker']}")):
            os.rmdir(f"{directory}/{p['marker']}")
            found.append(directory)
    return found


@attack(toothless="CAP_DAC_READ_SEARCH is asked for, which no ordinary user has")
def opens_by_handle_what_has_no_path_here(p: Parameters) -> object:
    """The handle of a shared directory's file system, with the number of another inode."""
    handle, mount = bytearray(136), bytearray(4)
    handle[0] = 128
    whole = (ctypes.c_char * 136).from_buffer(handle)
    number = (ctypes.c_char * 4).from_buffer(mount)
    call("name_to_handle_at", -100, p["arena"].encode(), whole, number, 0)
    arena = os.open(p["arena"], os.O_RDONLY)
    for inode in (2, 1, 128):
        handle[8:12] = inode.to_bytes(4, "little")
        call("open_by_handle_at", arena, whole, os.O_RDONLY)
    return ["an inode by number"]


@attack(levels=ALL, toothless="CAP_MKNOD is asked for, which no ordinary user has")
def makes_device_files(p: Parameters) -> object:
    kinds = {
        "memory": (stat.S_IFCHR, 1, 1),
        "kmsg": (stat.S_IFCHR, 1, 11),
        "disk": (stat.S_IFBLK, 254, 0),
    }
    return what_works(
        {
            name: lambda one=one: os.mknod(
                f"{p['arena']}/{one[1]}", one[0] | 0o666, os.makedev(*one[1:])
            )
            for name, one in kinds.items()
        }
    )


@attack(seen=(left_a_trap, got_something))
def makes_special_files_for_a_reader_to_hang_on(p: Parameters) -> object:
    at = p["arena"]
    return what_works(
        {
            "fifo": lambda: os.mkfifo(f"{at}/fifo"),
            "whiteout": lambda: os.mknod(f"{at}/white", stat.S_IFCHR | 0o666, 0),
            "socket": lambda: os.mknod(f"{at}/socket", stat.S_IFSOCK | 0o666),
            "bound": lambda: socket.socket(socket.AF_UNIX).bind(f"{at}/bound"),
        }
    )


@attack()
def opens_devices(p: Parameters) -> object:
    names = ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "ptmx", "tty", "tty0",
             "console", "vda", "sda", "nvme0n1", "loop-control", "loop0", "vsock", "vhost-vsock",
             "vhost-net", "uinput", "hpet", "rtc0", "random", "full", "mapper/control",
             "userfaultfd", "snapshot", "cpu_dma_latency", "dri/card0", "input/event0", "watchdog",
             "hwrng", "autofs")  # fmt: skip
    return what_works({name: lambda n=name: os.open(f"/dev/{n}", os.O_RDONLY) for name in names})


@attack(levels=SANDBOXED, seen=(left_a_trap, got_something))
def makes_set_id_files(p: Parameters) -> object:
    at, flags = p["arena"], os.O_CREAT | os.O_WRONLY
    made = os.open(f"{at}/made", flags, 0o755)
    os.mkdir(f"{at}/plain")
    return what_works(
        {
            "chmod": lambda: os.chmod(f"{at}/made", 0o4755),
            "fchmod": lambda: os.fchmod(made, 0o2755),
            "open": lambda: os.open(f"{at}/open", flags, 0o6755),
            "mkdir": lambda: os.mkdir(f"{at}/directory", 0o2755),
            "directory": lambda: os.chmod(f"{at}/plain", 0o2755),
            "fchmodat2": lambda: call("fchmodat2", -100, f"{at}/made".encode(), 0o4755, 0),
            "creat": lambda: call("creat", f"{at}/creat".encode(), 0o4755),
            "mknod": lambda: call("mknodat", -100, f"{at}/node".encode(), 0o104755, 0),
            "unnamed": lambda: os.open(at, os.O_TMPFILE | os.O_WRONLY, 0o4755),
        }
    )


@attack(seen=(left_a_trap, got_something))
def hides_set_id_bits_in_words_the_filter_may_not_read(p: Parameters) -> object:
    """High halves of registers, and structures in memory."""
    at, plain = p["arena"].encode(), os.O_CREAT | os.O_WRONLY
    how = struct.pack("=QQQ", plain, 0o4755, 0)
    made = os.open(at + b"/plain", plain, 0o755)
    high = 1 << 32
    return what_works(
        {
            "openat2": lambda: call("openat2", -100, at + b"/how", how, 24),
            "high chmod": lambda: call("fchmod", made, high | 0o4755),
            "high openat": lambda: call("openat", -100, at + b"/high", plain, high | 0o4755),
        }
    )


@attack(seen=(left_a_trap, got_something))
def inherits_the_group_bit_of_its_directory(p: Parameters) -> object:
    os.mkdir(f"{p['arena']}/parent")
    os.chmod(f"{p['arena']}/parent", 0o2777)
    os.mkdir(f"{p['arena']}/parent/child")
    return ["a directory with a group of its own"]


@attack(toothless="CAP_SETFCAP of the file system's own namespace is asked for")
def gives_a_file_capabilities(p: Parameters) -> object:
    made = f"{p['arena']}/able"
    Path(made).write_text("x")
    every = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
    os.setxattr(made, "security.capability", every)
    return ["a file with every capability"]


@attack()
def writes_attributes_for_a_later_reader(p: Parameters) -> object:
    made = f"{p['arena']}/labelled"
    Path(made).write_text("x")
    names = ("user.note", "system.posix_acl_access", "security.selinux", "trusted.overlay.opaque")
    return what_works({name: lambda n=name: os.setxattr(made, n, b"1") for name in names})


@attack(levels=ALL, toothless="CAP_CHOWN is asked for, which no ordinary user has")
def gives_files_away(p: Parameters) -> object:
    made = f"{p['arena']}/gift"
    Path(made).write_text("x")
    return what_works({str(to): lambda t=to: os.chown(made, t, t) for to in (0, 1, 1000)})


@attack(levels=SANDBOXED, toothless=ONLY_ROOT)
def starts_a_set_id_program_that_was_shared(p: Parameters) -> object:
    """It belongs to root and says who it runs as."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.execv(f"{p['gift']}/id", ["id", "-u"])
    os.waitpid(child, 0)
    os.close(writing)
    return os.read(reading, 9).decode().strip() == "0"


@attack(levels=NOTHING_RUNS)
def lists_the_programs_of_the_machine(p: Parameters) -> object:
    return [at for at in ("/usr/bin", "/usr/sbin", "/bin", "/usr/share") if os.path.isdir(at)]


@attack()
def lists_the_top_of_the_host(p: Parameters) -> object:
    known = {"arena", "bin", "dev", "gift", "lib", "lib32", "lib64", "libraries", "libx32", "proc",
             "python", "sbin", "tmp", "toolcrib", "usr"}  # fmt: skip
    return sorted(set(os.listdir("/")) - known)


@attack()
def mounts_over_a_shared_directory_through_a_namespace_of_its_own(p: Parameters) -> object:
    rule_a_namespace("mount")
    call("mount", b"none", p["arena"].encode(), b"tmpfs", 0, 0)
    return ["the shared directory"]


@attack()
def listens_to_changes_of_other_peoples_files(p: Parameters) -> object:
    watched = os.open("/usr", os.O_RDONLY)
    fcntl.fcntl(watched, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)
    return ["every access to /usr"]


@attack()
def takes_leases_on_shared_files(p: Parameters) -> object:
    """A process that opens a leased file for writing waits for its holder."""
    held = os.open(f"{p['arena']}/leased", os.O_CREAT | os.O_RDONLY, 0o666)
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return ["a lease"]


@attack(seen=(changed_the_host, got_something))
def marks_the_devices_that_all_share(p: Parameters) -> object:
    names = ("null", "zero", "urandom")
    return what_works({name: lambda n=name: os.utime(f"/dev/{n}") for name in names})
