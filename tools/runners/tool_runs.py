"""The interface of runners: the run that one is given, and its result."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from sandbox.client import Until
from sandbox.errors import ErrorCode
from sandbox.spec import IsolationLevel, RunOutcome, SandboxResult
from tools.catalog.sandbox.profiles import sandbox_client
from tools.catalog.snapshot import CatalogProfile, Snapshot
from tools.definitions.tool import ToolDefinition

__all__ = [
    "Runner",
    "ToolRun",
    "UpstreamResult",
    "discard_text",
    "refuse_composite",
    "sandbox_client",
]


def discard_text(_words: str) -> None:
    """The receiver of streamed text of a run without followers."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of one tool version. `stop` ends it when it is set, and so does the time `until`.

    `level` is the effective isolation level; `snapshot` is the catalog the run was claimed in.
    `caller` is the caller's kind and name as in the audit log. `tell` passes text on to followers
    of the call while it runs.
    """

    organization: str
    definition: ToolDefinition
    parameters: dict[str, Any]
    timeout_s: float
    stop: threading.Event
    level: IsolationLevel
    snapshot: Snapshot
    until: Until | None = None
    execution_id: UUID | None = None
    attempt: int = 1
    caller: str = ""
    caller_kind: str = ""
    caller_id: str = ""  # the agent's, or the user's
    tell: Callable[[str], None] = discard_text

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters with the definition's defaults for those left out."""
        return {**self.definition.defaults, **self.parameters}

    @property
    def profile(self) -> CatalogProfile | None:
        """Raises LookupError where the named profile is missing: the tool never runs without it."""
        name = self.definition.sandbox_profile
        return None if name is None else self.snapshot.profiles[name]


@dataclass(frozen=True)
class UpstreamResult(SandboxResult):
    """The result of a run that an external server, service or model performed.

    A run whose answer was lost, and which may have had its effect, has `ErrorCode.LOST`, like a
    lost sandbox: the tool's `delivery` decides about it (ruling 16). `cost` is what was spent,
    where it differs from the reserved amount. `counts` are numbers of the run's own, such as
    tokens. `observation` is what a reader gets in place of the output, where it contains more;
    `details` are those of a failure beside its message.
    """

    cost: Decimal | None = None
    counts: dict[str, int] = field(default_factory=dict)
    observation: str = ""
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def failed_result(code: str, message: str, *, cost: Decimal | None = None) -> UpstreamResult:
    return UpstreamResult(RunOutcome.FAILED, error_code=code, error_message=message, cost=cost)


def stopped_result() -> UpstreamResult:
    """The result of a run that its caller ended."""
    message = "The call was stopped."
    return UpstreamResult(
        RunOutcome.CANCELLED, error_code=ErrorCode.CANCELLED, error_message=message
    )


def timeout_result(message: str) -> UpstreamResult:
    return UpstreamResult(RunOutcome.TIMEOUT, error_code=ErrorCode.TIMEOUT, error_message=message)


@dataclass(frozen=True, slots=True)
class Runner:
    """How one type of tool is run."""

    run: Callable[[ToolRun], SandboxResult]


def refuse_composite(_job: ToolRun) -> SandboxResult:
    """The runner of composite tools, which no runner runs. Raises `LookupError`."""
    raise LookupError("a composite call is run by the execution pipeline itself")
