"""Resource usage of an execution against its limits: time, CPU, memory, output."""

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat

from sandbox.spec import Limits
from tools.catalog.registry import CatalogProfile, Snapshot
from tools.definitions.tool import ToolDefinition
from tools.models import Execution
from tools.ui.charts import Gauge, gauge
from tools.ui.display import milliseconds


@dataclass(frozen=True)
class ExecutionMeter:
    name: str
    gauge: Gauge


@dataclass(frozen=True)
class Meters:
    """`profile` names the sandbox profile whose current limits are shown."""

    rows: list[ExecutionMeter]
    profile: str
    walled: bool


def meters_of(execution: Execution, snapshot: Snapshot) -> Meters | None:
    """None for a call that has not run."""
    if not execution.over or execution.started_at is None:
        return None
    definition = ToolDefinition(execution.tool_version.definition)
    profile = snapshot.profiles.get(definition.sandbox_profile or "")
    rows = [] if execution.duration_ms is None else [_time(execution, execution.duration_ms)]
    if execution.sandbox_id:
        rows += _walled(execution, profile)
    if execution.output_bytes is not None:
        most = definition.max_output_bytes
        rows.append(_meter("Output", execution.output_bytes, most, _size(execution.output_bytes),
                           _size(most)))  # fmt: skip
    if not rows:
        return None
    return Meters(rows, profile.name if profile else "", bool(execution.sandbox_id))


def _time(execution: Execution, used: float) -> ExecutionMeter:
    most = execution.timeout_s * 1000
    return _meter("Wall clock", used, most, milliseconds(used), milliseconds(most))


def _walled(execution: Execution, profile: CatalogProfile | None) -> list[ExecutionMeter]:
    """Meters by the limits of the current sandbox profile, or by the defaults of every sandbox."""
    usual = Limits()
    cpu_s, memory = (
        (profile.cpu_s, profile.memory_bytes) if profile else (usual.cpu_s, usual.memory_bytes)
    )
    found = []
    if isinstance(used := execution.metrics.get("cpu_time_ms"), int | float):
        found.append(
            _meter("Processor", used, cpu_s * 1000, milliseconds(used), milliseconds(cpu_s * 1000))
        )
    if isinstance(used := execution.metrics.get("peak_memory_bytes"), int | float) and used:
        found.append(_meter("Peak memory", used, memory, _size(used), _size(memory)))
    return found


def _meter(name: str, used: float, most: float, said: str, bound: str) -> ExecutionMeter:
    return ExecutionMeter(name, gauge(used, most, f"{said} of {bound}"))


def _size(size: float) -> str:
    return filesizeformat(size).replace("\xa0", " ")
