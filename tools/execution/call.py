"""A call of a tool: as it was asked for, on its way through the gates, and in the hands of the
process that performs it.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from audit.actions import Actor
from audit.canonical import commitment
from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.authorization import pins
from tools.authorization.facts import question_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Rate, Status
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.limits.answers import CountedLimits
from tools.models import Execution, Session, Transport
from tools.models.ids import new_id
from tools.policy import isolation_levels
from tools.policy.approval_requirements import ApprovalRequirement
from tools.policy.questions import CallTerms, EffectiveRequest, Question


@dataclass(frozen=True, slots=True)
class Parent:
    """The composite call that makes a call, and its own name for it. No door says so."""

    id: UUID
    place: str
    depth: int


@dataclass(frozen=True)
class Call:
    """`group` absent (None) is not the same as `[]` (ruling 2)."""

    tool_name: str
    parameters: dict[str, Any]
    group: list[str] | None = None
    state: str | None = None
    session: str | None = None
    timeout_s: float | None = None
    require_confirmation: bool = False
    confirmation_reason: str = ""  # what the approver reads, instead of the usual sentence
    idempotency_key: str | None = None
    id: UUID = field(default_factory=new_id)
    parent: Parent | None = None
    at_its_door: bool = False  # a batch that was sent to the address for batches
    retry_of: UUID | None = None  # the call that failed, where this is that one once more
    plain: bool = False  # what looks like a reference is data: others may have written it

    @property
    def options(self) -> dict[str, Any]:
        """What the caller tightened, as a confirmation binds it; by which door it came, and
        whether what it makes calls of is data."""
        options = {"timeout_s": self.timeout_s, "require_confirmation": self.require_confirmation}
        marks = {"at_its_door": self.at_its_door, "plain": self.plain}
        return options | {name: True for name, holds in marks.items() if holds}

    @cached_property
    def fingerprint(self) -> str:
        """What must be equal when an idempotency key comes back."""
        return commitment(
            {
                "tool_name": self.tool_name,
                "parameters": self.parameters,
                "group": self.group,
                "state": self.state,
                "session": self.session,
                "timeout_s": self.timeout_s,
                "require_confirmation": self.require_confirmation,
            }
        )


_UPSTREAM = frozenset({ToolType.HTTP, ToolType.SERVICE, ToolType.PROMPT, ToolType.TEXT_COMPLETION})


@dataclass(frozen=True)
class Hit:
    """An answer that is known already, and the execution that found it."""

    execution_id: UUID
    output: Any
    observation: str
    output_bytes: int | None
    output_digest: str = ""
    output_type: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the database has of a call before it is admitted: the execution that has its idempotency
    key, and its caller's session."""

    earlier: UUID | None = None
    session: Session | None = None
    open_execution: UUID | None = None  # of the session: its one call that is not over
    session_pinned: bool = False  # whether the session pins versions


def read_facts(caller: Caller, *, key: str | None = None, session: str | None = None) -> CallFacts:
    """By one statement; by none where the call has neither a key nor a session."""
    if key is None and session is None:
        return CallFacts()
    return CallFacts(
        *Execution.objects.call_facts(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            key=key,
            session_id=_session_id(session),
        )
    )


def _session_id(text: str | None) -> UUID | None:
    """None for anything but the canonical form: Python's own reader takes more."""
    try:
        found = UUID(text or "")
    except ValueError:
        return None
    return found if str(found) == (text or "").lower() else None


@dataclass
class Admission:
    """A call on its way through the gates."""

    caller: Caller
    call: Call
    facts: CallFacts = field(default_factory=CallFacts)
    asked: EffectiveRequest = field(init=False)
    parameters: dict[str, Any] = field(init=False)  # of the call, with its references resolved
    refers_to: list[dict[str, Any]] = field(default_factory=list)
    snapshot: Snapshot = field(init=False)
    tool: CatalogTool | None = None
    warnings: list[str] = field(default_factory=list)
    session: Session | None = None
    need: ApprovalRequirement | None = None
    covers: dict[str, Any] = field(default_factory=dict)  # of a batch: what its consent is good for
    hit: Hit | None = None
    cache_key: str = ""
    cost: Decimal = Decimal(0)
    limits: CountedLimits = field(init=False)
    execution: Execution | None = None
    wait_s: float = 0.0  # for how long the caller waits
    place: ExitStack | None = None  # of this process, where it performs the call
    performance: "Performance | None" = None
    transaction: ExitStack = field(default_factory=ExitStack)  # of its acceptance
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.asked = EffectiveRequest.from_options(self.call.group, self.call.state)
        self.parameters = self.call.parameters
        self.limits = CountedLimits()
        session = self.facts.session
        pinned_in = session.pk if session and self.facts.session_pinned else None
        self.snapshot = pins.snapshot_for(self.caller, pinned_in)

    def give_place_back(self) -> None:
        """Where the call has one: it is not performed here after all."""
        if self.place is not None:
            self.place.close()

    @property
    def rate(self) -> Rate | None:
        return self.limits.rate_state

    @property
    def rated_by(self) -> str:
        return self.rate.counted_by if self.rate else ""

    @property
    def resolved(self) -> CatalogTool:
        if self.tool is None:
            raise LookupError("the tool has not been resolved yet")
        return self.tool

    @property
    def accepted(self) -> Execution:
        if self.execution is None:
            raise LookupError("the call has not been accepted yet")
        return self.execution

    @property
    def requested_groups(self) -> list[str] | None:
        """As they are written down: a session's are the server's own."""
        return self.session.groups if self.session else self.call.group

    @property
    def question(self) -> Question:
        """What the gates are asked, as far as the call is known by now."""
        terms = CallTerms(
            limits=self.limits,
            parameters=self.parameters,
            references=self.refers_to,
            depth=self.call.parent.depth if self.call.parent else 0,
            options=self.call,
            cost=self.cost,
        )
        return question_of(
            self.caller,
            self.resolved,
            self.asked,
            self.snapshot,
            at_entry_point=self.call.at_its_door,
            call=terms,
        )

    @property
    def goes_out(self) -> bool:
        """Whether the call is but a request to another server; those over stdio are processes of
        the workers."""
        definition = self.resolved.definition
        if definition.type != ToolType.MCP:
            return definition.type in _UPSTREAM
        server = self.snapshot.mcp_servers.get(definition.raw["implementation"]["server"])
        return server is not None and server.transport != Transport.STDIO

    @property
    def timeout_s(self) -> float:
        """Options may only tighten: the smaller of the two (ruling 5)."""
        allowed = self.resolved.definition.timeout_s
        return min(allowed, self.call.timeout_s or allowed)


@dataclass(frozen=True, slots=True)
class PackedOutput:
    """An output as it is put away. `content` is empty where it lies in the row, or lay already."""

    output: Any
    size: int | None  # bytes, as JSON; None where there is none
    digest: str = ""
    type: str = ""
    content: bytes = b""


@dataclass
class Result:
    """How an execution ended, as its row will say."""

    status: Status
    output: Any = None
    error_code: str = ""
    error_message: str = ""
    error_details: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    sandbox_id: str = ""
    network: list[dict[str, Any]] = field(default_factory=list)
    cost: Decimal | None = None  # what is spent, where that is not what was reserved
    cached_from: UUID | None = None
    packed_output: PackedOutput | None = None  # where it is stored already
    observation: str | None = None
    upstream_text: str = ""  # the observation, unless the definition makes another
    warnings: list[str] = field(default_factory=list)  # beside those of the admission
    settled: bool = False  # what the definition makes of its output has been made


@dataclass
class Performance:
    """An execution in the hands of the one worker that claimed it."""

    execution: Execution
    tool: CatalogTool
    caller: Caller
    snapshot: Snapshot
    worker: str
    began: float = field(default_factory=time.perf_counter)
    result: Result | None = None
    leads: str = ""  # the cache's key that waits for this one's answer
    claimed_at: float = field(default_factory=time.monotonic)  # asked for: the lease runs since
    returned: bool = False  # given back: nothing more of it is written
    started: bool = True  # it has a START; not where its claim decided the result
    ended: bool = False  # its end is stored as `execution` has it

    @property
    def definition(self) -> ToolDefinition:
        return self.tool.definition

    @property
    def level(self) -> IsolationLevel:
        return isolation_levels.effective_level(self.tool, self.snapshot)

    @property
    def actor(self) -> Actor:
        """The caller in evidence, under the request that asked."""
        return replace(actor_of(self.caller), request_id=self.execution.request_id)


COMMITTED = "committed"  # in the boundary of a chain


@dataclass(frozen=True, slots=True)
class Composer:
    """What the pipeline asks about composite calls."""

    take_turn: Callable[[Performance], None]
    # Whether one more turn decides about what was cancelled as it succeeded.
    sees_its_end: Callable[[Performance, Result], bool]
    # For `error_details`, of a chain that no turn of its own ends; empty for other tools.
    boundary: Callable[[Execution, Any], dict[str, Any]]


_registered: list[Composer] = []


def register(composer: Composer) -> None:
    _registered[:] = [composer]


def composer() -> Composer:
    """Raises `LookupError` before one was registered."""
    if not _registered:
        raise LookupError("no package has registered how composite calls take their turns")
    return _registered[0]
