"""Lint findings of an organization's current catalog, with the grants of its agents."""

from typing import Any
from uuid import UUID

from tools.catalog.snapshot import Snapshot
from tools.catalog.workflow.lint import WorkflowFinding, in_service, lint, with_definition
from tools.catalog.workflow.workflow import EVERY_GROUP
from tools.definitions.tool import read_definition
from tools.models import Agent


def findings(
    snapshot: Snapshot, groups: frozenset[str] = EVERY_GROUP
) -> tuple[WorkflowFinding, ...]:
    granted = granted_to_agents(snapshot.organization_id)
    if groups != EVERY_GROUP:
        return lint(snapshot, groups, granted)
    return snapshot.remember(("lint", granted), lambda: lint(snapshot, groups, granted))


def findings_about(snapshot: Snapshot, name: str) -> list[WorkflowFinding]:
    """Findings about one tool; a disabled tool is checked as if it were enabled."""
    return [one for one in findings(in_service(snapshot, name)) if one.concerns(name)]


def findings_of_proposal(snapshot: Snapshot, written: Any) -> list[WorkflowFinding]:
    """Findings for a definition in any dialect, as if it were saved. Raises `InvalidDefinition`."""
    definition = read_definition(written)
    name = definition["name"]
    return [one for one in findings(with_definition(snapshot, definition)) if one.concerns(name)]


def granted_to_agents(organization_id: UUID) -> frozenset[str] | None:
    """The groups that some agent may request; None where there is no agent yet."""
    held = Agent.objects.filter(organization_id=organization_id, active=True).values_list(
        "service_account__granted_groups", flat=True
    )
    return frozenset().union(*held) if held else None
