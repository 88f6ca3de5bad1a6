"""Catalogs in memory: built as a process keeps them, without a database."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid5

from tests.factories import definition
from tools.catalog.registry import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.tool import ToolDefinition, digest, read_definition
from tools.models import LicenseTier

HERE = UUID(int=7)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_PLAIN = read_definition(definition())  # reading one takes longer than all gates together
ENTERPRISE = {"builtin_tools": None, "max_custom_tools": None, "custom_sandbox_profiles": True}


def tool(name: str, *, status: str = "active", at: int = 0, **fields: Any) -> CatalogTool:
    canonical = _PLAIN | {"name": name} | fields
    made = BEGAN + timedelta(seconds=at)
    return CatalogTool(
        uuid5(HERE, name), name, status, uuid5(HERE, f"v{name}"), "1.0.0", 1, digest(canonical),
        "", "", ToolDefinition(canonical), made, made, origin="person",
    )  # fmt: skip


def group(name: str, **fields: Any) -> CatalogGroup:
    return CatalogGroup(name, "", frozenset(fields.pop("permissions", ())), **fields)


def snapshot(
    tools: Iterable[CatalogTool], groups: Iterable[CatalogGroup] = (), **tier: Any
) -> Snapshot:
    return Snapshot(
        HERE, "here", 1, LicenseTier(name="Made", rank=9, **(ENTERPRISE | tier)),
        MappingProxyType({tool.name: tool for tool in tools}),
        MappingProxyType({group.name: group for group in groups}),
    )  # fmt: skip


def agent(name: str = "scout", **fields: Any) -> Caller:
    return Caller(
        CallerKind.AGENT, name, HERE, "here", 1, uuid5(HERE, f"u{name}"),
        agent_id=uuid5(HERE, f"a{name}"), scopes=frozenset(["read", "execute"]), **fields,
    )  # fmt: skip
