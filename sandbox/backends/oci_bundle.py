"""The bundle of one container: a root directory of nothing but mount points, and config.json.

What a run sees is what `daemon/runs/launch.py` shows it; an OCI runtime makes the namespaces.
"""

import itertools
import json
import os
import platform
import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from sandbox.backends.runtimes import OciRuntime, Process, ProcessStreams, Started
from sandbox.daemon.daemon_log import log
from sandbox.daemon.runs import scratch
from sandbox.daemon.runs.slot import SlotDisk
from sandbox.daemon.subprocesses import wait_child
from sandbox.inside.filter import call_rules
from sandbox.inside.filter.arguments import YES, ArgumentCase, Check, Rule
from sandbox.inside.filter.call_rules import FilterRequirements
from sandbox.levels import LevelLayers, layers_of
from sandbox.spec import Profile

_MACHINES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_START_CALLS = FilterRequirements("usual", programs=True, new_code=True, sessions=True)
# How the guest shuts itself in: Landlock, its own filter, and the switches of prctl.
_OF_THE_GUEST = (
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "prctl",
    "seccomp",
)
_ERROR = 0xFFFF
type Line = dict[str, Any]
_PYTHON, _CODE, _LIBRARIES = "/python", "/toolcrib", "/libraries"
_SETUP = f"{_CODE}/setup.json"
_TOP_LEVEL_LIBRARIES = ("lib", "lib32", "lib64")
_TOP_LEVEL = ("bin", "sbin", *_TOP_LEVEL_LIBRARIES)
_NAMESPACES = ("user", "pid", "network", "ipc", "uts", "mount", "cgroup")
_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_RLIMITS = {"CORE": 0, "NOFILE": 256, "MEMLOCK": 65536, "MSGQUEUE": 0}
_SHARED_MEMORY_BYTES = 8 << 20
_DEVICES = ("null", "zero", "urandom")
_HIDDEN = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")
_FIXED = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_READ_ONLY = ("ro", "nosuid", "nodev")
_PRIVATE = ("nosuid", "nodev", "noexec")
_START = (
    f"import sys; sys.path.insert(0, {_CODE!r}); sys.dont_write_bytecode = True; "
    f"from sandbox.inside import guest; guest.main({_SETUP!r})"
)
_RUNTIME = "runtime"
_bundle_numbers = itertools.count(1)


def seccomp_profile(machine: str) -> Line:
    """Raises KeyError for a machine without a table: there is no run without a filter."""
    named = call_rules.rules(_START_CALLS) | dict.fromkeys(_OF_THE_GUEST, Rule(YES))
    free = sorted(name for name, rule in named.items() if rule.otherwise == YES)
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": Rule().otherwise & _ERROR,
        "architectures": [_MACHINES[machine]],
        "syscalls": [
            _allow(free),
            *(line for name in sorted({*named} - {*free}) for line in _lines(name, named[name])),
        ],
    }


class BindMount(NamedTuple):
    """A path of this machine and where a run sees it."""

    source: str
    target: str
    options: tuple[str, ...] = _READ_ONLY


def write_bundle(bundle: Path, profile: Profile, disk: SlotDisk, own_kernel: bool) -> None:
    """Everything the runtime needs, in a directory of its own.

    A kernel of its own takes a whole tree as one mount, so no option of it holds for a part only;
    and it is started by the root of a namespace whose only user this one is.
    """
    layers = layers_of(profile.level, profile.backend)
    shown = _bind_mounts(profile, layers)
    root = bundle / "rootfs"
    _make_places(root, shown, layers)
    (root / _SETUP[1:]).write_text(json.dumps(_setup(profile, layers)))
    binds = [_bind(one, recursive=not own_kernel) for one in shown]
    owner = (0, 0) if own_kernel else (os.geteuid(), os.getegid())
    config = _config([*_kernel_mounts(layers, disk), *binds], *owner)
    (bundle / "config.json").write_text(json.dumps(config))


def writable_places(profile: Profile) -> frozenset[str]:
    """The only mounts that may be written to, and the runtime's own /proc and /dev."""
    layers = layers_of(profile.level, profile.backend)
    private = {target for target, _ in _private(layers, SlotDisk(0, 0))}
    return frozenset(private | {mount.target for mount in profile.mounts if mount.writable})


class Bundle:
    """Named after the process that made it, so that a later one knows whether it is left over."""

    def __init__(self, path: Path, runtime: OciRuntime) -> None:
        self.path, self.runtime = path, runtime
        self._process: Process | None = None

    @classmethod
    def make(cls, root: str, runtime: OciRuntime) -> "Bundle":
        path = Path(root, f"toolcrib-{os.getpid()}-{next(_bundle_numbers)}")
        path.mkdir(mode=0o700)
        (path / _RUNTIME).write_text(runtime.name)
        return cls(path, runtime)

    def run(self, streams: ProcessStreams) -> Started:
        """Raises RuntimeFailed, OSError."""
        started = self.runtime.run(self.path, streams)
        self._process = started.process
        return started

    def end(self) -> None:
        """The process of ours that stays, with all that it started."""
        if self._process is not None:
            self._process.kill()
            wait_child(self._process)
            self._process = None

    def remove(self) -> None:
        """The container, should it still be there, and the directory with all that is in it."""
        self.end()
        self.runtime.delete(self.path)
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            log("bundle_left_behind", reason=str(error))
            return
        try:
            scratch.remove(directory)
        finally:
            os.close(directory)


def orphaned_bundles(root: str, runtimes: list[OciRuntime]) -> list[Bundle]:
    """Bundles whose maker has ended; those of a runtime that is no longer there stay."""
    known = {runtime.name: runtime for runtime in runtimes}
    found = []
    for path in Path(root).iterdir():
        runtime = known.get(_text(path / _RUNTIME))
        if runtime is not None and not _is_alive(path.name):
            found.append(Bundle(path, runtime))
    return found


def _lines(name: str, rule: Rule) -> list[Line]:
    """What is refused only sometimes is allowed here; the guest's own filter knows better."""
    allowed = [line for case in rule.cases if case.answer == YES for line in _cases(name, case)]
    if allowed or rule.otherwise == Rule().otherwise:
        return allowed
    error = rule.otherwise & _ERROR
    return [{"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": error}]


def _cases(name: str, case: ArgumentCase) -> list[Line]:
    """A line for each combination of values: all conditions of a line must hold."""
    choices = [[_equal(check, value) for value in check.values] for check in case.checks]
    return [_allow([name], list(conditions)) for conditions in product(*choices)]


def _equal(check: Check, value: int) -> Line:
    masked = {"value": check.mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"index": check.argument, **masked}


def _allow(names: list[str], conditions: list[Line] | None = None) -> Line:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": conditions or []}


def _bind_mounts(profile: Profile, layers: LevelLayers) -> list[BindMount]:
    inside = Path(__file__).resolve().parent.parent / "inside"
    shown = [*_system(layers), BindMount(str(inside), f"{_CODE}/sandbox/inside")]
    shown += _interpreter_places(layers)
    shown += [BindMount(one, f"{_LIBRARIES}/{os.path.basename(one)}") for one in profile.libraries]
    for mount in profile.mounts:
        access = () if mount.writable else ("ro",)
        shown.append(BindMount(mount.source, mount.target, (*access, *_PRIVATE)))
    return shown


def _system(layers: LevelLayers) -> list[BindMount]:
    """Without the whole of /usr: what the interpreter is linked with, and no program."""
    names = _TOP_LEVEL if layers.whole_usr else _TOP_LEVEL_LIBRARIES
    usr = ["/usr"] if layers.whole_usr else [f"/usr/{name}" for name in names]
    real = [f"/{name}" for name in names if not os.path.islink(f"/{name}")]
    return [BindMount(path, path) for path in (*usr, *real) if os.path.isdir(path)]


def _interpreter_places(layers: LevelLayers) -> list[BindMount]:
    if _is_system_interpreter():
        program = _interpreter()
        return [] if layers.whole_usr else [BindMount(os.path.realpath(program), program)]
    if layers.whole_usr:
        return [BindMount(sys.base_prefix, _PYTHON)]
    program = f"{sys.base_prefix}/bin/{os.path.basename(_interpreter())}"
    library = BindMount(f"{sys.base_prefix}/lib", f"{_PYTHON}/lib")
    return [BindMount(os.path.realpath(program), _interpreter()), library]


def _make_places(root: Path, shown: list[BindMount], layers: LevelLayers) -> None:
    """Mount points, and the links of /; nothing else is in the root directory."""
    for name in ("tmp", "dev", "proc", _LIBRARIES[1:], _CODE[1:]):
        (root / name).mkdir(parents=True)
    for one in shown:
        place = root / one.target[1:]
        if os.path.isdir(one.source):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    for name in _TOP_LEVEL if layers.whole_usr else _TOP_LEVEL_LIBRARIES:
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(f"usr/{name}")


def _setup(profile: Profile, layers: LevelLayers) -> dict[str, Any]:
    """The configuration of `inside/guest.py`; it is in the container, where the run may read it."""
    shared = ["/dev/shm"] if layers.shared_memory else []
    places = sorted({f"/{target.split('/')[1]}" for target in _readable(profile)})
    devices = [f"/dev/{name}" for name in _DEVICES]
    return {
        "layers": layers.to_wire(),
        "preload": profile.preload,
        "libraries": [_LIBRARIES],
        "landlock": {
            "readable": [*places, *devices, *(["/proc"] if layers.proc else [])],
            "executable": ["/usr", _LIBRARIES, *_own_interpreter()] if layers.programs else [],
            "writable": ["/tmp", *shared, *(m.target for m in profile.mounts if m.writable)],
        },
    }


def _readable(profile: Profile) -> list[str]:
    return ["/usr", _CODE, _LIBRARIES, *_own_interpreter(), *(m.target for m in profile.mounts)]


def _config(mounts: list[dict[str, Any]], uid: int, gid: int) -> dict[str, Any]:
    mapping = {"containerID": 0, "size": 1}
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": "rootfs", "readonly": True},
        "process": _process(),
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": name} for name in _NAMESPACES],
            "uidMappings": [mapping | {"hostID": uid}],
            "gidMappings": [mapping | {"hostID": gid}],
            "maskedPaths": [*(f"/proc/{name}" for name in _HIDDEN), "/sys/firmware"],
            "readonlyPaths": [f"/proc/{name}" for name in _FIXED],
            "seccomp": seccomp_profile(platform.machine()),
        },
    }


def _process() -> dict[str, Any]:
    """User 0 of a namespace without other users, without a single capability."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    if not _is_system_interpreter():
        environment["LD_LIBRARY_PATH"] = f"{_PYTHON}/lib"
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "cwd": "/tmp",
        "args": [_interpreter(), "-I", "-S", "-c", _START],
        "env": [f"{name}={value}" for name, value in environment.items()],
        "capabilities": {name: [] for name in _CAPABILITY_SETS},
        "noNewPrivileges": True,
        "rlimits": [
            {"type": f"RLIMIT_{name}", "hard": value, "soft": value}
            for name, value in _RLIMITS.items()
        ],
    }


def _kernel_mounts(layers: LevelLayers, disk: SlotDisk) -> list[dict[str, Any]]:
    """The runtimes want /proc even where a run may not see it; Landlock is what hides it then."""
    processes = [*_PRIVATE, "hidepid=2", "subset=pid"]
    devices = ["nosuid", "noexec", "strictatime", "mode=755", "size=64k"]
    mounts = [_mount("/proc", "proc", processes), _mount("/dev", "tmpfs", devices)]
    for target, size in _private(layers, disk):
        limits = [f"size={size}", f"nr_inodes={disk.inodes}", "mode=700"]
        mounts.append(_mount(target, "tmpfs", [*_PRIVATE, *limits]))
    return mounts


def _private(layers: LevelLayers, disk: SlotDisk) -> list[tuple[str, int]]:
    """What lies in memory and is the run's own, with its size in bytes."""
    shared = [("/dev/shm", _SHARED_MEMORY_BYTES)] if layers.shared_memory else []
    return [("/tmp", disk.size), *shared]


def _mount(target: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": options}


def _bind(one: BindMount, recursive: bool) -> dict[str, Any]:
    below = [f"r{option}" for option in one.options] if recursive else []
    return _mount(one.target, "bind", ["rbind", *one.options, *below]) | {"source": one.source}


def _is_system_interpreter() -> bool:
    return sys.base_prefix == "/usr"


def _own_interpreter() -> list[str]:
    return [] if _is_system_interpreter() else [_PYTHON]


def _interpreter() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{'/usr' if _is_system_interpreter() else _PYTHON}/bin/{name}"


def _is_alive(name: str) -> bool:
    owner = int(name.split("-")[1])
    if owner == os.getpid():
        return False
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
