"""Catalogs in memory for property tests: equal names have equal ids, and tools are created
quickly."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid5

from tests.factories import definition
from tests.tools.snapshots import BEGAN, enterprise, group
from tests.tools.snapshots import snapshot as in_memory
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition

__all__ = ["agent", "group", "snapshot", "tool"]
HERE = UUID(int=7)
_PLAIN = read_definition(definition())  # parsing takes longer than all gates together


def tool(name: str, *, status: str = "active", at: int = 0, **fields: Any) -> CatalogTool:
    canonical = _PLAIN | {"name": name} | fields
    made = BEGAN + timedelta(seconds=at)
    return CatalogTool(
        uuid5(HERE, name), name, status, uuid5(HERE, f"v{name}"), "1.0.0", 1,
        definition_digest(canonical),
        "", "", ToolDefinition(canonical), made, made, origin="person",
    )  # fmt: skip


def snapshot(
    tools: Iterable[CatalogTool], groups: Iterable[CatalogGroup] = (), **tier: Any
) -> Snapshot:
    return in_memory(*tools, *groups, place=HERE, tier=enterprise(**tier))


def agent(name: str = "scout", **fields: Any) -> Caller:
    return Caller(
        CallerKind.AGENT, name, HERE, "here", 1, uuid5(HERE, f"u{name}"),
        agent_id=uuid5(HERE, f"a{name}"), scopes=frozenset(["read", "execute"]), **fields,
    )  # fmt: skip
