"""Which field of an object calls which action: one rule for the API, pages and the Django admin."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from audit.actions import Actor
from sandbox.spec import IsolationLevel
from tools.accounts import account_actions
from tools.accounts.grants import grant_actions
from tools.authorization import pins
from tools.definitions.callers import Caller
from tools.insight.impact_previews import change_organization_tier
from tools.licensing.licenses import TierImpact
from tools.limits import allowances
from tools.models import Agent, Organization

LIMITS = ("max_concurrency", "max_queue_depth")
WORKSPACE_QUOTA = ("workspace_max_files", "workspace_max_bytes")
GRANTS = ("groups", "tools", "tool_groups", "permissions")
ALLOWANCES = ("budget", "quotas")


@transaction.atomic
def change_organization_fields(
    *, organization: Organization, by: Actor, changes: Mapping[str, Any]
) -> TierImpact | None:
    """Change the given fields, all or nothing. Returns the effects of another tier, which needs
    the `preview_mark` of its preview where something follows."""
    impact = None
    if "tier" in changes:
        impact = change_organization_tier(
            organization=organization,
            tier=changes["tier"],
            by=by,
            mark=changes.get("preview_mark", ""),
        )
    if "name" in changes:
        name = changes["name"]
        account_actions.rename_organization(organization=organization, name=name, by=by)
    if "minimum_isolation" in changes:
        minimum = IsolationLevel(changes["minimum_isolation"])
        account_actions.set_isolation(organization=organization, minimum=minimum, by=by)
    if "allowed_hosts" in changes:
        hosts = changes["allowed_hosts"]
        account_actions.set_allowed_hosts(organization=organization, hosts=hosts, by=by)
    if "time_zone" in changes:
        zone = changes["time_zone"]
        account_actions.set_time_zone(organization=organization, name=zone, by=by)
    if limits := _select(changes, LIMITS):
        account_actions.set_limits(organization=organization, by=by, **limits)
    if quota := _select(changes, WORKSPACE_QUOTA):
        account_actions.set_workspace_quota(organization=organization, by=by, **quota)
    if "output_days" in changes:
        days = changes["output_days"]
        account_actions.set_output_days(organization=organization, days=days, by=by)
    return impact


def change_agent_fields(
    *, agent: Agent, by: Actor, giver: Caller, changes: Mapping[str, Any]
) -> None:
    """Change the given fields. The caller has opened the transaction."""
    if grants := _select(changes, GRANTS):
        grant_actions.set_grants(agent=agent, by=by, giver=giver, **grants)
    if bounds := _select(changes, ALLOWANCES):
        allowances.set_allowances(agent=agent, by=by, changes=bounds)
    if "pins" in changes:
        pins.set_pins(agent=agent, pins=changes["pins"], by=by, giver=giver)
    others = {
        name: value for name, value in changes.items() if name not in (*GRANTS, *ALLOWANCES, "pins")
    }
    if others:
        account_actions.change_agent(agent=agent, by=by, **others)


def _select(changes: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: changes[name] for name in fields if name in changes}
