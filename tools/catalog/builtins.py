"""Installs and updates the built-in tools, groups and workspace of an organization."""

from dataclasses import replace

from django.db import transaction

from audit.actions import Actor
from tools.builtin.manifest import DEFINITIONS, GROUPS
from tools.builtin.workspaces import workspace_path
from tools.catalog.actions import register_tool
from tools.catalog.groups import save_group
from tools.models import Organization, Tool, ToolGroup


@transaction.atomic
def install_builtins(*, organization: Organization, by: Actor) -> list[str]:
    """Add missing tools; an administrator's changes are kept. Returns the added names."""
    workspace_path(organization.slug)
    by = replace(by, organization=organization.slug)
    added = []
    for name, description, permissions in GROUPS:
        if not ToolGroup.objects.filter(organization=organization, name=name).exists():
            save_group(
                organization=organization,
                name=name,
                by=by,
                description=description,
                permissions=list(permissions),
                parent=name.rpartition("/")[0] or None,
            )
    present = set(
        Tool.objects.present().filter(organization=organization).values_list("name", flat=True)
    )
    for definition in DEFINITIONS:
        if definition["name"] not in present:
            register_tool(organization=organization, definition=definition, by=by, builtin=True)
            added.append(definition["name"])
    return added
