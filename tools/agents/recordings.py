"""Recorded runs: read to continue them, or to replay them against another model.

A caller that continues a run may read it, or it was shared with them when it was requested, or the
person acting for them may read it. And they have the same rights: they may themselves call every
tool whose result is in the run, in the groups of the run.
"""

from dataclasses import dataclass
from uuid import UUID

from audit.canonical import commitment
from tools.accounts.callers import caller_of_account
from tools.agents.planning.plan_outcomes import load_rows
from tools.agents.run_parameters import PastStep
from tools.agents.steps import MOST_OBSERVATION, AgentAction, AgentStep
from tools.authorization.facts import question_of
from tools.authorization.pins import snapshot_for
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.implementations.tool_types import RUN_AGENT
from tools.definitions.results import REFUSED
from tools.definitions.texts.names import WILDCARD
from tools.errors import Forbidden, NotFound
from tools.execution.outputs import readable_executions
from tools.models import Execution, User
from tools.models.execution_queryset import ExecutionQuerySet
from tools.policy import gates
from tools.policy.questions import EffectiveRequest, Gate


@dataclass(frozen=True, slots=True)
class Recording:
    """`calls` are the keys of the recorded calls with a digest of each, in order."""

    calls: tuple[tuple[str, str], ...]

    def place_of(self, action: AgentAction, used: set[str]) -> str | None:
        """Of the first call like it that has not been replayed yet."""
        wanted = _action_digest(action)
        return next((at for at, one in self.calls if one == wanted and at not in used), None)


def readable_runs(caller: Caller) -> ExecutionQuerySet:
    """Of agents, that the caller may read."""
    entry_point = {"tool_version__definition__implementation__entry_point": RUN_AGENT}
    return readable_executions(caller).shown().filter(**entry_point)


def find_run(caller: Caller, identifier: UUID) -> Execution:
    """Raises `NotFound` also for an execution of another tool."""
    found = readable_runs(caller).filter(pk=identifier).first()
    if found is None:
        raise NotFound("There is no such request of an agent among yours.", code="run_not_found")
    return found


def find_continuable_run(caller: Caller, identifier: UUID) -> Execution:
    """Raises `NotFound` for a run that the caller may not continue."""
    for found in (readable_runs(caller), _shared_with(caller), _runs_of_maker(caller)):
        if (run := found.filter(pk=identifier).first()) is not None:
            return run
    raise NotFound("There is no such request of an agent for you.", code="run_not_found")


def past_steps(caller: Caller, continues: UUID | None) -> list[PastStep]:
    """The steps of a run that is continued. Raises `NotFound`, `Forbidden`."""
    if continues is None:
        return []
    return [
        _past_step(step) for step in _load_permitted_steps(caller, continues) if step.move.action
    ]


def load_recording(caller: Caller, replays: UUID) -> Recording:
    """Raises `NotFound`, `Forbidden`."""
    steps = _load_permitted_steps(caller, replays)
    return Recording(
        tuple((one.place, _action_digest(one.move.action)) for one in steps if one.place)
    )


def load_steps(run: Execution) -> list[AgentStep]:
    """All steps of a run; the caller of this function calls `check_rights`."""
    row = Execution.objects.only("memory", "parameters", "organization").get(pk=run.pk)
    return load_rows(row, Execution.objects.filter(organization=row.organization_id)).steps()


def check_rights(caller: Caller, run: Execution, steps: list[AgentStep]) -> None:
    """Raises `Forbidden` for a caller that could not have made the run."""
    asked = EffectiveRequest.from_options(run.requested_groups, run.state)
    granted = caller.granted_groups
    beyond = frozenset() if WILDCARD in granted else asked.groups - granted
    closed = [name for name in _tools_with_results(steps) if not _may_call(caller, asked, name)]
    if beyond or closed:
        raise Forbidden(
            "Only a caller with the same rights goes on from this run; yours lack: "
            f"{', '.join(sorted([*beyond, *closed]))}.",
            code="not_the_same_rights",
        )


def _load_permitted_steps(caller: Caller, identifier: UUID) -> list[AgentStep]:
    run = find_continuable_run(caller, identifier)
    steps = load_steps(run)
    check_rights(caller, run, steps)
    return steps


def _shared_with(caller: Caller) -> ExecutionQuerySet:
    found = Execution.objects.filter(
        organization_id=caller.organization_id,
        tool_version__definition__implementation__entry_point=RUN_AGENT,
        parameters__shared_with__contains=[caller.name],
    )
    return found if caller.kind == CallerKind.AGENT else found.none()


def _runs_of_maker(caller: Caller) -> ExecutionQuerySet:
    maker = caller.maker
    if maker is None or maker.id == caller.user_id:
        return Execution.objects.none()
    person = caller_of_account(User.objects.get(pk=maker.id))
    return readable_runs(person).filter(organization_id=caller.organization_id)


def _tools_with_results(steps: list[AgentStep]) -> set[str]:
    """Tools whose results are in the steps; a refusal is no result."""
    return {
        one.move.action.name
        for one in steps
        if one.move.action and one.execution_id and one.status not in REFUSED
    }


def _may_call(caller: Caller, asked: EffectiveRequest, name: str) -> bool:
    """In the groups of the run, whatever the state it was in: that has moved on."""
    snapshot = snapshot_for(caller)
    tool = snapshot.tool(name)
    if tool is None:
        return False
    verdicts = gates.explain(question_of(caller, tool, asked, snapshot))
    return all(one.passed for one in verdicts if one.gate != Gate.STATE)


def _past_step(step: AgentStep) -> PastStep:
    assert step.move.action is not None
    seen = (step.observation or "It was not over when the run ended.")[:MOST_OBSERVATION]
    return PastStep(step.move.thought, step.move.action.name, step.move.action.arguments, seen)


def _action_digest(action: AgentAction | None) -> str:
    return commitment([action.name, action.arguments]) if action else ""
