"""The outcomes of a run's plans, derived from its call rows and from its recorded decisions.

Its memory has the numbers of the thoughts that were accepted as plans, and why others were not; the
rows of the thoughts have their texts. A plan's steps have the numbers after its thought's: the call
of the second step of a plan at `think/1` is `act/3`, or `act/3#2`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from audit.canonical import commitment
from tools.agents.planning.plan_language import AgentPlan, InvalidPlan, PlanStep, parse_plan
from tools.agents.run_parameters import PLAN, THRESHOLD
from tools.agents.steps import (
    ACT,
    NO_SPENDING,
    AgentAction,
    AgentCallRows,
    AgentReply,
    AgentStep,
    CallRow,
    Spending,
    absence_text,
    observation_text,
)
from tools.definitions.results import REFUSED, Status
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.workflows.chain_boundary import last_attempt
from tools.workflows.nested_calls import NestedCall

PLANS, FLAWS, SETTLED, STOPPED, ANSWER = "plans", "flaws", "settled", "stopped", "answer_at"
PLANNED, RUNNING, WAITING = "planned", "running", "waiting"
SUCCEEDED, FAILED, DENIED, SKIPPED = "succeeded", "failed", "refused", "skipped"
REJECTED = "confirmation_rejected"
UNFINISHED = frozenset({PLANNED, RUNNING, WAITING})
_NOT_BEGUN = "It was not begun: {}."


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of a step. `made` is its last call, also one that could not be made."""

    state: str
    code: str = ""
    message: str = ""
    made: NestedCall | None = None
    attempts: int = 0

    @property
    def execution_id(self) -> UUID | None:
        return self.made.id if self.made else None


class PlanCallRows(AgentCallRows):
    """The call rows of a run by plans."""

    def __init__(self, run: Execution, readable: ExecutionQuerySet) -> None:
        super().__init__(run, readable)
        self.memory, self._asked = run.memory, run.parameters

    @cached_property
    def plans(self) -> list[AgentPlan]:
        """Accepted plans, as far as they can still be read."""
        found: list[AgentPlan] = []
        known: frozenset[str] = frozenset()
        for at in self.memory.get(PLANS, ()):
            try:
                steps = parse_plan(self.reply_text(at), known=known)
            except InvalidPlan:
                break
            known |= {step.id for step in steps}
            found.append(AgentPlan(at, tuple(steps)))
        return found

    @property
    def next_number(self) -> int:
        """The number of the thought after all plans and rejected replies."""
        number = self.plans[-1].next_number if self.plans else 1
        while str(number) in self.memory.get(FLAWS, {}):
            number += 1
        return number

    @cached_property
    def outcomes(self) -> dict[str, StepOutcome]:
        """Outcomes by step id, in order."""
        found: dict[str, StepOutcome] = {}
        for plan in self.plans:
            for number, step in plan.numbered():
                found[step.id] = self._outcome(number, step, found)
        return found

    @cached_property
    def rejected(self) -> frozenset[str]:
        """Digests of calls that a person has rejected."""
        rows = [row for row in self.tool_calls.values() if row.error_code == REJECTED]
        return frozenset(commitment([row.tool_name, row.parameters]) for row in rows)

    @property
    def recent_flaws(self) -> list[int]:
        """Thoughts since the last plan that were rejected as plans."""
        return self._flawed_before(before=self.next_number)

    def reply_text(self, number: int) -> str:
        return _reply_text(self.move(number))

    def id_of(self, number: int) -> str:
        """The id of the step with that number in its plan."""
        steps = (one for plan in self.plans for one in plan.numbered())
        return next((step.id for at, step in steps if at == number), "")

    def threshold_of(self, tool_name: str) -> float:
        given = self._asked.get("thresholds") or {}
        return float(given.get(tool_name, self._asked.get("confidence", THRESHOLD)))

    def steps(self) -> list[AgentStep]:
        """In their order; the last may be running, and later ones are omitted."""
        found: list[AgentStep] = []
        for plan in self.plans:
            found += [self._rejected_reply(at) for at in self._flawed_before(before=plan.thought)]
            found.append(self._plan_step(plan))
            for number, step in plan.numbered():
                outcome = self.outcomes[step.id]
                if outcome.state == PLANNED:
                    return found
                found.append(self._taken_step(number, step, outcome))
                if outcome.state in UNFINISHED:
                    return found
        return found + self._steps_after_plans()

    def plan_document(self) -> dict[str, Any] | None:
        """For callers and audit records: each step with its outcome, without arguments."""
        if not self.plans:
            return None
        steps = [
            self._step_document(revision, number, step)
            for revision, plan in enumerate(self.plans, 1)
            for number, step in plan.numbered()
        ]
        return {"revisions": len(self.plans), "steps": steps}

    def _outcome(self, number: int, step: PlanStep, found: dict[str, StepOutcome]) -> StepOutcome:
        attempts, made = last_attempt(self.calls, f"{ACT}{number}")
        if made is not None:
            state = self._state(number, made)
            return StepOutcome(state, made.error_code, made.error_message, made, attempts)
        unmet = [name for name in step.depends_on if found[name].state != SUCCEEDED]
        if any(found[name].state not in UNFINISHED for name in unmet):
            names = ", ".join(unmet)
            why = _NOT_BEGUN.format(f"it depends on {names}, which did not succeed")
            return StepOutcome(SKIPPED, "DEPENDENCY_FAILED", why)
        at, code, why = self.memory.get(STOPPED, (number + 1, "", ""))
        return (
            StepOutcome(SKIPPED, code, _NOT_BEGUN.format(why))
            if number >= at
            else StepOutcome(PLANNED)
        )

    def _state(self, number: int, made: NestedCall) -> str:
        if made.status == Status.REQUIRES_CONFIRMATION:
            return WAITING
        if made.succeeded:
            return SUCCEEDED
        if made.open or number > self.memory.get(SETTLED, 0):  # it may be tried again
            return RUNNING
        return DENIED if made.status in REFUSED else FAILED

    def _step_document(self, revision: int, number: int, step: PlanStep) -> dict[str, Any]:
        outcome = self.outcomes[step.id]
        return {
            "revision": revision,
            "number": number,
            "id": step.id,
            "tool": step.tool,
            "depends_on": list(step.depends_on),
            "confidence": step.confidence,
            "threshold": self.threshold_of(step.tool),
            "why": step.why,
            "outcome": outcome.state,
            "error_code": outcome.code or None,
            "error_message": outcome.message or None,
            "attempts": outcome.attempts,
            "execution_id": str(outcome.execution_id) if outcome.execution_id else None,
        }

    def _plan_step(self, plan: AgentPlan) -> AgentStep:
        names = ", ".join(f"{step.id} ({step.tool})" for step in plan.steps)
        count = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}"
        thought = f"A plan of {count}: {names}." if plan.steps else "A plan of no steps."
        move = AgentReply(self.reply_text(plan.thought), thought)
        return AgentStep(
            plan.thought, move, None, Status.SUCCESS, None, self.spent_on_model(plan.thought)
        )

    def _taken_step(self, number: int, step: PlanStep, outcome: StepOutcome) -> AgentStep:
        made, row = outcome.made, None
        if made is None:
            action = AgentAction(step.tool, step.arguments)
            move = AgentReply(thought=step.why, action=action)
            return AgentStep(number, move, outcome.message, "Skipped", None, NO_SPENDING)
        row = self.tool_calls.get(made.place)
        arguments = row.parameters if row is not None else step.arguments
        move = AgentReply(thought=step.why, action=AgentAction(step.tool, arguments))
        seen = None if outcome.state in UNFINISHED else _observation(row, made)
        acting = self._spent_on_tools(number)
        return AgentStep(number, move, seen, made.status, made.id, Spending(), acting, made.place)

    def _spent_on_tools(self, number: int) -> Spending:
        """With failed attempts."""
        place = f"{ACT}{number}"
        own = [row for at, row in self.tool_calls.items() if at.partition("#")[0] == place]
        return sum((row.spent for row in own), start=NO_SPENDING)

    def _steps_after_plans(self) -> list[AgentStep]:
        before = self.next_number
        found = [self._rejected_reply(at) for at in self.recent_flaws]
        move = self.move(before) if self.memory.get(ANSWER) == before else None
        if move is not None:
            thinking = self.spent_on_model(before)
            found.append(AgentStep(before, move, move.flaw, Status.SUCCESS, None, thinking))
        return found

    def _flawed_before(self, *, before: int) -> list[int]:
        """Replies that were no plans, directly before a number."""
        flaws, number = self.memory.get(FLAWS, {}), before - 1
        while str(number) in flaws:
            number -= 1
        return list(range(number + 1, before))

    def _rejected_reply(self, at: int) -> AgentStep:
        flaw = str(self.memory[FLAWS][str(at)])
        move = AgentReply(self.reply_text(at), "", flaw=flaw)
        return AgentStep(at, move, flaw, Status.SUCCESS, None, self.spent_on_model(at))


def load_rows(run: Execution, readable: ExecutionQuerySet) -> AgentCallRows:
    """By the pattern of the run."""
    rows_class = PlanCallRows if run.parameters.get("pattern") == PLAN else AgentCallRows
    return rows_class(run, readable)


def _reply_text(move: AgentReply | None) -> str:
    return (move.answer or move.text) if move else ""


def _observation(row: CallRow | None, made: NestedCall) -> str:
    return observation_text(row) if row is not None else absence_text(made)
