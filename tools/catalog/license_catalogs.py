"""Reads what a license constrains of many organizations' tools in one query: a reduced catalog of
each."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db.models import F
from django.db.models.fields.json import KeyTextTransform, KeyTransform

from sandbox.spec import IsolationLevel
from tools.catalog.registry import catalog_profile
from tools.catalog.snapshot import CatalogProfile, CatalogTool, Snapshot
from tools.definitions.tool import ToolDefinition
from tools.models import Organization, SandboxProfile, Tool

# No license asks these of a tool.
_UNASKED: Mapping[str, Any] = MappingProxyType(
    {
        "group": [],
        "available_in_states": None,
        "required_permissions": [],
        "implementation": {"service": None},
    }
)


def license_catalogs(organizations: Iterable[Organization]) -> dict[UUID, Snapshot]:
    """As the open transaction has them, with two queries. They are not for calls: signatures are
    not checked, and each tool's definition has only its requirements of the sandbox."""
    rows = {row.pk: row for row in organizations}
    tools: dict[UUID, dict[str, CatalogTool]] = {pk: {} for pk in rows}
    profiles: dict[UUID, dict[str, CatalogProfile]] = {pk: {} for pk in rows}
    for organization_id, tool in _tools(rows):
        tools[organization_id][tool.name] = tool
    for profile in SandboxProfile.objects.filter(organization_id__in=rows).order_by("name"):
        profiles[profile.organization_id][profile.name] = catalog_profile(profile)
    return {
        pk: Snapshot(
            organization_id=pk,
            organization=row.slug,
            revision=row.revision,
            tier=row.tier,
            tools=MappingProxyType(tools[pk]),
            groups=MappingProxyType({}),
            minimum_isolation=IsolationLevel(row.minimum_isolation),
            profiles=MappingProxyType(profiles[pk]),
        )
        for pk, row in rows.items()
    }


def _tools(organization_ids: Iterable[UUID]) -> Iterable[tuple[UUID, CatalogTool]]:
    constraints = KeyTransform("constraints", "version__definition")
    rows = Tool.objects.present().filter(
        organization_id__in=organization_ids, version__isnull=False
    )
    found = rows.order_by().values(
        "organization_id", "id", "name", "type", "status", "status_reason", "created_at",
        "updated_at", "version_id",
        origin=F("version__origin"),
        isolation=KeyTextTransform("required_isolation", constraints),
        profile=KeyTextTransform("sandbox_profile", constraints),
    )  # fmt: skip
    for row in found.iterator():
        yield row["organization_id"], _tool(row)


def _tool(row: Mapping[str, Any]) -> CatalogTool:
    """Also for a row whose definition was edited into an invalid one: it gets the minimal
    requirements."""
    known = row["isolation"] in IsolationLevel
    raw = {
        **_UNASKED,
        "name": row["name"],
        "type": row["type"],
        "constraints": {
            "required_isolation": row["isolation"] if known else IsolationLevel.STANDARD,
            "sandbox_profile": row["profile"],
        },
    }
    return CatalogTool(
        id=row["id"], name=row["name"], status=row["status"], version_id=row["version_id"],
        version="", number=0, digest="", signature="", key_id="", definition=ToolDefinition(raw),
        created_at=row["created_at"], updated_at=row["updated_at"], origin=row["origin"],
        status_reason=row["status_reason"],
    )  # fmt: skip
