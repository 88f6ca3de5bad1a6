"""Finds configuration items by key: `tool/<id>`, `tool-service/<id>`, `mcp/<id>`."""

from argparse import ArgumentTypeError
from typing import Any

from tools.catalog.actions import find_tool
from tools.catalog.imports import catalog_export
from tools.catalog.imports.import_results import server_descriptor, service_descriptor
from tools.catalog.signatures.version_signatures import trusted
from tools.definitions.dialects.import_entries import ImportItemKind
from tools.definitions.texts.tool_formats import trustgraph_item
from tools.definitions.vocabulary import SIGNATURE_INVALID
from tools.errors import Conflict, NotFound
from tools.models import McpServer, Organization, Tool, ToolService

KINDS = (ImportItemKind.TOOL, ImportItemKind.SERVICE, ImportItemKind.SERVER)
Found = Tool | ToolService | McpServer


def parse_key(text: str) -> tuple[ImportItemKind, str]:
    kind, _, name = text.partition("/")
    if kind not in set(KINDS) or not name:
        known = ", ".join(f"{one}/<id>" for one in KINDS)
        raise ArgumentTypeError(f"{text!r} is no key; keys are {known}")
    return ImportItemKind(kind), name


def find_item(organization: Organization, kind: ImportItemKind, name: str) -> Found:
    """Raises `NotFound`."""
    if kind == ImportItemKind.TOOL:
        return _tool(organization, name)
    model = ToolService if kind == ImportItemKind.SERVICE else McpServer
    found: Found | None = model.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no item {kind}/{name[:128]}.", code="item_not_found")
    return found


def _tool(organization: Organization, key: str) -> Tool:
    """By its key; by its name where it was imported under none. Raises `NotFound`."""
    there = Tool.objects.present().select_related("version", "organization__tier")
    found = there.filter(organization=organization, config_key=key).first()
    if found is None:
        found = find_tool(organization, key)
        if found.config_key:
            raise NotFound(
                f"There is no item tool/{key}; the tool {key} is tool/{found.config_key}.",
                code="item_not_found",
            )
    return found


def item_value(row: Found) -> dict[str, Any]:
    """The item as `put_config_item` reads it. Raises `Conflict` for an invalid signature."""
    if isinstance(row, ToolService):
        return service_descriptor(row)
    if isinstance(row, McpServer):
        return server_descriptor(row).written()
    assert row.version is not None
    if not trusted(row):
        raise Conflict(
            f"The stored version of {row.name} is not what was signed.", code=SIGNATURE_INVALID
        )
    return trustgraph_item(catalog_export.written(row))


def list_keys(organization: Organization) -> list[str]:
    def list_names(model: type[ToolService] | type[McpServer]) -> list[str]:
        rows = model.objects.filter(organization=organization).order_by("name")
        return list(rows.values_list("name", flat=True))

    tools = Tool.objects.present().filter(organization=organization)
    keys = sorted(key or name for key, name in tools.values_list("config_key", "name"))
    return [
        *(f"{ImportItemKind.TOOL}/{key}" for key in keys),
        *(f"{ImportItemKind.SERVICE}/{name}" for name in list_names(ToolService)),
        *(f"{ImportItemKind.SERVER}/{name}" for name in list_names(McpServer)),
    ]
