"""The steps and the plan of an agent request as readers see them: without secrets, with hidden
characters named, and in a replay with the differences from the recorded run.
"""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from audit.actions import redactor_of
from audit.redaction import Redactor
from tools.agents.agent_requests import AgentRunReport
from tools.agents.steps import MOST_OBSERVATION, AgentStep, Spending
from tools.definitions.results import OPEN, Status
from tools.definitions.texts.lookalikes import make_visible
from tools.execution.outputs import redact_execution
from tools.models import Confirmation, Execution
from tools.shapes.scalars import money
from tools.ui.charts import Gauge
from tools.ui.display import VisiblePiece, format_duration, pretty, visible_pieces

FOLDED = 600  # characters; what is longer is folded
_MOST_ITEMS = 1_000
_MOST_NAME = 128  # characters of the tool name that a model wrote
_CHIPS = {
    "running": "Running",
    "waiting": "RequiresConfirmation",
    "succeeded": "Success",
    "failed": "Failed",
    "refused": "PermissionDenied",
    "skipped": "Cancelled",
}


@dataclass(frozen=True)
class AgentStepView:
    """`observation` is None as long as there is none. `differs` names the differences from the
    recorded run; empty without differences or without a recorded run."""

    step: AgentStep
    name: list[VisiblePiece]
    thought: list[VisiblePiece]
    arguments: list[VisiblePiece]
    observation: list[VisiblePiece] | None
    said: list[VisiblePiece]
    further: list[VisiblePiece]  # the names of calls that were not made
    status: str
    folded: bool
    tokens: int
    cost: str
    thinking: str
    acting: str
    confirmation: UUID | None
    differs: str = ""

    @property
    def waits(self) -> bool:
        return self.status == Status.REQUIRES_CONFIRMATION

    @property
    def open(self) -> bool:
        return self.status in OPEN


@dataclass
class StepReader:
    """Data that the steps of one page share."""

    redactor: Redactor
    rows: dict[UUID, Execution] = field(default_factory=dict)
    confirmations: dict[UUID, UUID] = field(default_factory=dict)

    def clean(self, text: str) -> list[VisiblePiece]:
        said: str = self.redactor.clean(text)
        return visible_pieces(said)


@dataclass(frozen=True)
class PlannedStep:
    """`below`: the confidence is below the threshold, so the step needed approval."""

    details: dict[str, Any]
    tool: list[VisiblePiece]
    why: list[VisiblePiece]
    message: list[VisiblePiece]
    chip: str
    sure: Gauge
    below: bool


@dataclass(frozen=True)
class AgentPlanView:
    revisions: int
    steps: list[PlannedStep]


def step_reader(organization: str, steps: tuple[AgentStep, ...] = ()) -> StepReader:
    """Uses two queries for all of the steps. The caller has checked that they may be read."""
    room = redactor_of(organization).with_room(MOST_OBSERVATION, _MOST_ITEMS)
    made = [one.execution_id for one in steps if one.execution_id is not None]
    if not made:
        return StepReader(room)
    rows = Execution.objects.filter(pk__in=made).select_related("tool_version", "organization")
    asked = Confirmation.objects.filter(execution__in=made).values_list("execution", "pk")
    return StepReader(room, {row.pk: row for row in rows}, dict(asked))


def step_views(
    report: AgentRunReport, recorded: AgentRunReport | None, reading: StepReader
) -> list[AgentStepView]:
    before = {one.number: one for one in recorded.steps} if recorded else {}
    return [
        _step_view(
            one, reading, _replay_difference(one, before.get(one.number)) if recorded else ""
        )
        for one in report.steps
    ]


def plan_view(plan: dict[str, Any] | None, reading: StepReader) -> AgentPlanView | None:
    """None for a request without a plan, or without one yet."""
    if not plan or not plan.get("steps"):
        return None
    return AgentPlanView(plan["revisions"], [_planned_step(one, reading) for one in plan["steps"]])


def _step_view(step: AgentStep, reading: StepReader, differs: str) -> AgentStepView:
    row = reading.rows.get(step.execution_id) if step.execution_id else None
    said = redact_execution(row) if row is not None else None
    seen = _observation(step, row, said, reading)
    spent = step.thinking + step.acting
    return AgentStepView(
        step=step,
        name=visible_pieces(step.move.action.name[:_MOST_NAME]) if step.move.action else [],
        thought=reading.clean(step.move.thought),
        arguments=_arguments(step, said, reading),
        observation=None if seen is None else visible_pieces(seen),
        said=reading.clean(step.move.text) if step.move.flaw else [],
        further=visible_pieces(", ".join(one["name"][:_MOST_NAME] for one in step.move.further)),
        status=row.stage if row is not None else step.status,
        folded=len(seen or "") > FOLDED,
        tokens=spent.tokens,
        cost=money(spent.cost),
        thinking=_step_duration(step.thinking),
        acting=_step_duration(step.acting),
        confirmation=reading.confirmations.get(row.pk) if row is not None else None,
        differs=differs,
    )


def _step_duration(spent: Spending) -> str:
    """The duration; empty for a step without one, such as thinking in a planned step."""
    return format_duration(spent.duration_ms) if spent.duration_ms else ""


def _arguments(
    step: AgentStep, said: dict[str, Any] | None, reading: StepReader
) -> list[VisiblePiece]:
    if step.move.action is None:
        return []
    given = said["parameters"] if said else reading.redactor.clean(step.move.action.arguments)
    return visible_pieces(pretty(given)) if given else []


def _observation(
    step: AgentStep, row: Execution | None, said: dict[str, Any] | None, reading: StepReader
) -> str | None:
    if step.observation is None:
        return None
    if row is None or said is None or row.status != Status.SUCCESS:
        text: str = reading.redactor.clean(step.observation)
        return text
    seen = str(said["observation"])
    if len(seen) <= MOST_OBSERVATION:
        return seen
    return f"{seen[:MOST_OBSERVATION]}\n… {len(seen) - MOST_OBSERVATION:,} more characters"


def _replay_difference(step: AgentStep, before: AgentStep | None) -> str:
    """The difference of a replayed step from the recorded step of the same number, in words."""
    action = step.move.action
    was = before.move.action if before is not None else None
    if before is None:
        return "The recorded run had no such step."
    if action is None and was is None:
        return (
            "" if (step.move.answer is None) == (before.move.answer is None) else "It ended here."
        )
    if action is None:
        return f"The recorded run called {make_visible(was.name[:_MOST_NAME])} here." if was else ""
    if was is None:
        return "The recorded run called nothing here."
    if was.name != action.name:
        return f"The recorded run called {make_visible(was.name[:_MOST_NAME])} here."
    same = json.dumps(was.arguments, sort_keys=True) == json.dumps(action.arguments, sort_keys=True)
    return "" if same else "The recorded run called it with other arguments."


def _planned_step(step: dict[str, Any], reading: StepReader) -> PlannedStep:
    sure, threshold = step["confidence"], step["threshold"]
    below = sure < threshold
    return PlannedStep(
        step,
        reading.clean(step["tool"]),
        reading.clean(step["why"]),
        reading.clean(step["error_message"] or ""),
        _CHIPS.get(step["outcome"], ""),
        Gauge(sure * 100, 0.0, "warn" if below else "good", f"{sure:g}, asked below {threshold:g}"),
        below,
    )
