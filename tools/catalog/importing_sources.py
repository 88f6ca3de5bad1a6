"""Services and servers that come with an import, and those that are there already."""

from typing import Any

from django.db import transaction

from audit.actions import Actor, record
from audit.changes import difference
from audit.events import Event, Outcome
from tools.catalog.sources import save_source
from tools.definitions import services
from tools.definitions.dialects.settling import Known, Parameters
from tools.definitions.servers import ServerDescriptor
from tools.definitions.services import Descriptor
from tools.errors import Conflict
from tools.models import McpServer, Organization, Tool, ToolService

_COLUMNS = ("request_queue", "response_queue", "config_params", "default_groups")


def save_service(*, organization: Organization, descriptor: Descriptor, by: Actor) -> bool:
    """Whether there was none of that name. Raises `Malformed`."""
    rows = ToolService.objects.filter(organization=organization, name=descriptor["id"])
    created = not rows.exists()
    save_source(
        kind=ToolService,
        organization=organization,
        name=descriptor["id"],
        by=by,
        default_groups=descriptor["default_groups"],
    )
    return created


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
    return row is not None and all(
        getattr(row, name) == descriptor[name] for name in _COLUMNS if hasattr(row, name)
    )


def same_server(organization: Organization, descriptor: ServerDescriptor) -> bool:
    row = McpServer.objects.filter(organization=organization, name=descriptor.name).first()
    groups = None if descriptor.group is None else list(descriptor.group)
    return row is not None and row.default_groups == groups


def known_sources(organization: Organization) -> Known:
    """What tools of an import may refer to without its coming along."""
    there = ToolService.objects.filter(organization=organization)
    servers = McpServer.objects.filter(organization=organization).values_list("name", flat=True)
    return Known(
        services={row.name: declared(row) for row in there},
        servers=dict.fromkeys(servers, ""),
    )


def declared(row: ToolService) -> Parameters | None:
    """The parameters a service declares; None where the row does not say."""
    found: Parameters | None = getattr(row, "config_params", None)
    return found


def service_descriptor(row: ToolService) -> dict[str, Any] | None:
    """As specification S2 writes it; None of one whose queues are not known."""
    if not getattr(row, "request_queue", ""):
        return None
    return services.written({"id": row.name, **{name: getattr(row, name) for name in _COLUMNS}})


@transaction.atomic
def delete_source(*, row: ToolService | McpServer, by: Actor) -> None:
    """Raises `Conflict` while a tool is of it: the tool would have nothing to run."""
    Organization.objects.next_revision(row.organization_id)
    naming = "service" if isinstance(row, ToolService) else "server"
    tools = Tool.objects.present().filter(
        organization_id=row.organization_id,
        **{f"version__definition__implementation__{naming}": row.name},
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
