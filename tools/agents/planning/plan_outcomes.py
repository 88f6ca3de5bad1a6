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
from tools.agents.call_rows import ACT, NOTHING, CallRow, Spent
from tools.agents.planning.plan_language import AgentPlan, PlanStep, UnfitPlan, read
from tools.agents.run_parameters import PLAN, THRESHOLD
from tools.agents.steps import (
    AgentAction,
    AgentCallRows,
    AgentReply,
    AgentStep,
    absence_of,
    observation_of,
)
from tools.definitions.results import REFUSED, Status
from tools.execution.chain_boundary import last_attempt
from tools.execution.composing import Made
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet

PLANS, FLAWS, SETTLED, STOPPED, ANSWER = "plans", "flaws", "settled", "stopped", "answer_at"
PLANNED, RUNNING, WAITING = "planned", "running", "waiting"
SUCCEEDED, FAILED, DENIED, SKIPPED = "succeeded", "failed", "refused", "skipped"
REJECTED = "confirmation_rejected"
NOT_OVER = frozenset({PLANNED, RUNNING, WAITING})
_BEFORE = "It was not begun: {}."


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Of a step. `made` is its last call, also one that could not be made."""

    word: str
    code: str = ""
    message: str = ""
    made: Made | None = None
    attempts: int = 0

    @property
    def execution_id(self) -> UUID | None:
        return self.made.id if self.made else None


class PlannedRows(AgentCallRows):
    """Of a run by plans."""

    def __init__(self, run: Execution, readable: ExecutionQuerySet) -> None:
        super().__init__(run, readable)
        self.memory, self._asked = run.memory, run.parameters

    @cached_property
    def plans(self) -> list[AgentPlan]:
        """Those that were accepted, as far as they can still be read."""
        found: list[AgentPlan] = []
        known: frozenset[str] = frozenset()
        for at in self.memory.get(PLANS, ()):
            try:
                steps = read(self.said(at), known=known)
            except UnfitPlan:
                break
            known |= {step.id for step in steps}
            found.append(AgentPlan(at, tuple(steps)))
        return found

    @property
    def next_number(self) -> int:
        """Of the thought that comes after all plans, and after replies that were none."""
        number = self.plans[-1].next if self.plans else 1
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
        """Calls that a person has refused."""
        rows = [row for row in self.acts.values() if row.error_code == REJECTED]
        return frozenset(commitment([row.tool_name, row.parameters]) for row in rows)

    @property
    def flawed_lately(self) -> list[int]:
        """Thoughts since the last plan that were none."""
        return self._flawed(before=self.next_number)

    def said(self, number: int) -> str:
        return _said(self.move(number))

    def id_of(self, number: int) -> str:
        """The step of that number, by its name in its plan."""
        steps = (one for plan in self.plans for one in plan.numbered())
        return next((step.id for at, step in steps if at == number), "")

    def threshold_of(self, tool_name: str) -> float:
        given = self._asked.get("thresholds") or {}
        return float(given.get(tool_name, self._asked.get("confidence", THRESHOLD)))

    def steps(self) -> list[AgentStep]:
        """In the order in which they come; the last may be running, and later ones are omitted."""
        found: list[AgentStep] = []
        for plan in self.plans:
            found += [self._not_a_plan(at) for at in self._flawed(before=plan.at)]
            found.append(self._of_plan(plan))
            for number, step in plan.numbered():
                outcome = self.outcomes[step.id]
                if outcome.word == PLANNED:
                    return found
                found.append(self._taken(number, step, outcome))
                if outcome.word in NOT_OVER:
                    return found
        return found + self._after_plans()

    def told(self) -> dict[str, Any] | None:
        """For callers and evidence: each step with its outcome. Its arguments are its call's."""
        if not self.plans:
            return None
        steps = [
            self._told(revision, number, step)
            for revision, plan in enumerate(self.plans, 1)
            for number, step in plan.numbered()
        ]
        return {"revisions": len(self.plans), "steps": steps}

    def _outcome(self, number: int, step: PlanStep, found: dict[str, StepOutcome]) -> StepOutcome:
        attempts, made = last_attempt(self.calls, f"{ACT}{number}")
        if made is not None:
            word = self._word(number, made)
            return StepOutcome(word, made.error_code, made.error_message, made, attempts)
        unmet = [name for name in step.depends_on if found[name].word != SUCCEEDED]
        if any(found[name].word not in NOT_OVER for name in unmet):
            names = ", ".join(unmet)
            why = _BEFORE.format(f"it depends on {names}, which did not succeed")
            return StepOutcome(SKIPPED, "DEPENDENCY_FAILED", why)
        at, code, why = self.memory.get(STOPPED, (number + 1, "", ""))
        return (
            StepOutcome(SKIPPED, code, _BEFORE.format(why))
            if number >= at
            else StepOutcome(PLANNED)
        )

    def _word(self, number: int, made: Made) -> str:
        if made.status == Status.REQUIRES_CONFIRMATION:
            return WAITING
        if made.succeeded:
            return SUCCEEDED
        if made.open or number > self.memory.get(SETTLED, 0):  # it may be tried again
            return RUNNING
        return DENIED if made.status in REFUSED else FAILED

    def _told(self, revision: int, number: int, step: PlanStep) -> dict[str, Any]:
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
            "outcome": outcome.word,
            "error_code": outcome.code or None,
            "error_message": outcome.message or None,
            "attempts": outcome.attempts,
            "execution_id": str(outcome.execution_id) if outcome.execution_id else None,
        }

    def _of_plan(self, plan: AgentPlan) -> AgentStep:
        names = ", ".join(f"{step.id} ({step.tool})" for step in plan.steps)
        count = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}"
        thought = f"A plan of {count}: {names}." if plan.steps else "A plan of no steps."
        move = AgentReply(self.said(plan.at), thought)
        return AgentStep(plan.at, move, None, Status.SUCCESS, None, self.thinking(plan.at))

    def _taken(self, number: int, step: PlanStep, outcome: StepOutcome) -> AgentStep:
        made, row = outcome.made, None
        if made is None:
            action = AgentAction(step.tool, step.arguments)
            move = AgentReply(thought=step.why, action=action)
            return AgentStep(number, move, outcome.message, "Skipped", None, NOTHING)
        row = self.acts.get(made.place)
        arguments = row.parameters if row is not None else step.arguments
        move = AgentReply(thought=step.why, action=AgentAction(step.tool, arguments))
        seen = None if outcome.word in NOT_OVER else _seen(row, made)
        acting = self._acting(number)
        return AgentStep(number, move, seen, made.status, made.id, Spent(), acting, made.place)

    def _acting(self, number: int) -> Spent:
        """With the attempts that came to nothing."""
        place = f"{ACT}{number}"
        own = [row for at, row in self.acts.items() if at.partition("#")[0] == place]
        return sum((row.spent for row in own), start=NOTHING)

    def _after_plans(self) -> list[AgentStep]:
        before = self.next_number
        found = [self._not_a_plan(at) for at in self.flawed_lately]
        move = self.move(before) if self.memory.get(ANSWER) == before else None
        if move is not None:
            thinking = self.thinking(before)
            found.append(AgentStep(before, move, move.flaw, Status.SUCCESS, None, thinking))
        return found

    def _flawed(self, *, before: int) -> list[int]:
        """Replies that were no plans, directly before a number."""
        flaws, number = self.memory.get(FLAWS, {}), before - 1
        while str(number) in flaws:
            number -= 1
        return list(range(number + 1, before))

    def _not_a_plan(self, at: int) -> AgentStep:
        flaw = str(self.memory[FLAWS][str(at)])
        move = AgentReply(self.said(at), "", flaw=flaw)
        return AgentStep(at, move, flaw, Status.SUCCESS, None, self.thinking(at))


def rows_of(run: Execution, readable: ExecutionQuerySet) -> AgentCallRows:
    """As the pattern of a run has them."""
    of = PlannedRows if run.parameters.get("pattern") == PLAN else AgentCallRows
    return of(run, readable)


def _said(move: AgentReply | None) -> str:
    return (move.answer or move.text) if move else ""


def _seen(row: CallRow | None, made: Made) -> str:
    return observation_of(row) if row is not None else absence_of(made)
