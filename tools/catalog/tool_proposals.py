"""Builds the tool that saving a definition would create, with every error that saving would
raise."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from django.db import transaction

from audit.actions import Actor
from tools.catalog.actions import register_tool, update_tool
from tools.catalog.registry import catalog_tool
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.models import Organization, Tool


def propose_tool(
    *, organization: Organization, tool: Tool | None, definition: Any, snapshot: Snapshot, by: Actor
) -> tuple[CatalogTool, Snapshot]:
    """The tool, and the catalog with it. It is saved and rolled back, so that no check is left out.
    Raises what `register_tool` and `update_tool` raise."""
    with transaction.atomic():
        if tool is None:
            saved = register_tool(organization=organization, definition=definition, by=by)
        else:
            saved = update_tool(tool=tool, definition=definition, by=by)
        assert saved.version is not None
        made = catalog_tool(saved, saved.version, organization.slug, snapshot.keys)
        transaction.set_rollback(True)
    made = replace(made, flaw="")  # its key may be new, and not in `snapshot.keys`
    tools = MappingProxyType({**snapshot.tools, made.name: made})
    return made, snapshot.changed(tools=tools)
