"""`/export/` and `/tools/<name>/export`: download the catalog, or one tool, as a file to import."""

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import require
from tools.catalog.actions import find_tool
from tools.catalog.imports.exporting import CatalogExportFormat, ExportedCatalog, exported
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, Malformed
from tools.ui.access import PageRequest, page
from tools.ui.shown import pretty
from tools.web.reauthentication import Proof, proof


@proof(Proof.ALWAYS)
@require_safe
@page
def export_catalog(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_tool")
    place = request.user.organization
    return _file(request, exported(place), f"{place.slug}-catalog")


@proof(Proof.ALWAYS)
@require_safe
@page
def export_tool(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "view_tool")
    tool = find_tool(request.user.organization, name)
    if tool.type == ToolType.BUILTIN:
        raise Conflict("A built-in tool comes with the product.", code="tool_is_builtin")
    found = exported(request.user.organization, tool)
    if found.left_out:
        message = f"The stored version of {tool.name} is not what was signed."
        raise Conflict(message, code="not_verified")
    return _file(request, found, tool.name)


def _file(request: PageRequest, found: ExportedCatalog, name: str) -> HttpResponse:
    wanted = request.GET.get("format", CatalogExportFormat.DEFINITIONS)
    if wanted not in set(CatalogExportFormat):
        raise Malformed(f"format must be one of {', '.join(CatalogExportFormat)}.", code="invalid")
    if wanted == CatalogExportFormat.YAML:
        return _attached(found.yaml(), f"{name}.yaml", "application/yaml")
    items = {"items": found.items(), "left_out": found.left_out}
    document = items if wanted == CatalogExportFormat.TRUSTGRAPH else found.document
    return _attached(pretty(document) + "\n", f"{name}.json", "application/json")


def _attached(text: str, name: str, kind: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
