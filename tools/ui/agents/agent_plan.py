"""The plan of an agent request as readers see it: the confidence of each step and its outcome."""

from dataclasses import dataclass
from typing import Any

from tools.ui.agents.agent_steps import Reading
from tools.ui.gauges import Gauge
from tools.ui.visible import VisiblePiece

_CHIPS = {
    "running": "Running",
    "waiting": "RequiresConfirmation",
    "succeeded": "Success",
    "failed": "Failed",
    "refused": "PermissionDenied",
    "skipped": "Cancelled",
}


@dataclass(frozen=True)
class PlannedStep:
    """`below`: the confidence is below the threshold, so the step needed approval."""

    told: dict[str, Any]
    tool: list[VisiblePiece]
    why: list[VisiblePiece]
    message: list[VisiblePiece]
    chip: str
    sure: Gauge
    below: bool


@dataclass(frozen=True)
class ShownPlan:
    revisions: int
    steps: list[PlannedStep]


def shown_plan(plan: dict[str, Any] | None, reading: Reading) -> ShownPlan | None:
    """None for a request without a plan, or without one yet."""
    if not plan or not plan.get("steps"):
        return None
    return ShownPlan(plan["revisions"], [_shown(one, reading) for one in plan["steps"]])


def _shown(told: dict[str, Any], reading: Reading) -> PlannedStep:
    sure, threshold = told["confidence"], told["threshold"]
    below = sure < threshold
    return PlannedStep(
        told,
        reading.clean(told["tool"]),
        reading.clean(told["why"]),
        reading.clean(told["error_message"] or ""),
        _CHIPS.get(told["outcome"], ""),
        Gauge(sure * 100, 0.0, "warn" if below else "good", f"{sure:g}, asked below {threshold:g}"),
        below,
    )
