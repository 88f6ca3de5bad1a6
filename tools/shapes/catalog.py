"""Shapes of the catalog: tools and groups, where tools come from, and what they may reach."""

import json
from base64 import b64encode
from typing import Any

from tools.catalog.group_openings import Closing
from tools.catalog.groups import Member
from tools.catalog.mcp.mcp_servers import written as mcp_written
from tools.catalog.mcp.mcp_tokens import owner_text, owner_texts
from tools.catalog.sandbox.credentials import MASK
from tools.catalog.sandbox.profiles import written
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import ordered_if_valid
from tools.models import (
    ContentSchema,
    ContentSchemaVersion,
    EgressCredential,
    McpAuthorization,
    McpServer,
    SandboxProfile,
    SigningKey,
    ToolService,
    ToolVersion,
)
from tools.policy.isolation_levels import effective_level
from tools.shapes.scalars import moment


def tool_shape(tool: CatalogTool) -> dict[str, Any]:
    """A definition in its canonical form, with what the catalog knows about it."""
    return {
        **tool.definition.raw,
        "version": tool.version,
        "enabled": tool.enabled,
        "status": tool.status,
        "status_reason": tool.status_reason,
        "critical": tool.critical,
        "max_concurrency": tool.max_concurrency,
        "digest": tool.digest,
        "signature": {"key_id": tool.key_id, "value": tool.signature},
        "authentic": not tool.flaw,
        "origin": tool.origin,
        "token_estimate": tool.definition.token_price,
    }


def tool_here(tool: CatalogTool, snapshot: Snapshot) -> dict[str, Any]:
    """The same, with its effective isolation level in its organization."""
    return tool_shape(tool) | {"effective_isolation": effective_level(tool, snapshot)}


def version_shape(version: ToolVersion) -> dict[str, Any]:
    return {
        "version": version.label,
        "number": version.number,
        "digest": version.digest,
        "signature": {"key_id": version.key_id, "value": version.signature},
        "created_at": moment(version.created_at),
        "created_by": version.created_by,
        "change_note": version.note,
        "origin": version.origin,
        "definition": ordered_if_valid(version.definition),
    }


def group_shape(
    group: CatalogGroup,
    *,
    parent: str | None,
    children: list[str],
    closing: Closing | None,
    members: tuple[Member, ...],
    snapshot: Snapshot,
) -> dict[str, Any]:
    """`states`: those in which its tools are available, and those they lead to."""
    definitions = [snapshot.tools[member.tool].definition for member in members]
    leads = {one.raw["state"] for one in definitions}
    return {
        "name": group.name,
        "description": group.description,
        "permissions": sorted(group.permissions),
        "parent": parent,
        "children": children,
        "schedule": list(group.schedule),
        "max_queue_age_s": group.max_queue_age_s,
        "max_cpu_percent": group.max_cpu_percent,
        "open": closing is None,
        "closed_reason": closing.reason if closing else None,
        "tools": [member.tool for member in members],
        "members": [{"tool": member.tool, "through": member.through} for member in members],
        "states": sorted(leads.union(*(one.states for one in definitions)) - {None, WILDCARD}),
    }


def content_schema_shape(row: ContentSchema) -> dict[str, Any]:
    """Of a row `with_latest`."""
    return {
        "name": row.name,
        "kind": row.kind,
        "description": row.description,
        "versions": row.latest,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def mcp_authorization_shape(row: McpAuthorization) -> dict[str, Any]:
    """Without its tokens."""
    return {
        "owner": owner_text(row.owner),
        "issuer": row.issuer,
        "scope": row.scope,
        "good": not row.flaw and row.url == row.server.url,
        "flaw": row.flaw,
        "expires_at": row.expires_at and moment(row.expires_at),
        "connected_by": row.connected_by,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def content_schema_version_shape(version: ContentSchemaVersion) -> dict[str, Any]:
    return {
        "number": version.number,
        "document": version.document,
        "digest": version.digest,
        "note": version.note,
        "created_by": version.created_by,
        "created_at": moment(version.created_at),
    }


def profile_shape(profile: SandboxProfile) -> dict[str, Any]:
    return {
        **written(profile),
        "created_at": moment(profile.created_at),
        "updated_at": moment(profile.updated_at),
    }


def credential_shape(credential: EgressCredential) -> dict[str, Any]:
    """Without its value."""
    return {
        "name": credential.name,
        "header": credential.header,
        "value": MASK,
        "created_at": moment(credential.created_at),
        "updated_at": moment(credential.updated_at),
    }


def service_shape(row: ToolService) -> dict[str, Any]:
    """`announced` is the service's latest announcement, for review."""
    return {
        "id": row.name,
        "request_queue": row.request_queue,
        "response_queue": row.response_queue,
        "config_params": row.config_params,
        "default_groups": row.default_groups,
        "status": row.status,
        "announced": json.loads(row.announcement) if row.announcement else None,
        "announced_digest": row.announced_digest or None,
        "digest": row.digest or None,
        "key": row.key or None,
        "closed_because": row.closed_because or None,
        "lease_until": moment(row.lease_until),
        "last_seen": moment(row.last_seen),
        "created_at": moment(row.created_at),
    }


def mcp_server_shape(server: McpServer) -> dict[str, Any]:
    """Without the values of its headers."""
    return {
        **mcp_written(server),
        "status": _mcp_status(server),
        "tools": None if server.snapshot is None else len(server.snapshot),
        "protocol": server.protocol,
        "snapshot_at": server.snapshot_at and moment(server.snapshot_at),
        "findings": server.findings,
        "last_seen_at": server.last_seen_at and moment(server.last_seen_at),
        "last_error": server.last_error,
        "dead_since": server.dead_since and moment(server.dead_since),
        "credentials": sorted(owner_texts(one.owner for one in server.credentials.all()).values()),
        "created_at": moment(server.created_at),
    }


def _mcp_status(server: McpServer) -> str:
    if not server.enabled:
        return "disabled"
    if server.dead_since is not None:
        return "dead"
    return "unknown" if server.last_seen_at is None else "alive"


def signing_key_shape(row: SigningKey) -> dict[str, Any]:
    return {
        "key_id": row.key_id,
        "public_key": b64encode(bytes(row.public)).decode("ascii"),
        "created_at": row.created_at,
        "retired_at": row.retired_at,
        "distrusted_at": row.distrusted_at,
    }
