"""The execution pipeline of one call: the gates that it passed, and the duration of each phase.

Gates are evaluated together, within one request, without a time for each: only the time of the
evaluation and the durations of the phases in between are known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tools.definitions.results import REFUSED, Status
from tools.models import Execution
from tools.ui.display import milliseconds
from tools.ui.workflow.explain import LABELS

# In the order of evaluation, by the names in refusals.
GATES = (
    "nesting", "accountable", "granted_groups", "status", "group", "group_open", "source_open",
    "state", "object_permission", "required_permissions", "license", "sandbox_profile",
    "isolation_license", "isolation", "network", "rate", "validate_arguments", "budget",
    "confirmation",
)  # fmt: skip
_MORE_LABELS = {
    "nesting": "Depth",
    "accountable": "Evidence",
    "validate_arguments": "Arguments",
    "pressure": "Load",
    "parent": "Its parent",
}
_LEAST = 0.6  # percent of the drawing, so that a short phase is visible
_SOON = timedelta(milliseconds=1)


@dataclass(frozen=True)
class ExecutionGateResult:
    """`word` is yes, no, or – for a gate that was not evaluated."""

    name: str
    word: str
    code: str
    at: datetime | None


@dataclass(frozen=True)
class Stretch:
    """A phase between the call and its end; `x` and `width` are percent."""

    kind: str
    name: str
    begins: datetime
    took: str
    x: float
    width: float


@dataclass(frozen=True)
class Road:
    gates: list[ExecutionGateResult]
    again: bool  # whether the gates were evaluated again when the call started
    stretches: list[Stretch]
    total: str
    open: bool

    @property
    def says(self) -> str:
        told = ", ".join(f"{one.name.lower()} {one.took}" for one in self.stretches)
        return f"{self.total} from the call to {'now' if self.open else 'its end'}: {told}"


def road_of(execution: Execution) -> Road:
    end = execution.completed_at or timezone.now()
    total = max(end - execution.created_at, timedelta(microseconds=1))
    return Road(
        gates=list(_gates(execution)),
        again=execution.started_at is not None,
        stretches=list(_stretches(execution, end, total)),
        total=_said(total),
        open=not execution.over,
    )


def _gates(execution: Execution) -> Iterator[ExecutionGateResult]:
    refused = execution.status in REFUSED
    no = str(execution.error_details.get("gate") or "") if refused else ""
    late = refused and execution.started_at is not None
    at = execution.started_at if late else execution.created_at
    held = execution.status == Status.REQUIRES_CONFIRMATION
    names = GATES if not no or no in GATES else (*GATES, no)
    stopped = False
    for name in names:
        label = LABELS.get(name) or _MORE_LABELS.get(name, name.replace("_", " ").capitalize())
        if name == no:
            stopped = True
            yield ExecutionGateResult(label, "no", execution.error_code, at)
        elif stopped or (refused and not no):
            yield ExecutionGateResult(label, "–", "", None)
        elif name == "confirmation" and held:
            yield ExecutionGateResult(label, "asks", "", execution.created_at)
        else:
            yield ExecutionGateResult(label, "yes", "", at)


def _stretches(execution: Execution, end: datetime, total: timedelta) -> Iterator[Stretch]:
    begun = execution.created_at
    at = 0.0
    for kind, name, begins, ends in _parts(execution, end):
        length = ends - begins
        share = length / total * 100
        width = max(_LEAST, share) if length else 0.0
        x = min(max(at, (begins - begun) / total * 100), 100 - width)
        at = x + width
        yield Stretch(kind, name, begins, _said(length), x, width)


def _parts(execution: Execution, end: datetime) -> Iterator[tuple[str, str, datetime, datetime]]:
    """The known phases in order."""
    created, started = execution.created_at, execution.started_at
    queued = created if execution.composite else min(execution.queued_at, started or end)
    if execution.status == Status.REQUIRES_CONFIRMATION:
        yield "held", "Held for a person", created, end
        return
    if queued - created > _SOON and not execution.attempt > 1:
        yield "held", "Held for a person", created, queued
    else:
        queued = created
    if started is None:
        if end - queued > _SOON:
            yield "queued", "Waited for a worker", queued, end
        return
    yield "queued", "Waited for a worker", queued, started
    wall = timedelta(milliseconds=_number(execution.metrics.get("sandbox_start_ms")))
    wall = min(wall, end - started)
    if wall:
        yield "wall", "Sandbox began", started, started + wall
    yield "ran", "Ran", started + wall, end


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0


def _said(length: timedelta) -> str:
    return milliseconds(length.total_seconds() * 1000)
