"""The request of a worker for a lasting server inside the sandbox: plain frozen values.

A tenant never chooses what is started: code that makes a `ServerSpec` takes the command from the
operator's list. Its program's directories are shown where they lie on this machine, for programs
know their own place; nothing else of the machine is.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.errors import SpecInvalid
from sandbox.fields import Fields
from sandbox.spec import Limits, Mount, Network, check_absolute

LONGEST_ANSWER = 64 * 1024  # of sandboxd, to the one who asked for a server
KEPT_WORDS = 4 * 1024  # of what a server says on stderr
_MOST_WORDS = 256
_MOST_BYTES = 256 * 1024
_NEVER_PROGRAMS = frozenset({"proc", "sys", "dev", "tmp"})


@dataclass(frozen=True)
class ServerSpec:
    """`command` begins with an absolute path. `programs` are directories or files that are shown
    read-only, and may be executed; `mounts` are data. The environment may hold secrets.

    Of the limits those of memory, processes, files and disk hold; a server has no deadline.
    """

    organization: str
    command: tuple[str, ...]
    programs: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    directory: str = "/tmp"  # a private one
    network: Network = Network.NONE
    limits: Limits = field(default_factory=Limits)
    egress: EgressPolicy = field(default_factory=EgressPolicy, repr=False)

    def __post_init__(self) -> None:
        if not self.command or len(self.command) > _MOST_WORDS:
            raise SpecInvalid("a command has 1 to 256 words")
        for path in (self.command[0], self.directory, *self.programs):
            check_absolute(path)
        if any(path.split("/")[1] in _NEVER_PROGRAMS for path in self.programs):
            raise SpecInvalid("programs lie elsewhere")
        words = [*self.command, *(word for pair in self.environment for word in pair)]
        if any("\0" in word for word in words) or sum(map(len, words)) > _MOST_BYTES:
            raise SpecInvalid("a command or environment that no program can be given")

    def to_wire(self) -> dict[str, Any]:
        """The request to sandboxd; the allowed hosts are sent to the egress broker alone."""
        wire = asdict(self)
        del wire["egress"]
        return wire

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                organization=fields.text("organization"),
                command=tuple(fields.texts("command")),
                programs=tuple(fields.texts("programs")),
                mounts=tuple(Mount.from_wire(one) for one in fields.items("mounts")),
                environment=tuple(fields.pairs("environment")),
                directory=fields.text("directory"),
                network=fields.member("network", Network),
                limits=Limits.from_wire(fields.value("limits")),
            )
        )
