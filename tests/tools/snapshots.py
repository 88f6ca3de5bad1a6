"""Catalog snapshots in memory, for tests without a database."""

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from tests.factories import definition
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition
from tools.definitions.values.schedules import DAYS
from tools.models import LicenseTier, Organization

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def tool(name: str, status: str = "active", **fields: Any) -> CatalogTool:
    canonical = read_definition(definition(name, **fields))
    return CatalogTool(
        uuid4(), name, status, uuid4(), "1.0.0", 1, definition_digest(canonical), "", "",
        ToolDefinition(canonical), BEGAN, BEGAN, origin="person",
    )  # fmt: skip


def moving(name: str, states: list[str] | None, state: str | None = None, **fields: Any) -> Any:
    """A tool that is available in `states` and leads to `state`."""
    return tool(name, available_in_states=states, state=state, **fields)


def group(name: str, **fields: Any) -> CatalogGroup:
    fields["schedule"] = tuple(fields.get("schedule", ()))
    return CatalogGroup(name, "", frozenset(fields.pop("permissions", ())), **fields)


def closed_now() -> list[dict[str, Any]]:
    """A schedule that is closed today, yesterday and tomorrow in every time zone."""
    far = datetime.now(UTC) + timedelta(days=3)
    return [{"days": [DAYS[far.weekday()]], "from": "12:00", "to": "13:00"}]


def current_catalog(organization: Organization) -> Snapshot:
    """The organization's catalog snapshot in this process."""
    revision = Organization.objects.get(pk=organization.pk).revision
    return registry.snapshot(organization.pk, revision)


def snapshot(
    *things: CatalogTool | CatalogGroup,
    parents: dict[str, str] | None = None,
    zone: str = "UTC",
    place: UUID | None = None,
    tier: LicenseTier | None = None,
    **fields: Any,
) -> Snapshot:
    """`parents` maps groups to their parents."""
    below = [group(name, parent=parent) for name, parent in (parents or {}).items()]
    tools = {one.name: one for one in things if isinstance(one, CatalogTool)}
    groups = {one.name: one for one in (*things, *below) if isinstance(one, CatalogGroup)}
    return Snapshot(
        place or uuid4(), "here", 1, tier or enterprise(), MappingProxyType(tools),
        MappingProxyType(groups), time_zone=ZoneInfo(zone), **fields,
    )  # fmt: skip


def enterprise(**limits: Any) -> LicenseTier:
    everything = {"builtin_tools": None, "max_custom_tools": None, "custom_sandbox_profiles": True}
    return LicenseTier(name="Made", rank=9, **everything | limits)


def anybody() -> Caller:
    """A caller that passes every gate after groups and states."""
    return Caller(
        CallerKind.PERSON, "anybody", uuid4(), "here", 1, uuid4(),
        granted_groups=frozenset(["*"]), granted_permissions=frozenset(["*"]), is_superuser=True,
    )  # fmt: skip
