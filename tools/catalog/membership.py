"""Memberships of tools in groups, with the source of each (ruling 19)."""

from collections import defaultdict
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tools.catalog.registry import CatalogTool, Snapshot


class Through(StrEnum):
    OWN = "own"
    SOURCE = "source"  # default group of its service or server
    PARENT = "parent"  # parent of another of its groups


class Member(NamedTuple):
    tool: str
    through: Through


def memberships(tool: CatalogTool, snapshot: Snapshot) -> dict[str, Through]:
    """Every effective group, in the order of the names."""
    own = snapshot.own_groups(tool)
    unnamed = tool.definition.raw["group"] is None
    first = Through.SOURCE if unnamed and own != tool.definition.groups else Through.OWN
    return {
        name: first if name in own else Through.PARENT for name in sorted(snapshot.groups_of(tool))
    }


def members_of(name: str, snapshot: Snapshot) -> tuple[Member, ...]:
    """The tools in a group, in the order of their names."""
    return snapshot.settle("members", lambda: _members(snapshot)).get(name, ())


def line_of(name: str, snapshot: Snapshot) -> list[str]:
    """A group, its parent, the parent's parent, and so on."""
    line: list[str] = []
    above: str | None = name
    while above is not None and above not in line:
        line.append(above)
        group = snapshot.groups.get(above)
        above = group.parent if group else None
    return line


def _members(snapshot: Snapshot) -> MappingProxyType[str, tuple[Member, ...]]:
    found: dict[str, list[Member]] = defaultdict(list)
    for tool in snapshot.sorted_tools:
        for name, through in memberships(tool, snapshot).items():
            found[name].append(Member(tool.name, through))
    return MappingProxyType({name: tuple(members) for name, members in found.items()})
