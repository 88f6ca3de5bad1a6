"""The dashboard asks for metrics that there are."""

import json
import re

from prometheus_client import REGISTRY

from audit import metrics as audit_metrics
from tests.crib import CHECKOUT
from tools import metrics

DASHBOARD = json.loads((CHECKOUT / "examples/grafana/toolcrib.json").read_text("utf-8"))
NINE = {
    "agent_tool_group_requests_total", "agent_tool_group_availability",
    "agent_filtered_tools_count", "agent_state_transitions_total",
    "agent_workflow_duration_seconds", "agent_state_availability",
    "agent_group_access_denied_total", "agent_invalid_state_transition_total",
    "agent_privilege_escalation_attempts_total",
}  # fmt: skip


def dashboard_metrics() -> set[str]:
    expressions = [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
    ]
    names = re.findall(r"\b(?:agent|toolcrib)_[a-z_]+", " ".join(expressions))
    return {name.removesuffix("_bucket") for name in names}


def registered_metrics() -> set[str]:
    assert metrics and audit_metrics
    return {name for family in REGISTRY.collect() for name in (family.name, f"{family.name}_total")}


def test_every_metric_of_the_dashboard_is_measured():
    assert dashboard_metrics() - registered_metrics() == set()


def test_the_nine_metrics_of_the_specification_are_measured_and_shown():
    assert NINE - registered_metrics() == set()
    assert NINE - dashboard_metrics() == set()


def test_no_panel_overlaps_another():
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
