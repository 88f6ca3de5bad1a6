"""What the kernel tells about processes and about itself; and the run's own environment."""

import ctypes
import gc
import glob
import os
import re
import sys

from tests.attacks.attack import ALL, NOTHING_RUNS, SANDBOXED, STANDARD, attack
from tests.attacks.evidence import got_something, leaked_the_secret
from tests.attacks.kit import Parameters, texts_of, what_works


@attack(levels=ALL, seen=(leaked_the_secret, got_something))
def finds_a_secret_in_its_environment(p: Parameters) -> object:
    known = {"HOME", "LANG", "LD_LIBRARY_PATH", "LC_CTYPE", "PATH", "PWD", "SHLVL", "TMPDIR", "TZ",
             "OLDPWD", "_"}  # fmt: skip
    return {name: value for name, value in os.environ.items() if name not in known}


@attack(levels=ALL, seen=(leaked_the_secret,))
def finds_a_secret_in_what_it_was_started_with(p: Parameters) -> object:
    """The kernel keeps the first environment, whatever became of the variables since."""
    return texts_of(["/proc/self/environ", "/proc/self/cmdline", "/proc/thread-self/environ"])


@attack(seen=(leaked_the_secret,))
def finds_a_secret_in_the_environment_of_others(p: Parameters) -> object:
    return texts_of([*glob.glob("/proc/[0-9]*/environ"), f"/proc/{p['canary']}/environ"])


@attack(seen=(got_something,))
def lists_the_processes_of_the_machine(p: Parameters) -> object:
    """There is its own and nothing else."""
    listed = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    strangers = {
        n for n in (*range(1, 400), p["canary"], p["parent"]) if os.path.exists(f"/proc/{n}")
    }
    return sorted(
        (listed | strangers) - {os.getpid(), 1} | ({1} & listed if os.getpid() != 1 else set())
    )


@attack()
def reads_what_the_kernel_says_about_itself(p: Parameters) -> object:
    names = ("kallsyms", "kcore", "kmsg", "keys", "key-users", "timer_list", "slabinfo", "modules",
             "config.gz", "iomem", "ioports", "interrupts", "cmdline", "cpuinfo", "meminfo", "stat",
             "loadavg", "uptime", "version", "vmstat", "zoneinfo", "buddyinfo", "pagetypeinfo",
             "diskstats", "partitions", "mounts/../mtrr", "swaps", "locks", "crypto", "devices",
             "filesystems", "sched_debug", "latency_stats", "kpagecount", "kpageflags",
             "vmallocinfo", "sys/kernel/hostname", "sys/kernel/random/boot_id", "sys/kernel/ostype",
             "bus/pci/devices", "sysvipc/shm", "pressure/cpu", "fs/ext4", "driver/rtc",
             "net/../tty/drivers")  # fmt: skip
    return [name for name in names if texts_of([f"/proc/{name}"])]


@attack()
def reads_what_sysfs_says(p: Parameters) -> object:
    paths = ("/sys/kernel/vmcoreinfo", "/sys/kernel/mm/hugepages", "/sys/class/net", "/sys/block",
             "/sys/fs/cgroup", "/sys/devices/virtual/dmi/id/product_name", "/sys/kernel/debug",
             "/sys/power/state", "/sys/module", "/sys/firmware")  # fmt: skip
    return [path for path in paths if os.path.exists(path)]


@attack()
def writes_what_the_kernel_reads(p: Parameters) -> object:
    """sysrq reboots, core_pattern starts a program as root, the rest is for all."""
    names = ("sysrq-trigger", "sys/kernel/core_pattern", "sys/kernel/modprobe",
             "sys/vm/overcommit_memory", "sys/kernel/hostname", "sys/fs/binfmt_misc/register",
             "sys/kernel/randomize_va_space", "sys/net/ipv4/ip_forward",
             "sys/kernel/yama/ptrace_scope", "self/oom_score_adj", "self/coredump_filter",
             "self/clear_refs", "self/timerslack_ns", "self/loginuid")  # fmt: skip
    return what_works({name: lambda n=name: os.open(f"/proc/{n}", os.O_WRONLY) for name in names})


@attack(toothless="the control's user has no group of its own")
def raises_its_own_limits_in_its_control_group(p: Parameters) -> object:
    with open("/proc/self/cgroup") as table:
        groups = [line.strip().split(":", 2) for line in table]
    mounts = [f"/sys/fs/cgroup/{kind.removeprefix('name=')}{path}" for _, kind, path in groups]
    files = [f"{at}/{name}" for at in mounts for name in ("cgroup.procs", "memory.max", "pids.max")]
    return what_works({at: lambda a=at: os.open(a, os.O_WRONLY) for at in files})


@attack(seen=(got_something,))
def learns_numbers_of_the_host_from_its_control_group(p: Parameters) -> object:
    return [
        line
        for text in texts_of(["/proc/self/cgroup"])
        for line in text.split()
        if str(p["parent"]) in line
    ]


@attack()
def learns_where_things_lie_on_the_host(p: Parameters) -> object:
    """The mount table may name what was mounted here, but nothing else of the machine."""
    known = ("/", "/usr", "/proc", "/dev/", "/tmp", "/arena", "/gift", "/libraries", "/python",
             "/toolcrib", "/lib", "/bin", "/sbin")  # fmt: skip
    lines = [
        line.split() for text in texts_of(["/proc/self/mountinfo"]) for line in text.splitlines()
    ]
    return [
        line[4]
        for line in lines
        if len(line) > 4 and not line[4].startswith(known[1:]) and line[4] != "/"
    ]


@attack()
def reads_memory_maps_by_number(p: Parameters) -> object:
    ours = {str(os.getpid()), "self", "thread-self"}
    paths = [f"/proc/{n}/{name}" for n in (1, 2, 3, p["canary"], p["parent"])
             for name in ("maps", "mem", "stat", "status", "root", "cwd", "fd/0", "auxv", "syscall")
             if str(n) not in ours]  # fmt: skip
    return what_works({path: lambda one=path: os.open(one, os.O_RDONLY) for path in paths})


@attack()
def writes_its_own_memory_past_its_protection(p: Parameters) -> object:
    """/proc/self/mem writes where the process itself may only read."""
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value or 0)
        return [memory.name] if memory.readable() else []


@attack(levels=NOTHING_RUNS)
def has_any_proc_at_all(p: Parameters) -> object:
    return os.listdir("/proc") if os.path.isdir("/proc") else []


@attack(toothless="one may do so in a namespace of one's own only")
def maps_its_user_to_root(p: Parameters) -> object:
    return what_works(
        {
            name: lambda n=name: os.write(os.open(f"/proc/self/{n}", os.O_WRONLY), b"0 0 1\n")
            for name in ("uid_map", "gid_map")
        }
    ) + what_works({"setgroups": lambda: os.open("/proc/self/setgroups", os.O_WRONLY)})


@attack(levels=ALL, seen=(leaked_the_secret, got_something))
def searches_the_objects_of_its_interpreter(p: Parameters) -> object:
    """What the process was made from: its modules, and all they hold."""
    holders = [getattr(one, "__dict__", one) for one in gc.get_objects()]
    values = [value for one in holders if isinstance(one, dict) for value in list(one.values())]
    return [value for value in values if isinstance(value, str) and value.startswith("secret-")]


@attack(levels=ALL)
def finds_modules_of_the_other_side(p: Parameters) -> object:
    """Nothing of the product, its settings or its database may be loaded here."""
    names = ("django", "psycopg", "celery", "redis", "config", "tools", "audit", "sandbox.daemon")
    return [name for name in sys.modules if name.startswith(names)]


@attack(levels=SANDBOXED)
def reads_the_source_of_the_product(p: Parameters) -> object:
    roots = {os.path.dirname(os.path.dirname(one)) for one in sys.path if one}
    names = (
        "manage.py",
        "config/settings.py",
        "sandbox/daemon/daemon_server.py",
        "sandbox/levels.py",
    )
    return texts_of(f"{root}/{name}" for root in (*roots, *sys.path) for name in names)


@attack(levels=(STANDARD,))
def reads_network_tables_of_the_host(p: Parameters) -> object:
    """Its own network namespace has no address, no route and no socket but its own."""
    names = ("tcp", "udp", "route", "arp", "unix", "dev")
    texts = texts_of(f"/proc/self/net/{name}" for name in names)
    lines = [line for text in texts for line in text.splitlines()]
    return [line for line in lines if re.search(r"^ *\d+: [0-9A-F]+:|[@/]|^ *eth", line)]


@attack()
def reads_files_of_the_machines_configuration(p: Parameters) -> object:
    names = ("passwd", "shadow", "hosts", "resolv.conf", "machine-id", "hostname",
             "ssh/sshd_config", "ssl/private", "os-release", "fstab", "crontab", "ld.so.cache",
             "localtime")  # fmt: skip
    return texts_of(f"/etc/{name}" for name in names)


@attack()
def reads_logs_and_homes(p: Parameters) -> object:
    places = ("/root", "/home", "/var/log", "/var/lib", "/run", "/run/secrets",
              "/var/run/docker.sock", "/var/run/secrets/kubernetes.io", "/boot", "/lost+found",
              "/app", "/data")  # fmt: skip
    return [place for place in places if os.path.exists(place)]


@attack(levels=ALL)
def sees_its_parents_working_place(p: Parameters) -> object:
    """It begins in its own scratch place, not in a directory of sandboxd."""
    return [] if os.getcwd() == os.environ.get("TMPDIR", "/tmp") else [os.getcwd()]


@attack(seen=(leaked_the_secret, got_something))
def reads_shared_memory_files_of_the_host(p: Parameters) -> object:
    return texts_of(glob.glob("/dev/shm/siege*"))


@attack(levels=SANDBOXED)
def hears_the_name_of_the_host(p: Parameters) -> object:
    return [] if os.uname().nodename == "sandbox" else [os.uname().nodename]


@attack(levels=NOTHING_RUNS, toothless="in the control nothing is mounted for it")
def learns_where_a_shared_directory_lies(p: Parameters) -> object:
    """The kernel's table names the source of a mount; so at Standard it can be read."""
    names = ("mountinfo", "maps", "stat", "status", "cgroup", "cmdline")
    texts = texts_of(f"/proc/self/{name}" for name in names)
    return [text for text in texts if os.path.basename(p["base"]) in text]
