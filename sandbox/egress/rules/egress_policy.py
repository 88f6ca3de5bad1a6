"""Egress policy of a run, and its attempts: plain frozen values that cross a socket."""

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from sandbox.errors import SpecInvalid
from sandbox.strict_fields import Fields

MIB = 1024 * 1024


@dataclass(frozen=True)
class HostRule:
    """`host` is a name, `*.suffix`, `*` (every public name) or an IP address.

    Empty `methods` and `paths` allow all; `paths` are prefixes on the border of a segment.
    `headers` are credentials: the broker adds them to requests that go to this host.
    """

    host: str
    ports: tuple[int, ...] = (443, 80)
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                host=fields.text("host"),
                ports=tuple(fields.integers("ports")),
                methods=tuple(fields.texts("methods")),
                paths=tuple(fields.texts("paths")),
                headers=tuple(fields.pairs("headers")),
            )
        )


@dataclass(frozen=True)
class EgressLimits:
    """Of one run. `response_bytes` and `request_bytes` are totals of all its requests."""

    requests: int = 100
    connections: int = 8
    request_bytes: int = 10 * MIB
    response_bytes: int = 50 * MIB
    request_s: float = 30

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise SpecInvalid(f"{name} must be a positive number")

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                requests=fields.integer("requests"),
                connections=fields.integer("connections"),
                request_bytes=fields.integer("request_bytes"),
                response_bytes=fields.integer("response_bytes"),
                request_s=fields.number("request_s"),
            )
        )


@dataclass(frozen=True)
class EgressPolicy:
    """No rule, no host. Goes from the worker to the broker and past everybody else."""

    rules: tuple[HostRule, ...] = ()
    limits: EgressLimits = EgressLimits()

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                rules=tuple(HostRule.from_wire(rule) for rule in fields.items("rules")),
                limits=EgressLimits.from_wire(fields.value("limits")),
            )
        )


@dataclass(frozen=True)
class EgressAttempt:
    """One request, connection or name a run asked for, whether it was let through or not.

    `code` is empty when it was let through. Paths and headers are not kept: they may hold secrets.
    """

    door: str
    method: str
    host: str
    port: int
    address: str = ""
    code: str = ""
    status: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    duration_ms: float = 0

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                door=fields.text("door"),
                method=fields.text("method"),
                host=fields.text("host"),
                port=fields.integer("port"),
                address=fields.text("address"),
                code=fields.text("code"),
                status=fields.integer("status"),
                bytes_sent=fields.integer("bytes_sent"),
                bytes_received=fields.integer("bytes_received"),
                duration_ms=fields.number("duration_ms"),
            )
        )


@dataclass(frozen=True)
class EgressSummary:
    """All attempts of a run were counted; the first of them are described."""

    requests: int = 0
    refused: int = 0
    attempts: tuple[EgressAttempt, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                requests=fields.integer("requests"),
                refused=fields.integer("refused"),
                attempts=tuple(EgressAttempt.from_wire(one) for one in fields.items("attempts")),
            )
        )


class Code(StrEnum):
    """In the order of the checks."""

    REQUEST_LIMIT = "REQUEST_LIMIT"
    CONNECTION_LIMIT = "CONNECTION_LIMIT"
    REQUEST_INVALID = "REQUEST_INVALID"
    HOST_INVALID = "HOST_INVALID"
    HOST_NOT_ALLOWED = "HOST_NOT_ALLOWED"
    PORT_NOT_ALLOWED = "PORT_NOT_ALLOWED"
    TUNNEL_NOT_ALLOWED = "TUNNEL_NOT_ALLOWED"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    LOOKUP_LIMIT = "LOOKUP_LIMIT"
    NAME_NOT_RESOLVED = "NAME_NOT_RESOLVED"
    ADDRESS_NOT_ALLOWED = "ADDRESS_NOT_ALLOWED"
    CONNECT_FAILED = "CONNECT_FAILED"
    TLS_FAILED = "TLS_FAILED"
    RESPONSE_INVALID = "RESPONSE_INVALID"
    TOO_LARGE = "TOO_LARGE"
    TIMEOUT = "TIMEOUT"


class Denied(Exception):
    """Ends one request. The reason is for the tool: it reveals nothing of this machine."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
