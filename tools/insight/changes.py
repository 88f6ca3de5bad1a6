"""Hypothetical changes: the catalog and the callers as they would be after one of them.

A change replaces the facts and never the rules: the gates are the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from tools.accounts.grants.grant_queries import granted_tool_groups, granted_tools
from tools.accounts.grants.grants import ToolGrants, grants
from tools.catalog import seats
from tools.catalog.groups import check_names, parent_for, read_opening
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import ToolDefinition
from tools.errors import NotFound
from tools.models import Agent, LicenseTier, Tool, ToolGroup, ToolStatus

_NO_OPENING = ("parent", "permissions")


@dataclass(frozen=True)
class PreviewedChange:
    """`permission` is the one that a person needs to make it. A change alters the catalog, or one
    agent."""

    permission: ClassVar[str]

    def catalog(self, snapshot: Snapshot) -> Snapshot:
        """Raises `NotFound` and `Malformed` for what the change names and does not exist."""
        return snapshot

    def caller(self, caller: Caller, snapshot: Snapshot) -> Caller:
        return caller


@dataclass(frozen=True)
class GrantChange(PreviewedChange):
    """An agent's grants, as they would be; None leaves a kind as it is. `more_tools` are beside
    those it has."""

    permission = "change_agent"
    agent: str
    groups: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    tool_groups: tuple[str, ...] | None = None
    permissions: tuple[str, ...] | None = None
    more_tools: tuple[str, ...] = ()

    def catalog(self, snapshot: Snapshot) -> Snapshot:
        named = (*(self.tools or ()), *self.more_tools)
        missing = [name for name in named if not _is_tool(name, snapshot)]
        if missing:
            raise NotFound(f"There is no tool {', '.join(missing)[:400]}.", code="tool_not_found")
        return snapshot

    def caller(self, caller: Caller, snapshot: Snapshot) -> Caller:
        if caller.name != self.agent:
            return caller
        if self.tools is not None or self.tool_groups is not None or self.more_tools:
            caller = grants.suppose(caller, self._changed_grants(caller, snapshot))
        if self.groups is not None:
            caller = replace(caller, granted_groups=frozenset(self.groups))
        if self.permissions is not None:
            caller = replace(caller, granted_permissions=frozenset(self.permissions))
        return caller

    def _changed_grants(self, caller: Caller, snapshot: Snapshot) -> ToolGrants:
        rows = Agent.objects.select_related("service_account", "organization")
        agent = rows.get(organization_id=caller.organization_id, slug=self.agent)
        names = [*(granted_tools(agent) if self.tools is None else self.tools), *self.more_tools]
        groups = granted_tool_groups(agent) if self.tool_groups is None else self.tool_groups
        found = (snapshot.tool(name) for name in names)
        return ToolGrants(
            every=WILDCARD in names,
            tools=frozenset(tool.id for tool in found if tool is not None),
            groups=frozenset(groups),
        )


@dataclass(frozen=True)
class Tier(PreviewedChange):
    """The organization's tier. Tools for which the new one has a seat are enabled again."""

    permission = "change_organization"
    tier: str

    def catalog(self, snapshot: Snapshot) -> Snapshot:
        tier = LicenseTier.objects.filter(name=self.tier).first()
        if tier is None:
            raise NotFound(f"There is no tier {self.tier[:60]!r}.", code="tier_not_found")
        place = snapshot.organization_id
        if not seats.anybody_out(place):
            return snapshot.changed(tier=tier)
        rows = Tool.objects.custom().filter(organization_id=place)
        tools = dict(snapshot.tools)
        for row in seats.moves(rows, tier).back:
            if row.name in tools:
                tools[row.name] = _back_in_its_seat(row, tools[row.name])
        return snapshot.changed(tier=tier, tools=MappingProxyType(tools))


@dataclass(frozen=True)
class ToolGroups(PreviewedChange):
    """A tool's own groups; None is absent, which is `default` or its source's (ruling 2)."""

    permission = "change_tool"
    tool: str
    groups: tuple[str, ...] | None

    def catalog(self, snapshot: Snapshot) -> Snapshot:
        tool = snapshot.tool(self.tool)
        if tool is None:
            raise NotFound(f"There is no tool {self.tool[:128]!r}.", code="tool_not_found")
        group = None if self.groups is None else list(dict.fromkeys(self.groups))
        definition = ToolDefinition({**tool.definition.raw, "group": group})
        changed = {**snapshot.tools, tool.name: replace(tool, definition=definition)}
        return snapshot.changed(tools=MappingProxyType(changed))


@dataclass(frozen=True)
class Group(PreviewedChange):
    """Changed fields of a group: `parent`, `permissions`, `schedule`, `max_queue_age_s` and
    `max_cpu_percent`, as they would be written."""

    permission = "change_toolgroup"
    group: str
    given: Mapping[str, Any]

    def catalog(self, snapshot: Snapshot) -> Snapshot:
        known = snapshot.groups.get(self.group)
        if known is None:
            raise NotFound(f"There is no group {self.group[:100]!r}.", code="group_not_found")
        fields = self._fields(snapshot)
        changed = {**snapshot.groups, self.group: replace(known, **fields)}
        return snapshot.changed(groups=MappingProxyType(changed))

    def _fields(self, snapshot: Snapshot) -> dict[str, Any]:
        """Validated as when they are saved."""
        opening = {name: value for name, value in self.given.items() if name not in _NO_OPENING}
        fields = read_opening(opening)
        if "schedule" in fields:
            fields["schedule"] = tuple(fields["schedule"])
        if "permissions" in self.given:
            check_names(self.group, self.given["permissions"])
            fields["permissions"] = frozenset(self.given["permissions"])
        if "parent" in self.given:
            row = ToolGroup(organization_id=snapshot.organization_id, name=self.group)
            parent = parent_for(row, self.given["parent"])
            fields["parent"] = parent.name if parent else None
        return fields


def _is_tool(name: str, snapshot: Snapshot) -> bool:
    return name == WILDCARD or snapshot.tool(name) is not None


def _back_in_its_seat(row: Tool, tool: CatalogTool) -> CatalogTool:
    status = ToolStatus.ACTIVE if seats.returns_to_use(row) else tool.status
    return replace(tool, status=status, status_reason="")
