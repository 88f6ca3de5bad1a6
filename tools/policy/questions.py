"""The question that a gate is asked, its verdict, and what gates read of other packages.

A question carries what was read for a call. `Facts` and `Limits` are answers that are read when the
first gate needs them, so that no statement is issued for a call that an earlier gate refuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from tools.definitions.callers import Caller
from tools.definitions.tool import DEFAULT_GROUP
from tools.errors import ToolcribError

if TYPE_CHECKING:
    from sandbox.spec import IsolationLevel
    from tools.accounts.grants.grants import ToolGrants
    from tools.catalog.group_openings import Openings
    from tools.catalog.snapshot import CatalogTool, Snapshot
    from tools.models import LicenseTier
    from tools.policy.approval_requirements import ApprovalRequirement

DEFAULT_STATE = "undefined"


class Gate(StrEnum):
    """The names of the gates, as refusals, explanations and audit records have them."""

    NESTING = "nesting"
    ACCOUNTABLE = "accountable"
    LOAD = "load"
    FAN_OUT = "fan_out"
    STANDING = "standing"
    GRANTED_GROUPS = "granted_groups"
    STATUS = "status"
    SOURCE_OPEN = "source_open"
    GROUP = "group"
    GROUP_OPEN = "group_open"
    STATE = "state"
    DELIVERY = "delivery"
    OBJECT_PERMISSION = "object_permission"
    REQUIRED_PERMISSIONS = "required_permissions"
    LICENSE = "license"
    SANDBOX_PROFILE = "sandbox_profile"
    ISOLATION_LICENSE = "isolation_license"
    ISOLATION = "isolation"
    NETWORK = "network"
    RATE = "rate"
    ARGUMENTS = "validate_arguments"
    BUDGET = "budget"
    CONFIRMATION = "confirmation"

    __hash__ = str.__hash__  # that of `Enum` is slow, and a listing looks up thousands of verdicts


@dataclass(frozen=True, slots=True)
class EffectiveRequest:
    """The effective request: groups after the default was put in, and the current state."""

    groups: frozenset[str]
    state: str

    @classmethod
    def from_options(cls, group: list[str] | None, state: str | None) -> "EffectiveRequest":
        """Absent or null groups are `default`; an empty list stays empty (ruling 2). An empty text
        is the state `undefined`, as an absent one is."""
        groups = [DEFAULT_GROUP] if group is None else group
        return cls(frozenset(groups), state or DEFAULT_STATE)


class CallOptions(Protocol):
    """The options of a call or of its row: they may only tighten (ruling 5)."""

    @property
    def require_confirmation(self) -> bool: ...

    @property
    def confirmation_reason(self) -> str:
        """The reason for the requested approval, if any."""
        ...


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """The options of a call that was accepted. Anything but a plain `false` requires an
    approval."""

    require_confirmation: bool = False
    confirmation_reason: str = ""  # stored in the confirmation

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "StoredOptions":
        """Of the options that an execution stores."""
        return cls(options.get("require_confirmation", False) is not False)


NO_OPTIONS = StoredOptions()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's verdict. `reason` is written for the caller and says what to do next. A refusal
    with an HTTP status or details of its own has an `error`, which is raised for it."""

    gate: Gate
    passed: bool
    code: str = "ok"
    reason: str = ""
    error: ToolcribError | None = None
    warnings: tuple[str, ...] = ()
    requirement: "ApprovalRequirement | None" = None  # of a call that awaits an approval

    def as_dict(self) -> dict[str, str | bool]:
        return {
            "gate": self.gate,
            "passed": self.passed,
            "code": self.code,
            "reason": self.reason,
        }


@cache
def passed(gate: Gate) -> Verdict:
    """A passing verdict: always the same object, since a listing needs thousands."""
    return Verdict(gate, True)


def refused(gate: Gate, error: ToolcribError) -> Verdict:
    return Verdict(gate, False, error.code, error.message, error)


class Facts(Protocol):
    """What gates read beside the catalog and the caller. `tools.authorization.facts` reads it."""

    def audit_halted(self, organization: str) -> ToolcribError | None:
        """The refusal while the organization's audit log is halted."""
        ...

    def grants(self, caller: Caller, snapshot: "Snapshot") -> "ToolGrants": ...

    def permissions(self, caller: Caller, snapshot: "Snapshot") -> frozenset[str]: ...

    def openings(self, snapshot: "Snapshot") -> "Openings": ...

    def tier(self, snapshot: "Snapshot") -> "LicenseTier": ...

    def has_seat(self, tool: "CatalogTool", snapshot: "Snapshot", limit: int) -> bool: ...

    def excluded_level(
        self, tool: "CatalogTool", tier: "LicenseTier", levels: "Sequence[IsolationLevel]"
    ) -> "IsolationLevel | None":
        """The strongest of the levels, where the tier does not include it."""
        ...

    def used_before(self, caller: Caller, tool: "CatalogTool") -> bool:
        """Whether the caller has used the tool with success."""
        ...


class Limits(Protocol):
    """What is counted or reserved for a call. `tools.limits.answers` counts, reserves or peeks."""

    def load(self, question: "Question") -> Verdict: ...

    def fan_out(self, question: "Question") -> Verdict: ...

    def rate(self, question: "Question") -> Verdict: ...

    def budget(self, question: "Question") -> Verdict: ...


@dataclass(frozen=True, slots=True)
class CallTerms:
    """One call of the question's tool. `depth` counts the calls that it is within."""

    limits: Limits
    parameters: dict[str, Any] = field(default_factory=dict)
    references: Sequence[dict[str, Any]] = ()  # to results that the parameters have values of
    depth: int = 0
    options: CallOptions = NO_OPTIONS
    cost: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class RequestQuestion:
    """May this caller request these groups in this state?"""

    caller: Caller
    asked: EffectiveRequest
    snapshot: "Snapshot"
    facts: Facts


@dataclass(frozen=True, slots=True)
class Question(RequestQuestion):
    """May this caller use this tool in this request? With `call`: may it make this call?"""

    tool: "CatalogTool"
    at_entry_point: bool = False  # of batches: see `gates.EXEMPT_AT_ENTRY_POINT`
    call: CallTerms | None = None

    @property
    def terms(self) -> CallTerms:
        """Raises `LookupError` for a question that is not about one call."""
        if self.call is None:
            raise LookupError("a gate of calls was asked without a call")
        return self.call
