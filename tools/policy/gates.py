"""The gates in one list: admission, claim, explanation, draft runs and what-if all walk `GATES`.

The gates are in ruling 9's order and never call each other. The default is refusal: a call may be
made when every gate passes. Who walks the list names the gates that it skips, and why; a gate that
is added to the list is met by all of them.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from tools.definitions.implementations.tool_types import ASK_MODEL, RUN_AGENT, RUN_BATCH
from tools.errors import Refused
from tools.policy import availability, call_gates, isolation_levels, license_gates
from tools.policy.questions import Gate, Question, RequestQuestion, Verdict

if TYPE_CHECKING:
    from tools.catalog.snapshot import CatalogTool


class Stage(StrEnum):
    """When a call meets a gate: between two stages, admission reads what the next one needs."""

    ARRIVAL = "arrival"  # before anything of the request is read
    REQUEST = "request"  # groups and state are known
    ACCESS = "access"  # whether the tool exists for the request: listings ask these gates alone
    RATE = "rate"
    ARGUMENTS = "arguments"  # references to results are resolved
    BUDGET = "budget"  # in the transaction that writes the call's row, which knows the price
    # Admission asks this stage before the price is known, since a held call has no cached answer.
    # Being held is no refusal, so that the order of refusals is that of the list.
    APPROVAL = "approval"


class Scope(StrEnum):
    """What a verdict depends on, beside the catalog."""

    REQUEST = "request"  # the caller, the groups and the state, and not the tool
    TOOL = "tool"  # the tool alone: the same for all callers
    KIND = "kind"  # as CALL, but equal for tools of equal groups, states and permissions
    CALL = "call"  # anything


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One entry of the list."""

    name: Gate
    decide: Callable[[Question], Verdict]
    stage: Stage
    scope: Scope = Scope.CALL

    def decide_request(self, question: RequestQuestion) -> Verdict:
        """Of a gate with the scope `REQUEST`, which reads no tool."""
        if self.scope != Scope.REQUEST:
            raise LookupError(f"the gate {self.name} is asked about a tool")
        return self.decide(cast(Question, question))


GATES: tuple[GateCheck, ...] = (
    GateCheck(Gate.NESTING, call_gates.nesting, Stage.ARRIVAL),
    GateCheck(Gate.ACCOUNTABLE, call_gates.accountable, Stage.ARRIVAL, Scope.REQUEST),
    GateCheck(Gate.LOAD, call_gates.load, Stage.ARRIVAL),
    GateCheck(Gate.FAN_OUT, call_gates.fan_out, Stage.ARRIVAL),
    GateCheck(Gate.STANDING, call_gates.is_active, Stage.ARRIVAL, Scope.REQUEST),
    GateCheck(Gate.GRANTED_GROUPS, call_gates.granted_groups, Stage.REQUEST, Scope.REQUEST),
    GateCheck(Gate.STATUS, availability.in_service, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.SOURCE_OPEN, availability.source_open, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.GROUP, availability.in_group, Stage.ACCESS, Scope.KIND),
    GateCheck(Gate.GROUP_OPEN, availability.group_open, Stage.ACCESS, Scope.KIND),
    GateCheck(Gate.STATE, availability.in_state, Stage.ACCESS, Scope.KIND),
    GateCheck(Gate.DELIVERY, call_gates.delivery, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.OBJECT_PERMISSION, availability.object_permission, Stage.ACCESS),
    GateCheck(Gate.REQUIRED_PERMISSIONS, availability.permissions_held, Stage.ACCESS, Scope.KIND),
    GateCheck(Gate.LICENSE, license_gates.licensed, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.SANDBOX_PROFILE, license_gates.profiles_licensed, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.ISOLATION_LICENSE, license_gates.isolation_licensed, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.ISOLATION, isolation_levels.profile_exists, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.NETWORK, isolation_levels.network_permitted, Stage.ACCESS, Scope.TOOL),
    GateCheck(Gate.RATE, call_gates.rate, Stage.RATE),
    GateCheck(Gate.ARGUMENTS, call_gates.arguments, Stage.ARGUMENTS),
    GateCheck(Gate.BUDGET, call_gates.budget, Stage.BUDGET),
    GateCheck(Gate.CONFIRMATION, call_gates.confirmation, Stage.APPROVAL),
)

# A batch at its own address needs no grant of the tool that runs it: it gives no access, since
# every gate checks each of its calls. It can be disabled, licensed and limited like any other. The
# same holds for a run of an agent, and for the questions that it asks a model, which are only text.
EXEMPT_AT_ENTRY_POINT = frozenset({Gate.GROUP, Gate.GROUP_OPEN, Gate.STATE, Gate.OBJECT_PERMISSION})
_GIVE_NO_ACCESS = frozenset({RUN_BATCH, RUN_AGENT, ASK_MODEL})

# Listings and explanations skip these gates of `Stage.ACCESS`.
SKIPPED_BY_LISTINGS = {
    Gate.DELIVERY: "Only a version that an earlier release stored is refused by it, when called.",
}


def select(*stages: Stage, skip: Collection[Gate] = ()) -> tuple[GateCheck, ...]:
    """The gates of these stages, or of every stage, in the order of the list."""
    return tuple(
        check for check in GATES if check.name not in skip and (not stages or check.stage in stages)
    )


def explain(question: Question) -> list[Verdict]:
    """The verdict of every gate that decides whether the tool exists for the request, also after
    one has refused."""
    checks = select(Stage.ACCESS, skip=SKIPPED_BY_LISTINGS)
    return [check.decide(question) for check in checks]


def passes(question: Question, checks: tuple[GateCheck, ...]) -> bool:
    return all(check.decide(question).passed for check in checks)


def authorize(question: Question, checks: tuple[GateCheck, ...] | None = None) -> list[str]:
    """Raises the first gate's refusal, else returns the warnings of the gates. Without `checks`,
    the gates that decide whether the tool exists for the request are asked."""
    if checks is None:
        checks = select(Stage.ACCESS, skip=SKIPPED_BY_LISTINGS)
    warnings: list[str] = []
    for verdict in decide(question, checks):
        if not verdict.passed:
            raise refusal_of(verdict, question)
        warnings += verdict.warnings
    return warnings


def decide(question: Question, checks: tuple[GateCheck, ...]) -> Iterator[Verdict]:
    """The verdicts of the gates that the question must pass."""
    exempt: Collection[Gate] = ()
    if question.at_entry_point and gives_no_access(question.tool):
        exempt = EXEMPT_AT_ENTRY_POINT
    for check in checks:
        if check.name not in exempt:
            yield check.decide(question)


def refusal_of(verdict: Verdict, question: Question) -> Exception:
    """The exception for a verdict that did not pass, with the reason as its caller may read it."""
    if verdict.error is not None:
        return verdict.error
    reason = availability.reason_for_caller(verdict, question)
    return Refused(reason, code=verdict.code, gate=verdict.gate.value)


def gives_no_access(tool: "CatalogTool") -> bool:
    return tool.definition.entry_point in _GIVE_NO_ACCESS
