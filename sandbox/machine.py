"""Messages why a level is unavailable on this machine, and what its administrator can do. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

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
DEGRADED_NEEDS_ABI = 6  # the first Landlock that keeps signals and abstract sockets apart
_CONTAINER_BACKEND = "or let sandboxd use the container backend with gVisor's runsc"
_REPORT = (
    "No tool of this level runs until its wall holds. Update the kernel and Toolcrib; if it stays,"
    " report the attacks that manage.py sandbox_doctor --json prints, with your uname -r."
)
_INSTALL_BWRAP = (
    "Install bubblewrap (Debian, Ubuntu: apt install bubblewrap), or the packages of"
    " requirements.txt once more: one of them brings it."
)
_BUILD_SECCOMP = "Use a kernel that was built with CONFIG_SECCOMP_FILTER."
_TRY_BWRAP = (
    "As the user sandboxd runs as, try: bwrap --unshare-all --ro-bind / / true – what it complains"
    " of is what this system forbids."
)
_OPEN_CONTAINER = (
    "Docker: start it with a seccomp profile that allows clone and unshare with namespaces, mount,"
    " umount2, mount_setattr, pivot_root and setns, with --security-opt systempaths=unconfined,"
    " and, where AppArmor is on, --security-opt apparmor= a profile that allows userns and mount;"
    f" {_CONTAINER_BACKEND}."
)
_STANDING_IN = (
    "DEGRADED: there are no namespaces here, and a setting allows runs without. Standard runs see"
    " this machine's host name and process numbers, have no network, and share its /tmp; Strict"
    " and Restricted tools are refused."
)
_UNCOUNTED = (
    "There are no control groups to use: memory and CPU are measured from outside and only"
    " approximately, and a Strict run may have one process only."
)
_UNWEIGHTED = (
    "Runs give way to other processes by nice alone: one with many processes still gets many shares"
    " of the processors."
)
_DELEGATE_CPU = (
    "Start manage.py up as root; with systemd, Delegate=yes and CPUWeight=50 in a unit of its own."
)
_DELEGATE = (
    "Start manage.py up as root, which gives sandboxd a tree of its own; or run it as a systemd"
    " unit with Delegate=yes."
)
_WRITABLE_CGROUPS = (
    "Let the container write its own control groups: Docker 28 --security-opt"
    " writable-cgroups=true, Podman --security-opt unmask=/sys/fs/cgroup, containerd"
    " cgroup_writable = true; all on cgroup v2."
)
_SWITCH_ON_LANDLOCK = (
    "Boot with landlock among the kernel's security modules (kernel parameter lsm=landlock,…) on"
    " Linux 5.13 or newer."
)


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
            switches=frozenset(
                name for name, bad in _CAUSE_SWITCHES.items() if _sysctl(name) == bad
            ),
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


class Remedy(NamedTuple):
    reason: str
    fix: str = ""


class Trouble(NamedTuple):
    """What went wrong in the trials: why no sandbox with namespaces could be made, what got through
    one, by level, and whether the degraded backend had to replace it."""

    no_namespaces: str = ""
    leaks: Iterable[str] = ()
    stands_in: bool = False


def remedies(facts: Facts, trouble: Trouble) -> list[Remedy]:
    """What lowers the ceiling first, then what lacks beside it."""
    return [
        *(_of_launch(facts, trouble.no_namespaces) if trouble.no_namespaces else ()),
        *(Remedy(leak, _REPORT) for leak in trouble.leaks),
        *_of_degraded(facts, trouble),
        *_of_cgroups(facts),
        *_of_the_rest(facts),
    ]


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


def _of_launch(facts: Facts, words: str) -> Iterator[Remedy]:
    signs, known = facts.signs, False
    if facts.bwrap_flaw is not None:
        yield Remedy(f"There is no bubblewrap: {facts.bwrap_flaw}.", _INSTALL_BWRAP)
        return
    if signs.seccomp is None:
        yield Remedy("This kernel has no seccomp.", _BUILD_SECCOMP)
        return
    for name, remedy in _SWITCHES.items():
        if name in signs.switches:
            known = True
            yield remedy
    culprits = _culprits(signs)
    if culprits or signs.container:
        who = f"The container ({', '.join(culprits)})" if culprits else "This container"
        yield Remedy(f"{who} forbids namespaces or mounts: {words}.", _OPEN_CONTAINER)
    elif not known:
        yield Remedy(f"No wall with namespaces can be made here: {words}.", _TRY_BWRAP)


def _culprits(signs: Signs) -> list[str]:
    found = ["its filter of system calls"] if signs.seccomp else []
    return [*found, *([f"its AppArmor profile {signs.confinement}"] if signs.confinement else [])]


def _of_degraded(facts: Facts, trouble: Trouble) -> Iterator[Remedy]:
    if trouble.stands_in:
        yield Remedy(_STANDING_IN)
    elif facts.degraded_allowed and facts.landlock_abi < DEGRADED_NEEDS_ABI:
        yield Remedy(
            "The degraded backend is allowed, but needs Landlock ABI"
            f" {DEGRADED_NEEDS_ABI} (Linux 6.12), and this kernel has {facts.landlock_abi}."
        )


def _of_cgroups(facts: Facts) -> Iterator[Remedy]:
    if facts.counted:
        if not facts.weighted:
            yield Remedy(_UNWEIGHTED, _DELEGATE_CPU)
        return
    yield Remedy(_UNCOUNTED, _DELEGATE if facts.signs.cgroups_writable else _WRITABLE_CGROUPS)


def _of_the_rest(facts: Facts) -> Iterator[Remedy]:
    if facts.landlock_abi == 0:
        yield Remedy("This kernel has no Landlock, the second lock on files.", _SWITCH_ON_LANDLOCK)
    if facts.accounts_flaw is not None:
        yield Remedy(
            "Runs of all organizations run as one user, so that one organization can use up the"
            f" pipes, descriptors and timers of another's runs: {facts.accounts_flaw}.",
            "Start manage.py up as root, on Linux 5.12 or newer.",
        )
    if facts.operations_flaw is not None:
        yield Remedy(f"File system operations are not counted: {facts.operations_flaw}.")
    if facts.egress_flaw is not None:
        yield Remedy(
            f"No run has a network: the egress broker is not there: {facts.egress_flaw}.",
            "See log/egress.log in the data directory; manage.py up starts the broker.",
        )


_SWITCHES = {
    "user.max_user_namespaces": Remedy(
        "The sysctl user.max_user_namespaces is 0: nobody may make user namespaces.",
        "sysctl -w user.max_user_namespaces=10000, and the same in /etc/sysctl.d.",
    ),
    "kernel.unprivileged_userns_clone": Remedy(
        "The sysctl kernel.unprivileged_userns_clone is 0: only root may make user namespaces.",
        "sysctl -w kernel.unprivileged_userns_clone=1, and the same in /etc/sysctl.d.",
    ),
    "kernel.apparmor_restrict_unprivileged_userns": Remedy(
        "AppArmor gives user namespaces only to programs whose profile allows them"
        " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1).",
        "Give bwrap a profile with the rule userns in /etc/apparmor.d and load it with"
        " apparmor_parser -r; docs/operations.md has one.",
    ),
}
