"""Items of an import: their names, results, and located errors; and the services and servers that
they name.
"""

import re
from dataclasses import dataclass, field
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
from tools.definitions.descriptors import Flaws, canonical_key
from tools.definitions.dialects.import_entries import ImportItem, ImportItemKind
from tools.definitions.dialects.import_references import KnownReferences
from tools.definitions.servers import MASK, ServerDescriptor, ServerTransport
from tools.definitions.services import Descriptor
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition, ToolcribError
from tools.models import McpServer, Organization, ToolService

CREATED, UPDATED, UNCHANGED, REFUSED = "created", "updated", "unchanged", "refused"
REVIEW = "review"  # the tool's new definition awaits approval, like any upstream change


@dataclass(frozen=True)
class ItemImportResult:
    """The result of one item."""

    key: str
    name: str
    result: str
    errors: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)  # of what was saved

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key, "name": self.name, "result": self.result, "errors": self.errors,
            "findings": self.findings,
        }  # fmt: skip


def check_first(
    item: ImportItem, name: str, seen: dict[tuple[ImportItemKind | None, str], ImportItem]
) -> None:
    earlier = seen.setdefault((item.kind, name.casefold()), item)
    if earlier is not item:
        raise InvalidDefinition("An earlier item of this import has the same name.", errors=[])


def with_key(item: ImportItem, name: str) -> dict[str, Any]:
    """The value; its name comes from its key where it has none itself."""
    value_of(item)
    missing = item.value.get(name) is None and not item.id.startswith("#")
    return item.value | {name: item.id} if missing else item.value


def value_of(item: ImportItem) -> dict[str, Any]:
    """Raises `InvalidDefinition`."""
    if not isinstance(item.value, dict):
        raise InvalidDefinition("must be a JSON object", errors=[])
    return item.value


def check_identifier(item: ImportItem, name: str, *, required: bool) -> None:
    """The identifier of a keyed item. Raises `InvalidDefinition`."""
    said = value_of(item).get(name)
    message = ""
    if said is None:
        message = "is required" if required else ""
    elif said != item.id:
        message = f"must be the identifier of its key: {item.id[:128]}"
    if item.keyed and message:
        raise InvalidDefinition(f"{name} {message}.", errors=[{"field": name, "message": message}])


def titled(item: ImportItem) -> tuple[dict[str, Any], Flaws, Flaws]:
    """A keyed tool's value with its identifier as the name and its `name` as the title; what is
    wrong with its name; and findings."""
    value, flaws, findings = value_of(item), Flaws(), Flaws()
    said, title = value.get("name"), value.get("title")
    raw = value | {"name": item.id}
    if said is None:
        if value.get("type") == ToolType.SERVICE:  # S2: name is required
            flaws.append({"field": "name", "message": "is required"})
    elif not isinstance(said, str) or not said.strip():
        message = "must not be empty" if isinstance(said, str) else "must be a text"
        flaws.append({"field": "name", "message": message})
    elif said != item.id and title in (None, "", said):
        raw["title"] = said
    elif said != item.id:
        message = "stands beside a title; the title is kept, and the key is the tool's name"
        findings.append({"code": "title_beside_name", "field": "name", "message": message})
    return raw, flaws, findings


def keyed_fields(flaws: Flaws, item: ImportItem) -> Flaws:
    """Flaws of a keyed tool as its author wrote it: the name is its key, the title its `name`."""
    own_title = item.value.get("title") in (None, "", item.value.get("name"))
    places = {"name": "key"} | ({"title": "name"} if own_title else {})
    return [flaw | {"field": places.get(flaw["field"], flaw["field"])} for flaw in flaws]


def written_fields(flaws: Flaws, value: dict[str, Any]) -> Flaws:
    """Flaws of a tool service under the keys that its author wrote, or S2 has."""
    spelled = {canonical_key(str(key)): str(key) for key in value}

    def written(place: str) -> str:
        head = re.split(r"[.\[]", place, maxsplit=1)[0]
        return spelled.get(head, head.replace("_", "-")) + place[len(head) :]

    return [flaw | {"field": written(flaw["field"])} for flaw in flaws]


def name_of(item: ImportItem) -> str:
    value = item.value if isinstance(item.value, dict) else {}
    said = value.get("id" if item.kind == ImportItemKind.SERVICE else "name")
    if item.keyed or item.kind == ImportItemKind.PROMPT or not isinstance(said, str) or not said:
        return item.id
    return said[:200]


def prompt_id(item: ImportItem) -> str:
    return item.id.removeprefix("template.")


def stronger(before: str | None, result: str) -> str:
    order = (UNCHANGED, UPDATED, CREATED)
    return max(before or UNCHANGED, result, key=order.index)


def errors_of(error: ToolcribError, item: ImportItem) -> list[dict[str, Any]]:
    listed = error.details.get("errors")
    flaws = listed if isinstance(listed, list) else []
    found = [
        error_at(flaw.get("field", ""), flaw["message"], item)
        for flaw in flaws
        if "message" in flaw
    ]
    return found or [error_at("", error.message, item)]


def error_at(place: str, message: str, item: ImportItem) -> dict[str, Any]:
    return {"field": place, "message": message, "line": item.lines.field_line(place)}


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
