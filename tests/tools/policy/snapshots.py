"""Catalogs in memory, as a process keeps them, with groups that are open or closed."""

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from tests import factories
from tools.catalog.registry import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.schedules import DAYS
from tools.definitions.tool import ToolDefinition, digest, read_definition
from tools.models import LicenseTier


def closed_now() -> list[dict[str, Any]]:
    """A schedule that is closed today, yesterday and tomorrow, wherever one is."""
    far = datetime.now(UTC) + timedelta(days=3)
    return [{"days": [DAYS[far.weekday()]], "from": "12:00", "to": "13:00"}]


def group(name: str, **fields: Any) -> CatalogGroup:
    fields["schedule"] = tuple(fields.get("schedule", ()))
    return CatalogGroup(name, "", frozenset(), **fields)


def tool(name: str, **fields: Any) -> CatalogTool:
    canonical, now = read_definition(factories.definition(name, **fields)), datetime.now(UTC)
    return CatalogTool(
        uuid4(), name, "active", uuid4(), "1.0.0", 1, digest(canonical), "", "",
        ToolDefinition(canonical), now, now, origin="person",
    )  # fmt: skip


def snapshot(*things: CatalogTool | CatalogGroup, zone: str = "UTC", **fields: Any) -> Snapshot:
    tools = {one.name: one for one in things if isinstance(one, CatalogTool)}
    groups = {one.name: one for one in things if isinstance(one, CatalogGroup)}
    tier = LicenseTier(name="Enterprise", rank=4, builtin_tools=None, max_custom_tools=None)
    return Snapshot(
        uuid4(), "here", 1, tier, MappingProxyType(tools), MappingProxyType(groups),
        time_zone=ZoneInfo(zone), **fields,
    )  # fmt: skip


def anybody() -> Caller:
    """Whom every gate behind the groups and states lets pass."""
    return Caller(
        CallerKind.PERSON, "anybody", uuid4(), "here", 1, uuid4(),
        granted_groups=frozenset(["*"]), granted_permissions=frozenset(["*"]), is_superuser=True,
    )  # fmt: skip
