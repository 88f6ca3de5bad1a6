"""Explains why a caller may use a tool, or which gates refuse it, and what would change that.

The verdicts are those of the gates themselves. What an execution would spend or wait for is shown
beside them: read, never reserved.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from tools.accounts.callers import caller_of_agent
from tools.accounts.user_permissions import may, require
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.errors import Malformed, NotFound, Refused, ToolcribError
from tools.insight.changes import GrantChange, Tier
from tools.insight.remedies import ExplanationReader, RefusalCase, closings, remedy
from tools.insight.tool_reach import reach_of
from tools.limits import budgets, pressure, ratelimits
from tools.models import Agent
from tools.policy import approval_requirements
from tools.policy import gates as authorization
from tools.policy.questions import AccessRequest, EffectiveRequest, Verdict

CONFIRMATION = "confirmation"


@dataclass(frozen=True, slots=True)
class GateExplanation:
    """One gate's verdict, with what would change it."""

    gate: str
    passed: bool
    code: str
    reason: str
    remedy: str

    def as_dict(self) -> dict[str, str | bool]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Explained:
    """Every gate's verdict on one tool, in the order of the gates."""

    tool: CatalogTool
    available: bool
    rows: tuple[GateExplanation, ...]

    @property
    def refused_by(self) -> GateExplanation | None:
        """The first gate that would refuse a call; awaiting approval is no refusal."""
        refusals = (row for row in self.rows if not row.passed and row.gate != CONFIRMATION)
        return next(refusals, None)

    @property
    def held(self) -> bool:
        return any(row.gate == CONFIRMATION and not row.passed for row in self.rows)


@dataclass(frozen=True)
class Supposed:
    """A hypothetical call, without any option."""

    require_confirmation: bool = False
    confirmation_reason: str = ""


SUPPOSED = Supposed()


@dataclass(frozen=True)
class Explanation:
    """Of one caller's request; `everything` where its reader may know every tool and group."""

    caller: Caller
    asked: EffectiveRequest
    snapshot: Snapshot
    everything: bool
    account: UUID | None = None  # whose use is read, where the caller is a hypothetical one

    @cached_property
    def reader(self) -> ExplanationReader:
        return ExplanationReader(self.caller, self.snapshot, self.everything)

    @cached_property
    def request(self) -> tuple[GateExplanation, ...]:
        """The gates that ask about the caller and the request alone."""
        return tuple(self._row(gate(self)) for gate in _REQUEST)

    @property
    def allowed(self) -> bool:
        return all(row.passed for row in self.request)

    @cached_property
    def warnings(self) -> list[str]:
        try:
            return authorization.groups_granted(self.caller, self.asked, self.snapshot)
        except ToolcribError:
            return []

    @cached_property
    def tools(self) -> list[CatalogTool]:
        """Those the reader may know, in the order of their names."""
        return [tool for tool in self.snapshot.sorted_tools if self.reader.may_know(tool)]

    @cached_property
    def _reached(self) -> Set[str]:
        return reach_of(self.snapshot).of(self.caller, self.asked) if self.allowed else set()

    def question(self, tool: CatalogTool) -> AccessRequest:
        return AccessRequest(self.caller, tool, self.asked, self.snapshot)

    def available(self, tool: CatalogTool) -> bool:
        """Whether the tool exists for the request: what a listing would say."""
        return tool.name in self._reached

    def gates_of(self, tool: CatalogTool) -> list[GateExplanation]:
        """What decides whether the tool exists for the request."""
        question = self.question(tool)
        return [self._row(verdict, question) for verdict in authorization.explain(question)]

    def refusal(self, tool: CatalogTool) -> Verdict | None:
        """The first refusal of the tool; for readers who may know everything."""
        verdicts = (*(gate(self) for gate in _REQUEST), *authorization.explain(self.question(tool)))
        return next((verdict for verdict in verdicts if not verdict.passed), None)

    def of(self, tool: CatalogTool) -> Explained:
        question, gates = self.question(tool), self.gates_of(tool)
        used_by = replace(self.caller, user_id=self.account or self.caller.user_id)
        spent = replace(question, caller=used_by)
        looked_at = [self._row(look(spent), question) for look in LOOKS]
        available = self.allowed and all(row.passed for row in gates)
        return Explained(tool, available, (*gates, *looked_at))

    def _row(self, verdict: Verdict, question: AccessRequest | None = None) -> GateExplanation:
        if not verdict.passed and not self.everything:
            verdict = _fit_to_be_seen(verdict, question, self.reader)
        said = remedy(RefusalCase(verdict, self.reader, self.asked, question))
        return GateExplanation(verdict.gate, verdict.passed, verdict.code, verdict.reason, said)


def subject_of(viewer: Caller, agent: str | None) -> tuple[Caller, bool]:
    """Whom an explanation is about, and whether the viewer may know every tool and group.

    Explaining others is for people who may view agents and tools. Raises `Forbidden`, `NotFound`.
    """
    if agent is None or (viewer.kind == CallerKind.AGENT and viewer.name == agent):
        return viewer, may(viewer, "view_tool")
    require(viewer, "view_agent")
    require(viewer, "view_tool")
    rows = Agent.objects.select_related("service_account", "organization")
    found = rows.filter(organization_id=viewer.organization_id, slug=agent).first()
    if found is None:
        raise NotFound(f"There is no agent {agent[:63]!r}.", code="agent_not_found")
    return caller_of_agent(found), True


def pretended(
    caller: Caller,
    snapshot: Snapshot,
    *,
    groups: Sequence[str] = (),
    tools: Sequence[str] = (),
    permissions: Sequence[str] = (),
    tier: str | None = None,
) -> tuple[Caller, Snapshot]:
    """An agent as it would be with these grants beside its own, in an organization of that tier."""
    if tier is not None:
        snapshot = Tier(tier).catalog(snapshot)
    if not (groups or tools or permissions):
        return caller, snapshot
    if caller.kind != CallerKind.AGENT:
        raise Malformed("Only grants of an agent can be supposed: name one.")
    more = GrantChange(
        caller.name,
        groups=(*caller.granted_groups, *groups),
        permissions=(*caller.granted_permissions, *permissions),
        more_tools=tuple(tools),
    )
    return more.caller(caller, more.catalog(snapshot)), snapshot


def _standing(explanation: Explanation) -> Verdict:
    caller = explanation.caller
    try:
        authorization.check_standing(caller)
    except Refused:
        return Verdict("standing", False, "agent_suspended", f"{caller.name} is suspended.")
    return Verdict("standing", True)


def _granted_groups(explanation: Explanation) -> Verdict:
    try:
        authorization.groups_granted(explanation.caller, explanation.asked, explanation.snapshot)
    except ToolcribError as refusal:
        return Verdict("granted_groups", False, refusal.code, refusal.message)
    return Verdict("granted_groups", True)


_REQUEST: tuple[Callable[[Explanation], Verdict], ...] = (_standing, _granted_groups)


def _confirmation(question: AccessRequest) -> Verdict:
    """A held call is not refused, but does not run before its approval."""
    need = approval_requirements.needed(question, SUPPOSED)
    if need is None:
        return Verdict(CONFIRMATION, True)
    people = "two people" if need.approvals > 1 else "a person"
    reason = f"The call waits until {people} agreed. {' '.join(need.reasons)}".strip()
    return Verdict(CONFIRMATION, False, "confirmation_needed", reason)


def _rate(question: AccessRequest) -> Verdict:
    return ratelimits.peek(question.caller, question.tool)


# Checks that read without spending, in their place after the gates.
LOOKS: tuple[Callable[[AccessRequest], Verdict], ...] = (
    pressure.peek,
    _rate,
    budgets.peek,
    _confirmation,
)


def _fit_to_be_seen(
    verdict: Verdict, question: AccessRequest | None, reader: ExplanationReader
) -> Verdict:
    """Some gates name groups of the tool; an agent sees only those it was granted."""
    if question is None or verdict.code not in _NAMING:
        return verdict
    return replace(verdict, reason=_NAMING[verdict.code](question, reader))


def _groups_known(question: AccessRequest, reader: ExplanationReader) -> str:
    groups = sorted(filter(reader.may_know_group, question.snapshot.groups_of(question.tool)))
    known = f" Of its groups you were granted: {', '.join(groups)}." if groups else ""
    return f"The tool {question.tool.name} is not in a requested group.{known}"


def _closings_known(question: AccessRequest, reader: ExplanationReader) -> str:
    reasons = " ".join(closing.reason for closing in closings(question, reader))
    return reasons or f"A group that leads to the tool {question.tool.name} is closed now."


def _consent(question: AccessRequest, reader: ExplanationReader) -> str:
    """Rules may name groups, so no rule is shown."""
    return f"A call of the tool {question.tool.name} waits until a person agreed."


_NAMING: dict[str, Callable[[AccessRequest, ExplanationReader], str]] = {
    "tool_not_in_group": _groups_known,
    "group_closed": _closings_known,
    "confirmation_needed": _consent,
}
