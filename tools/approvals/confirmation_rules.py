"""Rules by which an organization requires approval of calls, beyond what its tools require.

A rule fits a call when every given condition does. A rule without any condition would hold every
call of the organization, so it requires `every_call`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import transaction

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.registry import catalog_confirmation_rule
from tools.catalog.snapshot import Snapshot
from tools.catalog.uniqueness import unique
from tools.definitions.texts import names
from tools.errors import Conflict, Malformed, NotFound
from tools.models import Agent, ConfirmationRule, Organization
from tools.policy.approval_requirements import rule_matches_tool

MOST_RULES = 200  # each is checked at every call
_MOST_NAMED = 50
_NONE: dict[str, Any] = {
    "enabled": True,
    "tool": None,
    "group": None,
    "agent": None,
    "min_cost": None,
    "side_effects": False,
    "first_use": False,
    "approvals_needed": 1,
    "every_call": False,
}


@dataclass(frozen=True, slots=True)
class ConfirmationRuleReach:
    """Which tools a rule touches now: the first of them by name, and how many there are."""

    tools: list[str]
    count: int


def describe_rule(row: ConfirmationRule) -> dict[str, Any]:
    """The rule in the form in which it would be created."""
    conditions: dict[str, Any] = {
        "tool": row.tool_name or None,
        "group": row.group_name or None,
        "agent": row.agent.slug if row.agent else None,
        "min_cost": row.min_cost,
        "side_effects": row.side_effects,
        "first_use": row.first_use,
    }
    return {
        "enabled": row.enabled,
        **conditions,
        "approvals_needed": row.approvals_needed,
        "every_call": not any(conditions.values()),
    }


@transaction.atomic
def create_rule(
    *, organization: Organization, name: str, wanted: Mapping[str, Any], by: Actor
) -> ConfirmationRule:
    """A new rule; it applies from the next call on, and to calls that have not begun.

    Raises `Malformed`, `Conflict`, and `NotFound` for an agent that is not there.
    """
    if flaw := names.flaw_in_group(name):
        raise Malformed(f"The name {flaw}.", field="name")
    Organization.objects.next_revision(organization.pk)
    rules = ConfirmationRule.objects.filter(organization=organization)
    if rules.count() >= MOST_RULES:
        raise Conflict(
            f"An organization has at most {MOST_RULES} rules. Delete one first.",
            code="too_many_confirmation_rules",
        )
    row = ConfirmationRule(organization=organization, name=name)
    return _write(row, _NONE | dict(wanted), by)


@transaction.atomic
def change_rule(*, row: ConfirmationRule, wanted: Mapping[str, Any], by: Actor) -> ConfirmationRule:
    """Replace the rule: fields missing in `wanted` get the defaults of a new rule."""
    Organization.objects.next_revision(row.organization_id)
    return _write(row, _NONE | dict(wanted), by)


def merge_changes(row: ConfirmationRule, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with some fields replaced. Giving it a condition makes it a rule for some calls."""
    kept = describe_rule(row)
    if any(changes.get(name) for name in _conditions(_NONE)):
        kept["every_call"] = False
    return kept | dict(changes)


@transaction.atomic
def delete_rule(*, row: ConfirmationRule, by: Actor) -> None:
    """Calls that are held already stay held."""
    Organization.objects.next_revision(row.organization_id)
    said = difference(_plain_values(describe_rule(row)), None)
    row.delete()
    record(
        Event.CONFIRMATION_RULE_DELETE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=row.name,
        details=dict(said),
    )


def find_rule(organization: Organization, name: str) -> ConfirmationRule:
    """Raises `NotFound`, also for another organization's rule."""
    rows = ConfirmationRule.objects.select_related("agent", "organization")
    found = rows.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no rule {name[:100]!r}.", code="confirmation_rule_not_found")
    return found


def reach_of_rule(row: ConfirmationRule, snapshot: Snapshot) -> ConfirmationRuleReach:
    rule = catalog_confirmation_rule(row)
    touched = [
        tool.name
        for tool in snapshot.sorted_tools
        if rule_matches_tool(rule, tool, snapshot.groups_of(tool))
    ]
    return ConfirmationRuleReach(touched[:_MOST_NAMED], len(touched))


def _write(row: ConfirmationRule, wanted: dict[str, Any], by: Actor) -> ConfirmationRule:
    _check(wanted)
    before = None if row._state.adding else _plain_values(describe_rule(row))
    row.enabled = wanted["enabled"]
    row.tool_name = wanted["tool"] or ""
    row.group_name = wanted["group"] or ""
    row.agent = _agent(row.organization, wanted["agent"])
    row.min_cost = wanted["min_cost"]
    row.side_effects = wanted["side_effects"]
    row.first_use = wanted["first_use"]
    row.approvals_needed = wanted["approvals_needed"]
    if before == _plain_values(describe_rule(row)):
        return row
    with unique(f"There is a rule {row.name} already.", code="confirmation_rule_exists"):
        row.save()
    record(
        Event.CONFIRMATION_RULE_CHANGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=row.name,
        details=dict(difference(before, _plain_values(describe_rule(row)))),
    )
    return row


def _check(wanted: dict[str, Any]) -> None:
    if (tool := wanted["tool"]) is not None and not names.TOOL_NAME.fullmatch(tool):
        raise Malformed("tool must be the exact name of a tool, or null.", field="tool")
    if (group := wanted["group"]) is not None and (flaw := names.flaw_in_group(group)):
        raise Malformed(f"The name of the group {flaw}.", field="group")
    if wanted["min_cost"] is not None and wanted["min_cost"] <= 0:
        raise Malformed("min_cost must be more than nothing, or null.", field="min_cost")
    if wanted["approvals_needed"] not in (1, 2):
        raise Malformed("approvals_needed must be 1 or 2.", field="approvals_needed")
    _check_reach(wanted)


def _check_reach(wanted: dict[str, Any]) -> None:
    given = [name for name, value in _conditions(wanted).items() if value]
    if not given and not wanted["every_call"]:
        raise Malformed(
            "The rule names no condition, so it would hold every call. Give one of "
            f"{', '.join(_conditions(_NONE))}, or say every_call: true.",
            code="rule_without_condition",
            field="every_call",
        )
    if given and wanted["every_call"]:
        raise Malformed(
            f"every_call is for a rule without conditions, and this one has {', '.join(given)}.",
            code="rule_with_condition",
            field="every_call",
        )


def _conditions(wanted: dict[str, Any]) -> dict[str, Any]:
    kinds = ("tool", "group", "agent", "min_cost", "side_effects", "first_use")
    return {kind: wanted[kind] for kind in kinds}


def _agent(organization: Organization, slug: str | None) -> Agent | None:
    if slug is None:
        return None
    found = Agent.objects.filter(organization=organization, slug=slug).first()
    if found is None:
        raise NotFound(f"There is no agent {slug[:63]!r}.", code="agent_not_found")
    return found


def _plain_values(rule: dict[str, Any]) -> dict[str, Any]:
    """As evidence keeps it."""
    return {key: str(value) if isinstance(value, Decimal) else value for key, value in rule.items()}
