"""What the doors show, as plain dicts: the shapes of the API contract, to the letter."""

from decimal import Decimal
from typing import Any

from tools.catalog.credentials import MASK
from tools.catalog.profiles import written
from tools.catalog.registry import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.tool import in_order
from tools.models import (
    Agent,
    EgressCredential,
    Execution,
    LicenseTier,
    Organization,
    SandboxProfile,
    Token,
    ToolVersion,
)
from tools.policy.isolation import effective_level


def tool_shape(tool: CatalogTool) -> dict[str, Any]:
    """A definition in its canonical form, with what the catalog knows about it."""
    return {
        **tool.definition.raw,
        "version": tool.version,
        "enabled": tool.enabled,
        "status": tool.status,
        "digest": tool.digest,
        "signature": {"key_id": tool.key_id, "value": tool.signature},
        "origin": tool.origin,
    }


def tool_here(tool: CatalogTool, snapshot: Snapshot) -> dict[str, Any]:
    """The same, with the level it really runs at in its organization."""
    return tool_shape(tool) | {"effective_isolation": effective_level(tool, snapshot)}


def version_shape(version: ToolVersion) -> dict[str, Any]:
    return {
        "version": version.label,
        "number": version.number,
        "digest": version.digest,
        "signature": {"key_id": version.key_id, "value": version.signature},
        "created_at": moment(version.created_at),
        "created_by": version.created_by,
        "origin": version.origin,
        "definition": in_order(version.definition),
    }


def execution_shape(execution: Execution) -> dict[str, Any]:
    """The whole result of a call (specification S3, 2.2), over or not."""
    identifier = str(execution.pk)
    return {
        "execution_id": identifier,
        "status": execution.status,
        "input": {"tool_name": execution.tool_name, "parameters": execution.parameters},
        "output": execution.output,
        "observation": execution.observation,
        "error_code": execution.error_code or None,
        "error_message": execution.error_message or None,
        "cached": execution.cached,
        "cost": money(execution.cost),
        "metadata": {
            "execution_id": identifier,
            "tool_version": execution.version_label,
            "started_at": moment(execution.started_at),
            "completed_at": moment(execution.completed_at),
            "duration_ms": execution.duration_ms,
            "output_size": execution.output_bytes,
            "sandbox_id": execution.sandbox_id or None,
            "execution_metrics": execution.metrics,
        },
        "session": {
            "id": str(execution.session_id) if execution.session_id else None,
            "state_before": execution.state,
            "state_after": execution.state_after or execution.state,
        },
        "confirmation": None,
        "warnings": execution.warnings,
    }


def group_shape(group: CatalogGroup, tools: list[str]) -> dict[str, Any]:
    return {
        "name": group.name,
        "description": group.description,
        "permissions": sorted(group.permissions),
        "tools": tools,
    }


def agent_shape(agent: Agent, tools: list[str]) -> dict[str, Any]:
    account = agent.service_account
    return {
        "slug": agent.slug,
        "description": agent.description,
        "active": agent.active,
        "strict": agent.strict,
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
        "minimum_isolation": organization.minimum_isolation,
        "allowed_hosts": organization.allowed_hosts,
        "created_at": moment(organization.created_at),
    }


def profile_shape(profile: SandboxProfile) -> dict[str, Any]:
    return {
        **written(profile),
        "created_at": moment(profile.created_at),
        "updated_at": moment(profile.updated_at),
    }


def credential_shape(credential: EgressCredential) -> dict[str, Any]:
    """Never its value."""
    return {
        "name": credential.name,
        "header": credential.header,
        "value": MASK,
        "created_at": moment(credential.created_at),
        "updated_at": moment(credential.updated_at),
    }


def tier_shape(tier: LicenseTier) -> dict[str, Any]:
    return {
        "name": tier.name,
        "rank": tier.rank,
        "builtin_tools": tier.builtin_tools,
        "max_custom_tools": tier.max_custom_tools,
        "custom_sandbox_profiles": tier.custom_sandbox_profiles,
    }


def money(amount: Decimal) -> str:
    """Exact, without needless zeros."""
    return f"{amount.normalize():f}"


def moment(at: Any) -> str | None:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z") if at else None
