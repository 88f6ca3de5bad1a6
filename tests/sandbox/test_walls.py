"""What a run can see and touch. Where a wall has two layers, each test says which one it means."""

import os
import platform

import pytest

from sandbox.inside.filter.syscalls import MACHINES

TRY = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def main(p):
    out = {}
    for name, number, arguments in p["calls"]:
        ctypes.set_errno(0)
        libc.syscall.restype = ctypes.c_long
        got = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
        out[name] = errno.errorcode[ctypes.get_errno()] if got == -1 else "done"
    return out
"""

# name → (x86_64, aarch64, arguments); the first group would succeed without the filter.
REFUSED = {
    "unshare": (272, 97, [0x10000000]),
    "clone": (56, 220, [0x10000000 | 17, 0, 0, 0, 0]),
    "ptrace": (101, 117, [0, 0, 0, 0]),
    "keyctl": (250, 219, [0, -3, 1]),
    "io_uring_setup": (425, 425, [4, 0]),
    "memfd_create": (319, 279, [0, 0]),
    "userfaultfd": (323, 282, [1]),
    "inotify_init1": (294, 26, [0]),
    "socket_vsock": (41, 198, [40, 1, 0]),
    "socket_netlink": (41, 198, [16, 3, 0]),
    "socket_unix": (41, 198, [1, 1, 0]),
    "socket_inet": (41, 198, [2, 1, 0]),
    "socketpair_tipc": (53, 199, [30, 1, 0, 0]),
    "ioctl_tiocsti": (16, 29, [0, 0x5412, 0]),
    "prctl_dumpable": (157, 167, [4, 1, 0, 0, 0]),
    "personality": (135, 92, [0]),
    "mount": (165, 40, [0, 0, 0, 0, 0]),
    "umount2": (166, 39, [0, 0]),
    "setns": (308, 268, [0, 0]),
    "bpf": (321, 280, [0, 0, 0]),
    "perf_event_open": (298, 241, [0, 0, -1, -1, 0]),
    "pivot_root": (155, 41, [0, 0]),
    "chroot": (161, 51, [0]),
    "process_vm_readv": (310, 270, [1, 0, 0, 0, 0, 0]),
    "open_by_handle_at": (304, 265, [0, 0, 0]),
    "kexec_load": (246, 104, [0, 0, 0, 0]),
    "init_module": (175, 105, [0, 0, 0]),
    "setuid": (105, 146, [0]),
    "mount_setattr": (442, 442, [0, 0, 0, 0, 0]),
    "fsopen": (430, 430, [0, 0]),
    "pidfd_getfd": (438, 438, [0, 0, 0]),
    "seccomp": (317, 277, [1, 0, 0]),
}


def test_the_kernel_calls_an_attacker_wants_are_refused(run):
    column = MACHINES.index(platform.machine())
    calls = [[name, numbers[column], numbers[2]] for name, numbers in REFUSED.items()]
    answers = run(TRY, {"calls": calls}).output
    assert {name: answer for name, answer in answers.items() if answer != "EPERM"} == {}


def test_clone3_looks_like_an_old_kernel_so_that_libc_falls_back(run):
    assert run(TRY, {"calls": [["clone3", 435, [0, 0]]]}).output == {"clone3": "ENOSYS"}


def test_there_is_no_network_at_all(run):
    source = "import socket\ndef main(p):\n    s = socket.socket(p['family'], p['kind'])\n"
    source += "    s.connect(tuple(p['to']) if type(p['to']) is list else p['to'])"
    for family, to in ((2, ["1.1.1.1", 53]), (10, ["::1", 53]), (40, [2, 1024]), (1, "\0dbus")):
        for kind in (1, 2):
            result = run(source, {"family": family, "kind": kind, "to": to})
            assert "Operation not permitted" in result.error_message


def test_the_network_namespace_has_a_loopback_that_is_down_and_nothing_else(run):
    """The layer behind the filter: shown by the kernel's own tables."""
    source = "def main(p):\n    return [open(f'/proc/self/net/{n}').read().split('\\n')[2:-1]"
    routes, devices = run(source + " for n in ('route', 'dev')]").output
    assert routes == [] and len(devices) == 1 and "lo:" in devices[0]
    assert run("import os\ndef main(p):\n    return os.readlink('/proc/self/ns/net')").output != (
        os.readlink("/proc/self/ns/net")
    )


def test_the_environment_is_built_from_nothing(run):
    names = run("import os\ndef main(p):\n    return sorted(os.environ)").output
    allowed = {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "TMPDIR", "TZ"}
    assert set(names) <= allowed


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/etc/shadow", "/root", "/home", "/var", "/run", "/sys", "/work", "/opt",
     "/proc/1/root/etc/passwd", "/proc/self/cwd/../etc/passwd", "/proc/sys", "/proc/kcore",
     "/proc/cpuinfo", "/dev/kmsg", "/dev/mem", "/dev/vda", __file__],
)  # fmt: skip
def test_files_of_the_host_are_not_there(run, path):
    result = run("import os\ndef main(p):\n    os.stat(p['path'])", {"path": path})
    assert "FileNotFoundError" in result.error_message


def test_the_tree_below_the_root_is_exactly_what_was_put_there(run):
    names = set(run("import os\ndef main(p):\n    return os.listdir('/')").output)
    links = {"bin", "sbin", "lib", "lib32", "lib64"}
    assert names - links == {"dev", "libraries", "proc", "python", "tmp", "usr"}
    assert run("import os\ndef main(p):\n    return os.listdir('/tmp')").output == []


def test_nothing_outside_tmp_can_be_written(run):
    source = "import os\ndef main(p):\n    done = []\n    for where in p['paths']:\n        try:\n"
    source += "            open(where + '/x', 'w').close()\n            done.append(where)\n"
    source += "        except OSError: continue\n    return done"
    paths = ["/", "/usr", "/usr/bin", "/python/lib", "/libraries", "/dev", "/proc",
             "/tmp", "/dev/shm"]  # fmt: skip
    assert run(source, {"paths": paths}).output == ["/tmp", "/dev/shm"]


def test_the_root_is_mounted_read_only_whatever_landlock_says(run):
    source = "def main(p):\n    return [l.split()[4:6] for l in open('/proc/self/mountinfo')]"
    flags = {point: options.split(",") for point, options in run(source).output}
    for point in ("/", "/usr", "/python"):
        assert point not in flags or "ro" in flags[point], point
    assert {"nosuid", "nodev"} <= set(flags["/tmp"])


def test_programs_dropped_into_tmp_do_not_start(run):
    source = (
        "import os, shutil, subprocess\ndef main(p):\n    shutil.copy('/usr/bin/true', '/tmp/t')\n"
    )
    source += "    os.chmod('/tmp/t', 0o755)\n    subprocess.run(['/tmp/t'])"
    assert "PermissionError" in run(source).error_message
    source = (
        "import subprocess\ndef main(p):\n    return subprocess.run(['/usr/bin/true']).returncode"
    )
    assert run(source).output == 0


def test_only_its_own_processes_are_visible(run):
    source = "import os, subprocess\ndef main(p):\n    subprocess.Popen(['/bin/sleep', '60'])\n"
    source += "    return [os.getpid(), sorted(n for n in os.listdir('/proc') if n.isdigit())]"
    assert run(source).output == [1, ["1", "2"]]


def test_no_descriptor_but_the_streams_and_the_channel_is_open(run):
    source = "import os\ndef main(p):\n    return {n: os.readlink(f'/proc/self/fd/{n}')"
    found = run(source + " for n in os.listdir('/proc/self/fd') if int(n) < 4}").output
    assert found["0"] == "/dev/null" and found["3"].startswith("socket:")
    listed = run("import os\ndef main(p):\n    return len(os.listdir('/proc/self/fd'))").output
    assert listed == 5  # the fifth is the listing itself


def test_no_capability_is_left_and_none_can_come_back(run):
    source = "def main(p):\n    lines = open('/proc/self/status').read().splitlines()\n"
    status = run(
        source + "    return dict(line.split(':\\t', 1) for line in lines if ':\\t' in line)"
    ).output
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert (status["NoNewPrivs"], status["Seccomp"], status["Seccomp_filters"]) == ("1", "2", "2")
    assert status["Uid"].split() == ["65534"] * 4


def test_its_processes_belong_to_an_unprivileged_user_of_the_host(daemon):
    assert daemon.facts["ready"]["uid"] != 0


def test_files_cannot_be_made_set_id(run):
    source = "import os\ndef main(p):\n    open('/tmp/x', 'w').close()\n    done = []\n"
    source += "    for name, call in (('chmod', lambda: os.chmod('/tmp/x', p['mode'])),\n"
    source += "        ('fchmod', lambda: os.fchmod(os.open('/tmp/x', os.O_RDWR), p['mode'])),\n"
    source += "        ('open', lambda: os.open('/tmp/y', os.O_CREAT, p['mode'])),\n"
    source += "        ('mkdir', lambda: os.mkdir('/tmp/z', p['mode']))):\n"
    source += "        try:\n            call()\n            done.append(name)\n"
    source += "        except PermissionError: continue\n    return done"
    assert run(source, {"mode": 0o4755}).output == []
    assert run(source, {"mode": 0o2755}).output == []
    assert run(source, {"mode": 0o755}).output == ["chmod", "fchmod", "open", "mkdir"]


def test_no_core_is_dumped_and_the_process_cannot_be_read(run):
    source = "import resource, ctypes\ndef main(p):\n    return [list(resource.getrlimit(4)),"
    assert run(source + " ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]").output == [[0, 0], 0]


def test_limits_cannot_be_raised_again(run):
    source = (
        "import resource\ndef main(p):\n    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]\n"
    )
    source += "    resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1, hard + 1))"
    assert "ValueError" in run(source).error_message


def test_ordinary_python_still_works(run):
    source = "import asyncio, multiprocessing, threading, subprocess, tempfile, sqlite3, hashlib\n"
    source += "async def go():\n    await asyncio.sleep(0)\n    return 5\n"
    source += "def main(p):\n    with tempfile.TemporaryDirectory() as d: pass\n"
    source += "    t = threading.Thread(target=print, args=('x',))\n    t.start()\n    t.join()\n"
    source += (
        "    lock = multiprocessing.Lock()\n    context = multiprocessing.get_context('fork')\n"
    )
    source += "    with context.Pool(2) as pool: squares = pool.map(abs, [-1, -2])\n"
    source += "    one = sqlite3.connect(':memory:').execute('select 7').fetchone()\n"
    source += "    said = subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout\n"
    source += "    return [asyncio.run(go()), squares, one, said]"
    assert run(source).output == [5, [1, 2], [7], "hi\n"]
