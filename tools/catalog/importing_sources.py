"""Services and servers that come with an import, and those that are there already."""

from typing import Any

from django.db import transaction

from audit.actions import Actor, record
from audit.changes import difference
from audit.events import Event, Outcome
from tools.catalog.services import COLUMNS, change_service, create_service, delete_service, written
from tools.catalog.sources import save_source
from tools.definitions import services
from tools.definitions.dialects.settling import Known
from tools.definitions.servers import ServerDescriptor
from tools.definitions.services import Descriptor
from tools.errors import Conflict
from tools.models import McpServer, Organization, Tool, ToolService


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
    rows = McpServer.objects.filter(organization=organization, name=descriptor.name)
    created = not rows.exists()
    groups = descriptor.group
    save_source(
        kind=McpServer,
        organization=organization,
        name=descriptor.name,
        by=by,
        default_groups=None if groups is None else list(groups),
    )
    return created


def same_service(organization: Organization, descriptor: Descriptor) -> bool:
    """Whether the service is there already, and as it is wanted."""
    row = ToolService.objects.filter(organization=organization, name=descriptor["id"]).first()
    return row is not None and all(getattr(row, name) == descriptor[name] for name in COLUMNS)


def same_server(organization: Organization, descriptor: ServerDescriptor) -> bool:
    row = McpServer.objects.filter(organization=organization, name=descriptor.name).first()
    groups = None if descriptor.group is None else list(descriptor.group)
    return row is not None and row.default_groups == groups


def known_sources(organization: Organization) -> Known:
    """What tools of an import may refer to without its coming along."""
    there = ToolService.objects.filter(organization=organization)
    servers = McpServer.objects.filter(organization=organization).values_list("name", flat=True)
    return Known(
        services={row.name: row.config_params for row in there},
        servers=dict.fromkeys(servers, ""),
    )


def service_descriptor(row: ToolService) -> dict[str, Any]:
    """As specification S2 writes it."""
    return services.written({"id": row.name, **written(row)})


@transaction.atomic
def delete_source(*, row: ToolService | McpServer, by: Actor) -> None:
    """Raises `Conflict` while a tool is of it: the tool would have nothing to run."""
    if isinstance(row, ToolService):
        delete_service(row=row, by=by)
        return
    Organization.objects.next_revision(row.organization_id)
    tools = Tool.objects.present().filter(
        organization_id=row.organization_id,
        version__definition__implementation__server=row.name,
    )
    if names := list(tools.values_list("name", flat=True)[:20]):
        raise Conflict(
            f"{row.name} is named by the tools {', '.join(names)}.",
            code="has_dependants",
            dependants=names,
        )
    before = {"default_groups": row.default_groups}
    said = {"kind": row._meta.model_name, **difference(before, None)}
    record(Event.SOURCE_CHANGE, by=by, outcome=Outcome.CHANGED, subject=row.name, details=said)
    row.delete()
