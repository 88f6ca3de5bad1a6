"""Services and servers in an import, matched with the existing ones."""

from typing import Any

from audit.actions import Actor
from tools.catalog.mcp.mcp_servers import change_server, create_server, delete_server
from tools.catalog.mcp.mcp_servers import written as server_written
from tools.catalog.mcp.mcp_values import UnreadableMcpValue, opened_secrets
from tools.catalog.services.services import (
    COLUMNS,
    change_service,
    create_service,
    delete_service,
    written,
)
from tools.definitions import services
from tools.definitions.descriptors import canonical_key
from tools.definitions.dialects.import_references import KnownReferences
from tools.definitions.servers import MASK, ServerDescriptor, ServerTransport
from tools.definitions.services import Descriptor
from tools.models import McpServer, Organization, ToolService


def save_service(*, organization: Organization, descriptor: Descriptor, by: Actor) -> bool:
    """Whether there was none of that name. Raises `InvalidDefinition`, `Conflict`."""
    row = ToolService.objects.filter(organization=organization, name=descriptor["id"]).first()
    if row is None:
        create_service(organization=organization, service=descriptor, by=by)
        return True
    change_service(row=row, changes={name: descriptor[name] for name in COLUMNS}, by=by)
    return False


def save_server(*, organization: Organization, descriptor: ServerDescriptor, by: Actor) -> bool:
    """Whether there was none of that name. Raises `Malformed`."""
    row = McpServer.objects.filter(organization=organization, name=descriptor.name).first()
    if row is None:
        create_server(organization=organization, server=_descriptor_fields(descriptor), by=by)
        return True
    change_server(row=row, changes=_descriptor_fields(descriptor), by=by)
    return False


def _descriptor_fields(descriptor: ServerDescriptor) -> dict[str, Any]:
    return {canonical_key(key): value for key, value in descriptor.written().items()}


def is_unchanged_service(organization: Organization, descriptor: Descriptor) -> bool:
    """Whether the service is there already, and as it is wanted."""
    row = ToolService.objects.filter(organization=organization, name=descriptor["id"]).first()
    return row is not None and all(getattr(row, name) == descriptor[name] for name in COLUMNS)


def is_unchanged_server(organization: Organization, descriptor: ServerDescriptor) -> bool:
    """Whether the server is there already, with the same secrets too."""
    row = McpServer.objects.filter(organization=organization, name=descriptor.name).first()
    return row is not None and _is_unchanged_part(_descriptor_fields(descriptor), kept_server(row))


def _is_unchanged_part(said: dict[str, Any], kept: dict[str, Any]) -> bool:
    return all(_is_unchanged(value, kept.get(key)) for key, value in said.items())


def _is_unchanged(said: Any, kept: Any) -> bool:
    """The mask in place of a value keeps it."""
    if isinstance(said, dict) and isinstance(kept, dict):
        return said.keys() == kept.keys() and all(
            value in (MASK, kept[key]) for key, value in said.items()
        )
    return bool(said == kept)


def kept_server(row: McpServer) -> dict[str, Any]:
    """With its secrets opened; without them where they cannot be read."""
    kept = server_written(row)
    try:
        secret = opened_secrets(
            bytes(row.sealed or b""), organization=row.organization_id, row=row.pk
        )
    except UnreadableMcpValue:
        return kept
    return kept | {name: {**kept[name], **secret.get(name, {})} for name in ("headers", "env")}


def known_sources(organization: Organization) -> KnownReferences:
    """Existing services and servers that tools of an import may refer to."""
    there = ToolService.objects.filter(organization=organization)
    servers = McpServer.objects.filter(organization=organization)
    return KnownReferences(
        services={row.name: row.config_params for row in there},
        servers=dict(servers.values_list("name", "remote_name")),
    )


def service_descriptor(row: ToolService) -> dict[str, Any]:
    """As specification S2 writes it."""
    return services.service_document({"id": row.name, **written(row)})


def server_descriptor(row: McpServer) -> ServerDescriptor:
    """As an import reads it again, with the mask in place of every value."""
    return ServerDescriptor(
        name=row.name,
        transport=ServerTransport(row.transport),
        url=row.url,
        headers=dict.fromkeys(row.headers, MASK),
        command=row.command,
        args=tuple(row.args),
        env=dict.fromkeys(row.env, MASK),
        remote_name=row.remote_name,
        group=None if row.default_groups is None else tuple(row.default_groups),
        enabled=row.enabled,
    )


def delete_source(*, row: ToolService | McpServer, by: Actor) -> None:
    """Raises `Conflict` while a tool is of it: the tool would have nothing to run."""
    if isinstance(row, ToolService):
        delete_service(row=row, by=by)
    else:
        delete_server(row=row, by=by)
