"""Shapes of reports: usage, explanations of refusals, and previews of changes."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from tools.catalog.snapshot import Snapshot
from tools.insight.explain import Explained, Explanation
from tools.insight.replay import MOST_TURNED, ChangedVerdict
from tools.insight.whatif import ImpactPreview
from tools.policy.isolation_levels import effective_level
from tools.shapes.scalars import moment, money
from tools.usage.usage_reports import UsageReport, UsageTotals


def usage_shape(found: UsageReport, by: Sequence[str], time_zone: str) -> dict[str, Any]:
    return {
        "since": found.since.isoformat(),
        "until": found.until.isoformat(),
        "time_zone": time_zone,
        "by": by,
        "results": [values | _figures(figures) for values, figures in found.rows],
        "truncated": found.truncated,
    }


def _figures(figures: UsageTotals) -> dict[str, Any]:
    return asdict(figures) | {"cost": money(figures.cost)}


def explained_shape(explained: Explained, snapshot: Snapshot) -> dict[str, Any]:
    refused_by = explained.refused_by
    return {
        "tool": explained.tool.name,
        "available": explained.available,
        "refused_by": refused_by.gate if refused_by else None,
        "held": explained.needs_approval,
        "effective_isolation": effective_level(explained.tool, snapshot),
        "gates": [row.as_dict() for row in explained.rows],
    }


def request_shape(explanation: Explanation) -> dict[str, Any]:
    return {
        "caller": explanation.caller.name,
        "groups": sorted(explanation.asked.groups),
        "state": explanation.asked.state,
        "gates": [row.as_dict() for row in explanation.request],
    }


MOST_NAMED = 50


def difference_shape(found: ImpactPreview) -> dict[str, Any]:
    """Long lists are cut; their counts are not."""
    calls = found.calls
    return {
        "since": moment(found.since),
        "until": moment(found.until),
        "agents": {
            "looked_at": len(found.agents),
            "cut": found.cut,
            "results": [
                {
                    "agent": one.agent,
                    "added": one.added[:MOST_NAMED],
                    "removed": one.removed[:MOST_NAMED],
                    "added_count": len(one.added),
                    "removed_count": len(one.removed),
                }
                for one in found.seen
            ],
        },
        "calls": calls
        and {
            "looked_at": calls.calls,
            "combinations": calls.combinations,
            "cut": calls.cut,
            "would_be_refused": _turned(calls.calls_refused, calls.would_be_refused, found.agents),
            "would_pass": _turned(calls.calls_passed, calls.would_pass, found.agents),
        },
    }


def _turned(calls: int, turned: list[ChangedVerdict], agents: dict[UUID, str]) -> dict[str, Any]:
    return {
        "calls": calls,
        "results": [
            {
                "agent": agents[one.combination.agent_id],
                "tool": one.combination.tool,
                "group": one.combination.groups,
                "state": one.combination.state,
                "calls": one.combination.calls,
                "gate": one.verdict.gate,
                "code": one.verdict.code,
                "reason": one.verdict.reason,
            }
            for one in turned[:MOST_TURNED]
        ],
    }
