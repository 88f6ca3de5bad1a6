"""Exports an organization's catalog in a form that can be imported again.

Only what verifies is handed on: an edited row must not come back signed. Built-in tools come with
the product, and stay.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import yaml

from tools.catalog.imports.import_results import service_descriptor
from tools.catalog.signatures.keys import keys_of
from tools.catalog.signatures.newest import newest
from tools.catalog.signatures.version_signatures import trusted
from tools.definitions.texts.tool_formats import trustgraph_items
from tools.definitions.tool import ordered_definition
from tools.definitions.vocabulary import ToolType
from tools.models import Organization, Tool, ToolService, ToolStatus


class CatalogExportFormat(StrEnum):
    DEFINITIONS = "definitions"
    YAML = "yaml"
    TRUSTGRAPH = "trustgraph"


@dataclass(frozen=True)
class ExportedCatalog:
    services: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # names of tools that do not verify

    @property
    def document(self) -> dict[str, Any]:
        return {"services": self.services, "tools": self.tools, "left_out": self.left_out}

    def items(self) -> list[dict[str, Any]]:
        """As TrustGraph keeps them: a key, and its value."""
        found: list[dict[str, Any]] = [
            {"key": f"tool-service/{one['id']}", "value": one} for one in self.services
        ]
        services = {one["id"] for one in self.services}
        for tool in self.tools:
            beside = tool["implementation"].get("service") in services
            found += [
                {"key": f"{kind}/{tool['name']}", "value": value}
                for kind, value in trustgraph_items(tool, beside=beside).items()
            ]
        return found

    def yaml(self) -> str:
        return as_yaml(self.document)


class _Dumper(yaml.CSafeDumper):
    """Writes no anchors, and quotes every text that another parser could read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class OnOneLine(dict[str, Any]):
    """An object that is written `{like: this}`."""


def _on_one_line(dumper: _Dumper, value: OnOneLine) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)


_Dumper.add_representer(OnOneLine, _on_one_line)


def exported(organization: Organization, only: Tool | None = None) -> ExportedCatalog:
    """Everything but the built-in tools, in the order of the names; or one tool with its
    service."""
    rows = Tool.objects.custom().filter(organization=organization, version__isnull=False)
    services = ToolService.objects.filter(organization=organization)
    if only is not None:
        rows = rows.filter(pk=only.pk)
        services = services.filter(name=_service_of(only))
    found, noted = ExportedCatalog(), newest.read_state(organization.pk)
    keys = keys_of(organization.pk, noted)
    for row in services:
        found.services.append(service_descriptor(row))
    for tool in rows.select_related("version", "organization").order_by("name"):
        if trusted(tool, keys, noted):
            found.tools.append(written(tool))
        else:
            found.left_out.append(tool.name)
    return found


def _service_of(tool: Tool) -> str:
    made = tool.version.definition["implementation"] if tool.version else {}
    return str(made.get("service", "")) if tool.type == ToolType.SERVICE else ""


def written(tool: Tool) -> dict[str, Any]:
    """The current version's definition, its label, and the switches beside it."""
    assert tool.version is not None
    waits = tool.status == ToolStatus.PENDING  # which an import must not read as disabled
    return ordered_definition(tool.version.definition) | {
        "version": tool.version.label,
        **({} if waits else {"enabled": tool.enabled}),
        "critical": tool.critical,
        "max_concurrency": tool.max_concurrency,
    }
