"""Facts about the machine that explain why a level is unavailable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sandbox.inside.layers import landlock
from sandbox.spec import Backend, Limits, Profile, SandboxResult

type Run = Callable[[Profile, Limits, dict[str, Any]], tuple[SandboxResult, bytes]]

_CAUSE_SWITCHES = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_NO_CONFINEMENT = {"", "unconfined"}


@dataclass(frozen=True)
class Signs:
    """What the kernel says of this process and of user namespaces.

    `switches` are the sysctls that forbid them now; `seccomp` is the mode sandboxd itself lives
    under, None where the kernel has none; `confinement` is its AppArmor profile.
    """

    switches: frozenset[str] = frozenset()
    seccomp: int | None = 0
    confinement: str = ""
    container: bool = False
    cgroups_writable: bool = True
    cgroups_v2: bool = True

    @classmethod
    def read(cls) -> Self:
        mounts = [line.split() for line in _text("/proc/self/mountinfo").splitlines()]
        groups = [words for words in mounts if words[4].startswith("/sys/fs/cgroup")]
        return cls(
            switches=frozenset(name for name, bad in _CAUSE_SWITCHES.items() if _sysctl(name) == bad),
            seccomp=_seccomp_mode(),
            confinement=_confinement(),
            container=any(Path(mark).exists() for mark in _CONTAINER_MARKS),
            cgroups_writable=any("rw" in words[5].split(",") for words in groups),
            cgroups_v2=Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        )


@dataclass(frozen=True)
class Facts:
    """`*_flaw` and the values of `backends` say why something is not to be had; None: it is.
    `weighted`: a control group gives runs less of the processors than others, else they are nice.

    `backends` names those beside `process` and `degraded`, which are tried here.
    """

    cgroup_mode: str
    weighted: bool = True
    accounts_flaw: str | None = None
    bwrap_flaw: str | None = None
    egress_flaw: str | None = None
    operations_flaw: str | None = None
    backends: Mapping[Backend, str | None] = field(default_factory=dict)
    degraded_allowed: bool = False
    landlock_abi: int = field(default_factory=landlock.abi)
    signs: Signs = field(default_factory=Signs.read)

    @property
    def counted(self) -> bool:
        """A control group counts what a run uses."""
        return self.cgroup_mode != "none"


def _sysctl(name: str) -> str:
    return _text(f"/proc/sys/{name.replace('.', '/')}").strip()


def _seccomp_mode() -> int | None:
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("Seccomp:"):
            return int(line.partition(":")[2])
    return None


def _confinement() -> str:
    label = _text("/proc/self/attr/current").strip("\0\n ").partition(" (")[0]
    return "" if label in _NO_CONFINEMENT else label


def _text(path: str) -> str:
    """Empty where it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
