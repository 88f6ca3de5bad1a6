"""What the page of one execution shows beside its result: its timeline through the execution
pipeline, its resource usage, and its child calls.

Gates are evaluated together, within one request, without a time for each: only the time of the
evaluation and the durations of the phases in between are known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from sandbox.spec import Limits
from tools.catalog.snapshot import CatalogProfile, Snapshot
from tools.definitions.results import OPEN, REFUSED, Status
from tools.definitions.tool import ToolDefinition
from tools.models import Execution
from tools.policy.gates import GATES
from tools.policy.questions import Gate
from tools.ui.charts import Gauge, gauge
from tools.ui.display import format_duration
from tools.ui.workflow.explanations import GATE_LABELS
from tools.workflows.nested_calls import NestedCall, absent_calls

_MORE_LABELS = {
    Gate.NESTING: "Depth",
    Gate.ACCOUNTABLE: "Evidence",
    Gate.ARGUMENTS: "Arguments",
    "pressure": "Load",  # of calls that an earlier release refused
    "parent": "Its parent",
}
_MIN_WIDTH = 0.6  # percent of the drawing, so that a short phase is visible
_NEGLIGIBLE = timedelta(milliseconds=1)
MOST_CHILD_CALLS = 100


@dataclass(frozen=True)
class ExecutionGateResult:
    """`word` is yes, no, or – for a gate that was not evaluated."""

    name: str
    word: str
    code: str
    at: datetime | None


@dataclass(frozen=True)
class ExecutionPhase:
    """A phase between the call and its end; `x` and `width` are percent."""

    kind: str
    name: str
    begins: datetime
    took: str
    x: float
    width: float


@dataclass(frozen=True)
class ExecutionTimeline:
    gates: list[ExecutionGateResult]
    again: bool  # whether the gates were evaluated again when the call started
    phases: list[ExecutionPhase]
    total: str
    open: bool

    @property
    def summary(self) -> str:
        phases = ", ".join(f"{one.name.lower()} {one.took}" for one in self.phases)
        return f"{self.total} from the call to {'now' if self.open else 'its end'}: {phases}"


@dataclass(frozen=True)
class ExecutionMeter:
    name: str
    gauge: Gauge


@dataclass(frozen=True)
class UsageFigures:
    """`profile` names the sandbox profile whose current limits are shown."""

    rows: list[ExecutionMeter]
    profile: str
    in_sandbox: bool


@dataclass(frozen=True)
class ChildCalls:
    """The latest child calls, and the number of all of them by status."""

    rows: list[Execution]
    counts: list[dict[str, Any]]
    absent: list[NestedCall]
    total: int
    open: int

    @property
    def more(self) -> int:
        return self.total - len(self.rows)

    @property
    def awaits_approval(self) -> bool:
        """Whether one of them awaits approval."""
        return any(one["status"] == Status.REQUIRES_CONFIRMATION for one in self.counts)

    @property
    def fingerprint(self) -> str:
        """A fingerprint that changes when a call changes."""
        known = [f"{one['status']}{one['count']}" for one in self.counts]
        return "-".join([*known, str(len(self.absent))])


def execution_timeline(execution: Execution) -> ExecutionTimeline:
    end = execution.completed_at or timezone.now()
    total = max(end - execution.created_at, timedelta(microseconds=1))
    return ExecutionTimeline(
        gates=list(_gate_results(execution)),
        again=execution.started_at is not None,
        phases=list(_phases(execution, end, total)),
        total=_duration_text(total),
        open=not execution.is_final,
    )


def resource_usage(execution: Execution, snapshot: Snapshot) -> UsageFigures | None:
    """None for a call that has not run."""
    if not execution.is_final or execution.started_at is None:
        return None
    definition = ToolDefinition(execution.tool_version.definition)
    profile = snapshot.profiles.get(definition.sandbox_profile or "")
    rows = (
        []
        if execution.duration_ms is None
        else [_wall_clock_meter(execution, execution.duration_ms)]
    )
    if execution.sandbox_id:
        rows += _sandbox_meters(execution, profile)
    if execution.output_bytes is not None:
        used, most = execution.output_bytes, definition.max_output_bytes
        rows.append(_meter("Output", used, most, _size_text(used), _size_text(most)))
    if not rows:
        return None
    return UsageFigures(rows, profile.name if profile else "", bool(execution.sandbox_id))


def child_calls(execution: Execution) -> ChildCalls | None:
    """None for a call that makes no calls."""
    if not execution.composite:
        return None
    found = Execution.objects.children_of(execution.pk)
    counted = found.values("status").annotate(count=Count("pk")).order_by("status")
    counts: list[dict[str, Any]] = [dict(one) for one in counted]
    rows = list(
        found.only(
            "place", "tool_name", "status", "parked_below", "duration_ms", "error_code",
            "created_at",
        ).order_by("-created_at", "-pk")[:MOST_CHILD_CALLS]
    )  # fmt: skip
    for row in rows:
        row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
    absent = list(absent_calls(execution.memory).values())[:MOST_CHILD_CALLS]
    total = sum(one["count"] for one in counts)
    return ChildCalls(
        rows[::-1],
        counts,
        absent,
        total,
        sum(one["count"] for one in counts if one["status"] in OPEN),
    )


def _gate_results(execution: Execution) -> Iterator[ExecutionGateResult]:
    refused = execution.status in REFUSED
    no = str(execution.error_details.get("gate") or "") if refused else ""
    late = refused and execution.started_at is not None
    at = execution.started_at if late else execution.created_at
    held = execution.status == Status.REQUIRES_CONFIRMATION
    names: list[str] = [check.name for check in GATES]
    if no and no not in names:
        names.append(no)
    stopped = False
    for name in names:
        label = GATE_LABELS.get(name) or _MORE_LABELS.get(name, name.replace("_", " ").capitalize())
        if name == no:
            stopped = True
            yield ExecutionGateResult(label, "no", execution.error_code, at)
        elif stopped or (refused and not no):
            yield ExecutionGateResult(label, "–", "", None)
        elif name == Gate.CONFIRMATION and held:
            yield ExecutionGateResult(label, "asks", "", execution.created_at)
        else:
            yield ExecutionGateResult(label, "yes", "", at)


def _phases(execution: Execution, end: datetime, total: timedelta) -> Iterator[ExecutionPhase]:
    begun = execution.created_at
    at = 0.0
    for kind, name, begins, ends in _phase_times(execution, end):
        length = ends - begins
        share = length / total * 100
        width = max(_MIN_WIDTH, share) if length else 0.0
        x = min(max(at, (begins - begun) / total * 100), 100 - width)
        at = x + width
        yield ExecutionPhase(kind, name, begins, _duration_text(length), x, width)


def _phase_times(
    execution: Execution, end: datetime
) -> Iterator[tuple[str, str, datetime, datetime]]:
    """The known phases in order."""
    created, started = execution.created_at, execution.started_at
    queued = created if execution.composite else min(execution.queued_at, started or end)
    if execution.status == Status.REQUIRES_CONFIRMATION:
        yield "held", "Held for a person", created, end
        return
    if queued - created > _NEGLIGIBLE and not execution.attempt > 1:
        yield "held", "Held for a person", created, queued
    else:
        queued = created
    if started is None:
        if end - queued > _NEGLIGIBLE:
            yield "queued", "Waited for a worker", queued, end
        return
    yield "queued", "Waited for a worker", queued, started
    sandbox_start = timedelta(milliseconds=_non_negative(execution.metrics.get("sandbox_start_ms")))
    sandbox_start = min(sandbox_start, end - started)
    if sandbox_start:
        yield "sandbox", "Sandbox began", started, started + sandbox_start
    yield "ran", "Ran", started + sandbox_start, end


def _non_negative(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0


def _duration_text(length: timedelta) -> str:
    return format_duration(length.total_seconds() * 1000)


def _wall_clock_meter(execution: Execution, used: float) -> ExecutionMeter:
    most = execution.timeout_s * 1000
    return _meter("Wall clock", used, most, format_duration(used), format_duration(most))


def _sandbox_meters(execution: Execution, profile: CatalogProfile | None) -> list[ExecutionMeter]:
    """Meters by the limits of the current sandbox profile, or by the defaults of every sandbox."""
    usual = Limits()
    cpu_s, memory = (
        (profile.cpu_s, profile.memory_bytes) if profile else (usual.cpu_s, usual.memory_bytes)
    )
    found = []
    if isinstance(used := execution.metrics.get("cpu_time_ms"), int | float):
        found.append(
            _meter(
                "Processor",
                used,
                cpu_s * 1000,
                format_duration(used),
                format_duration(cpu_s * 1000),
            )
        )
    if isinstance(used := execution.metrics.get("peak_memory_bytes"), int | float) and used:
        found.append(_meter("Peak memory", used, memory, _size_text(used), _size_text(memory)))
    return found


def _meter(name: str, used: float, most: float, said: str, bound: str) -> ExecutionMeter:
    return ExecutionMeter(name, gauge(used, most, f"{said} of {bound}"))


def _size_text(size: float) -> str:
    return filesizeformat(size).replace("\xa0", " ")
