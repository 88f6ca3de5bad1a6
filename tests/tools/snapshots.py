"""Catalogs in memory, for what asks neither database nor gates."""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from tests.factories import definition
from tools.catalog.registry import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.tool import ToolDefinition, digest, read_definition
from tools.models import LicenseTier

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def tool(name: str, status: str = "active", **fields: Any) -> CatalogTool:
    canonical = read_definition(definition(name, **fields))
    return CatalogTool(
        uuid4(), name, status, uuid4(), "1.0.0", 1, digest(canonical), "", "",
        ToolDefinition(canonical), BEGAN, BEGAN,
    )  # fmt: skip


def moving(name: str, states: list[str] | None, state: str | None = None, **fields: Any) -> Any:
    """A tool that is available in `states` and leads to `state`."""
    return tool(name, available_in_states=states, state=state, **fields)


def snapshot(*tools: CatalogTool, parents: dict[str, str] | None = None) -> Snapshot:
    """`parents` names groups with the group each is part of."""
    groups = {
        name: CatalogGroup(name, "", frozenset(), parent=parent)
        for name, parent in (parents or {}).items()
    }
    return Snapshot(
        uuid4(),
        "memory",
        1,
        LicenseTier(name="Enterprise", rank=4, builtin_tools=None, max_custom_tools=None),
        MappingProxyType({one.name: one for one in tools}),
        MappingProxyType(groups),
    )
