"""The request for a run and its result: plain frozen values that cross the socket as JSON."""

import hashlib
import json
import math
import re
import sys
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from sandbox.egress.rules.egress_policy import EgressAttempt, EgressPolicy
from sandbox.errors import SpecInvalid
from sandbox.strict_fields import Fields

MIB = 1024 * 1024
_NEVER_SHARED = frozenset({"proc", "sys", "dev"})
_OUR_PLACES = frozenset(
    {"bin", "dev", "lib", "lib32", "lib64", "libraries", "proc"}
    | {"python", "sbin", "sys", "tmp", "toolcrib", "usr"}
)
_MODULE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}\Z")
type Program = CodeSource | Preloaded
LONGEST_ANSWER = 64 * 1024  # of sandboxd, to the one who asked for a server
KEPT_WORDS = 4 * 1024  # of what a server says on stderr
_MOST_WORDS = 256
_MOST_BYTES = 256 * 1024
_NEVER_PROGRAMS = frozenset({"proc", "sys", "dev", "tmp"})


class IsolationLevel(StrEnum):
    NONE = "None"
    STANDARD = "Standard"
    STRICT = "Strict"
    RESTRICTED = "Restricted"


class Backend(StrEnum):
    """The isolation levels between a tool and this machine; see `levels.py` and `backends/`."""

    PROCESS = "process"
    DEGRADED = "degraded"
    CONTAINER = "container"
    MONTY = "monty"


class Network(StrEnum):
    """Which connections to the egress broker a run has; `proxy` has the helper's as well."""

    NONE = "none"
    HELPER = "helper"
    PROXY = "proxy"


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"


class RunOutcome(StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    SANDBOX_ERROR = "SANDBOX_ERROR"


@dataclass(frozen=True)
class Limits:
    """`output_bytes` caps the result and each of the two streams; text kept of a stream is less.

    A level may have fewer processes than are asked for, never more. `shared_bytes` and
    `shared_files` are what a shared path may contain that the run can write to, including files of
    others.
    """

    wall_s: float = 30
    cpu_s: float = 300
    memory_bytes: int = 256 * MIB
    processes: int = 64
    output_bytes: int = 10 * MIB
    tmp_bytes: int = 16 * MIB
    tmp_inodes: int = 1024
    open_files: int = 256
    filesystem_operations: int = 100_000
    shared_bytes: int = 1024 * MIB
    shared_files: int = 10_000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise SpecInvalid(f"{name} must be a positive number")

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                wall_s=fields.number("wall_s"),
                cpu_s=fields.number("cpu_s"),
                memory_bytes=fields.integer("memory_bytes"),
                processes=fields.integer("processes"),
                output_bytes=fields.integer("output_bytes"),
                tmp_bytes=fields.integer("tmp_bytes"),
                tmp_inodes=fields.integer("tmp_inodes"),
                open_files=fields.integer("open_files"),
                filesystem_operations=fields.integer("filesystem_operations"),
                shared_bytes=fields.integer("shared_bytes"),
                shared_files=fields.integer("shared_files"),
            )
        )


@dataclass(frozen=True)
class Mount:
    """`source` on this machine appears at `target` inside; read-only unless said otherwise. `make`:
    a directory of sandboxd's own, which is made where it is missing."""

    source: str
    target: str
    writable: bool = False
    make: bool = False

    def __post_init__(self) -> None:
        check_absolute(self.source)
        check_absolute(self.target)
        _check_not_below(self.source, _NEVER_SHARED)
        _check_not_below(self.target, _OUR_PLACES)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        source, target = fields.text("source"), fields.text("target")
        return fields.done(cls(source, target, fields.flag("writable"), fields.flag("make")))


@dataclass(frozen=True)
class Profile:
    """All that a template process depends on. Runs with equal profiles may share a template.

    `libraries` are absolute paths of single installed packages or modules; `preload` are trusted
    modules as (name, source), imported once in the template.
    """

    level: IsolationLevel
    mounts: tuple[Mount, ...] = ()
    libraries: tuple[str, ...] = ()
    preload: tuple[tuple[str, str], ...] = ()
    backend: Backend = Backend.PROCESS
    network: Network = Network.NONE
    language: Language = Language.PYTHON

    def __post_init__(self) -> None:
        for path in self.libraries:
            check_absolute(path)
        for name, _ in self.preload:
            check_module_name(name)

    @cached_property
    def digest(self) -> str:
        """Stable across processes and machines: SHA-256 over the sorted JSON."""
        text = json.dumps(self.to_wire(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def plain(self) -> bool:
        """It contains nothing of one organization: its template is the same for all."""
        return not (self.mounts or self.libraries or self.preload)

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                level=fields.member("level", IsolationLevel),
                mounts=tuple(Mount.from_wire(mount) for mount in fields.items("mounts")),
                libraries=tuple(fields.texts("libraries")),
                preload=tuple(fields.pairs("preload")),
                backend=fields.member("backend", Backend),
                network=fields.member("network", Network),
                language=fields.member("language", Language),
            )
        )


@dataclass(frozen=True)
class CodeSource:
    """Code of a custom tool: compiled and run only in the single-use process."""

    source: str
    entry_point: str = "main"

    def to_wire(self) -> dict[str, Any]:
        return {"source": self.source, "entry_point": self.entry_point}


@dataclass(frozen=True)
class Preloaded:
    """A module named in the profile's `preload`."""

    name: str
    entry_point: str = "main"

    def to_wire(self) -> dict[str, Any]:
        return {"name": self.name, "entry_point": self.entry_point}


@dataclass(frozen=True)
class SandboxSpec:
    """`egress` says what can be reached through `profile.network`; without it, nothing."""

    organization: str
    profile: Profile
    limits: Limits
    program: Program
    parameters: dict[str, Any]
    egress: EgressPolicy = field(default_factory=EgressPolicy)


@dataclass(frozen=True)
class ResourceUsage:
    """`approximate` says that no memory cgroup was there to count; None means not counted."""

    peak_memory_bytes: int = 0
    cpu_time_ms: float = 0
    wall_ms: float = 0
    filesystem_operations: int | None = None
    network_requests: int | None = 0
    sandbox_start_ms: float = 0
    approximate: bool = True

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                peak_memory_bytes=fields.integer("peak_memory_bytes"),
                cpu_time_ms=fields.number("cpu_time_ms"),
                wall_ms=fields.number("wall_ms"),
                filesystem_operations=fields.optional_integer("filesystem_operations"),
                network_requests=fields.optional_integer("network_requests"),
                sandbox_start_ms=fields.number("sandbox_start_ms"),
                approximate=fields.flag("approximate"),
            )
        )


@dataclass(frozen=True)
class SandboxResult:
    """`output` is the JSON value the entry point returned; the error fields are None on success."""

    outcome: RunOutcome
    output: Any = None
    error_code: str | None = None
    error_message: str | None = None
    stdout: str = ""
    stderr: str = ""
    usage: ResourceUsage = field(default_factory=ResourceUsage)
    sandbox_id: str = ""
    network: tuple[EgressAttempt, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                outcome=fields.member("outcome", RunOutcome),
                output=fields.value("output"),
                error_code=fields.optional_text("error_code"),
                error_message=fields.optional_text("error_message"),
                stdout=fields.text("stdout"),
                stderr=fields.text("stderr"),
                usage=ResourceUsage.from_wire(fields.value("usage")),
                sandbox_id=fields.text("sandbox_id"),
                network=tuple(EgressAttempt.from_wire(one) for one in fields.items("network")),
            )
        )


def check_absolute(path: str) -> None:
    """Raise unless the path is absolute and says exactly what it means."""
    first, *parts = path.split("/")
    if first or not parts or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise SpecInvalid(f"not a plain absolute path: {path!r}")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in path):
        raise SpecInvalid("a path is no text")


def check_module_name(name: str) -> None:
    """A preloaded module may not take the place of a module of the standard library."""
    taken = name in {"toolcrib", "sandbox"} or name in sys.stdlib_module_names
    if taken or not _MODULE_NAME.match(name):
        raise SpecInvalid(f"not a usable module name: {name!r}")


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


def _check_not_below(path: str, reserved: frozenset[str]) -> None:
    if path.split("/")[1] in reserved:
        raise SpecInvalid(f"not a path for a mount: {path!r}")
