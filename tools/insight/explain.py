"""Explains why a caller may use a tool, or which gates refuse it, and what would change that.

The verdicts are those of the gates themselves. What an execution would spend or wait for is shown
beside them: read, never reserved.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from uuid import UUID

from tools.accounts.callers import caller_of_agent
from tools.accounts.user_permissions import may, require
from tools.authorization.facts import CURRENT, check_groups_uncounted, question_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.errors import Malformed, NotFound, ToolcribError
from tools.insight.changes import GrantChange, Tier
from tools.insight.remedies import ExplanationReader, RefusalCase, closings, remedy
from tools.insight.tool_reach import reach_of
from tools.limits.answers import PEEKED
from tools.models import Agent
from tools.policy import gates
from tools.policy.gates import GateCheck, Scope, Stage
from tools.policy.questions import (
    CallTerms,
    EffectiveRequest,
    Gate,
    Question,
    RequestQuestion,
    Verdict,
)

SKIPPED = {
    Gate.NESTING: "An explained call is within no other call.",
    Gate.ACCOUNTABLE: "A halted audit log stops every call, and says nothing about one tool.",
    Gate.FAN_OUT: "Open composite calls of a caller are counted when one more is made.",
    Gate.DELIVERY: "As for listings: see `gates.SKIPPED_BY_LISTINGS`.",
    Gate.ARGUMENTS: "An explanation has no parameters.",
}


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
        refusals = (row for row in self.rows if not row.passed and row.gate != Gate.CONFIRMATION)
        return next(refusals, None)

    @property
    def needs_approval(self) -> bool:
        return any(row.gate == Gate.CONFIRMATION and not row.passed for row in self.rows)


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
        return tuple(map(self._row, self._request_verdicts()))

    @property
    def allowed(self) -> bool:
        return all(row.passed for row in self.request)

    @cached_property
    def warnings(self) -> list[str]:
        try:
            return check_groups_uncounted(self.caller, self.asked, self.snapshot)
        except ToolcribError:
            return []

    @cached_property
    def tools(self) -> list[CatalogTool]:
        """Those the reader may know, in the order of their names."""
        return [tool for tool in self.snapshot.sorted_tools if self.reader.may_know(tool)]

    @cached_property
    def _reachable_names(self) -> Set[str]:
        return (
            reach_of(self.snapshot).reachable_names(self.caller, self.asked)
            if self.allowed
            else set()
        )

    def question(self, tool: CatalogTool) -> Question:
        call = CallTerms(limits=PEEKED)
        return question_of(self.caller, tool, self.asked, self.snapshot, call=call)

    def available(self, tool: CatalogTool) -> bool:
        """Whether the tool exists for the request: what a listing would say."""
        return tool.name in self._reachable_names

    def gates_of(self, tool: CatalogTool) -> list[GateExplanation]:
        """What decides whether the tool exists for the request."""
        question = self.question(tool)
        return [self._row(check.decide(question), question) for check in _access_checks()]

    def refusal(self, tool: CatalogTool) -> Verdict | None:
        """The first refusal of the tool; for readers who may know everything."""
        question = self.question(tool)
        of_tool = (check.decide(question) for check in _access_checks())
        verdicts = chain(self._request_verdicts(), of_tool)
        return next((verdict for verdict in verdicts if not verdict.passed), None)

    def explain(self, tool: CatalogTool) -> Explained:
        question, access = self.question(tool), self.gates_of(tool)
        used_by = replace(self.caller, user_id=self.account or self.caller.user_id)
        use = replace(question, caller=used_by)
        limits = [self._row(check.decide(use), question) for check in _limit_checks()]
        available = self.allowed and all(row.passed for row in access)
        return Explained(tool, available, (*access, *limits))

    def _request_verdicts(self) -> Iterator[Verdict]:
        question = RequestQuestion(self.caller, self.asked, self.snapshot, CURRENT)
        for check in gates.select(skip=SKIPPED):
            if check.scope == Scope.REQUEST:
                yield _as_explained(check.decide_request(question), self.caller)

    def _row(self, verdict: Verdict, question: Question | None = None) -> GateExplanation:
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


def _access_checks() -> tuple[GateCheck, ...]:
    checks = gates.select(Stage.ACCESS, skip=SKIPPED)
    return tuple(check for check in checks if check.scope != Scope.REQUEST)


def _limit_checks() -> tuple[GateCheck, ...]:
    """Every other gate: what a call would spend or wait for. It is read, and not counted."""
    other = [stage for stage in Stage if stage != Stage.ACCESS]
    checks = gates.select(*other, skip=SKIPPED)
    return tuple(check for check in checks if check.scope != Scope.REQUEST)


def _as_explained(verdict: Verdict, caller: Caller) -> Verdict:
    """An explanation names the caller that is suspended."""
    if verdict.gate != Gate.STANDING or verdict.passed:
        return verdict
    return replace(verdict, code="agent_suspended", reason=f"{caller.name} is suspended.")


def _fit_to_be_seen(
    verdict: Verdict, question: Question | None, reader: ExplanationReader
) -> Verdict:
    """Some gates name groups of the tool; an agent sees only those it was granted."""
    if question is None or verdict.code not in _NAMING:
        return verdict
    return replace(verdict, reason=_NAMING[verdict.code](question, reader))


def _groups_known(question: Question, reader: ExplanationReader) -> str:
    groups = sorted(filter(reader.may_know_group, question.snapshot.groups_of(question.tool)))
    known = f" Of its groups you were granted: {', '.join(groups)}." if groups else ""
    return f"The tool {question.tool.name} is not in a requested group.{known}"


def _closings_known(question: Question, reader: ExplanationReader) -> str:
    reasons = " ".join(closing.reason for closing in closings(question, reader))
    return reasons or f"A group that leads to the tool {question.tool.name} is closed now."


def _consent(question: Question, reader: ExplanationReader) -> str:
    """Rules may name groups, so no rule is shown."""
    return f"A call of the tool {question.tool.name} waits until a person agreed."


_NAMING: dict[str, Callable[[Question, ExplanationReader], str]] = {
    "tool_not_in_group": _groups_known,
    "group_closed": _closings_known,
    "confirmation_needed": _consent,
}
