"""Shapes of organizations and agents: tokens, licenses, tiers, quotas and budgets."""

from typing import Any

from tools.catalog.tiers import standing_of
from tools.limits.allowances import AllowanceStatus
from tools.models import Agent, LicenseTier, Organization, Token
from tools.shapes.scalars import moment, money


def agent_shape(agent: Agent, tools: list[str]) -> dict[str, Any]:
    account = agent.service_account
    return {
        "slug": agent.slug,
        "description": agent.description,
        "active": agent.active,
        "strict": agent.strict,
        "max_in_flight": agent.max_in_flight,
        "groups": account.granted_groups,
        "tools": tools,
        "permissions": account.granted_permissions,
        "created_at": moment(agent.created_at),
    }


def token_shape(token: Token) -> dict[str, Any]:
    return {
        "id": str(token.pk),
        "label": token.label,
        "prefix": f"tcr_{token.public_id}",
        "scopes": token.scopes,
        "groups": token.groups,
        "tools": token.tools,
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
        "last_used_at": moment(token.last_used_at),
        "revoked_at": moment(token.revoked_at),
    }


def organization_shape(organization: Organization) -> dict[str, Any]:
    return {
        "slug": organization.slug,
        "name": organization.name,
        "tier": organization.tier.name,
        "license": license_shape(organization),
        "minimum_isolation": organization.minimum_isolation,
        "allowed_hosts": organization.allowed_hosts,
        "time_zone": organization.time_zone,
        "max_concurrency": organization.max_concurrency,
        "max_queue_depth": organization.max_queue_depth,
        "workspace_max_files": organization.workspace_max_files,
        "workspace_max_bytes": organization.workspace_max_bytes,
        "output_days": organization.output_days,
        "created_at": moment(organization.created_at),
    }


def license_shape(organization: Organization) -> dict[str, Any]:
    """The state of the license. `effective_tier` is the lowest one when it has expired."""
    standing = standing_of(organization)
    return {
        "id": standing.license_id or None,
        "expires_at": moment(standing.expires_at),
        "grace_ends_at": moment(standing.grace_ends_at),
        "state": standing.state,
        "effective_tier": standing.tier.name,
    }


def tier_shape(tier: LicenseTier) -> dict[str, Any]:
    return {
        "name": tier.name,
        "rank": tier.rank,
        "builtin_tools": tier.builtin_tools,
        "max_custom_tools": tier.max_custom_tools,
        "isolation_levels": tier.isolation_levels,
        "custom_sandbox_profiles": tier.custom_sandbox_profiles,
    }


def allowances_shape(standings: list[AllowanceStatus]) -> dict[str, Any]:
    """The budget, which is among the quotas too."""
    budget = next((one for one in standings if one.is_budget), None)
    return {
        "budget": _allowance_fields(budget) if budget else None,
        "quotas": [
            {"tool": one.tool_name or None, "kind": one.kind} | _allowance_fields(one)
            for one in standings
        ],
    }


def _allowance_fields(one: AllowanceStatus) -> dict[str, Any]:
    return {
        "amount": money(one.amount),
        "period": one.period,
        "used": money(one.used),
        "held": money(one.held),
        "resets_at": moment(one.resets_at),
    }
