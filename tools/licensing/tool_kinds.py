"""Groups tools that are equal to every gate, except for their names, their grants, and their age,
which decides about a seat in the license. One tool with a seat represents its kind, so that gates
need not be asked about thousands."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable

from tools.catalog import seats
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.vocabulary import ToolType
from tools.licensing.license_coverage import beyond_limit

type Kinds = tuple[tuple[CatalogTool, ...], ...]
type ToolTest = Callable[[CatalogTool, Snapshot], bool]


def kinds_in(snapshot: Snapshot) -> Kinds:
    """Of all its tools; sorted once while nothing of them changes."""
    return snapshot.settle("kinds", lambda: kinds_of(snapshot.tools.values(), snapshot))


def kinds_among(names: Collection[str], snapshot: Snapshot) -> Kinds:
    """The kinds of existing tools with these names."""
    tools = snapshot.tools
    if 2 * len(names) < len(tools):
        return kinds_of((tools[name] for name in names if name in tools), snapshot)
    wanted = frozenset(names)
    return filter_kinds(kinds_in(snapshot), lambda tool: tool.name in wanted)


def kinds_after(before: Snapshot, after: Snapshot) -> Kinds:
    """The kinds in a catalog that was derived from another, whose tools are mostly the same."""
    if after.tools is before.tools:
        return kinds_in(before)
    same = filter_kinds(kinds_in(before), lambda tool: after.tools.get(tool.name) is tool)
    others = (tool for name, tool in after.tools.items() if before.tools.get(name) is not tool)
    return same + kinds_of(others, after)


def kinds_of(tools: Iterable[CatalogTool], snapshot: Snapshot) -> Kinds:
    found: defaultdict[Hashable, list[CatalogTool]] = defaultdict(list)
    for tool in tools:
        found[_kind(tool, snapshot)].append(tool)
    return tuple(map(tuple, found.values()))


def filter_kinds(kinds: Kinds, wanted: Callable[[CatalogTool], bool]) -> Kinds:
    left = (tuple(filter(wanted, kind)) for kind in kinds)
    return tuple(kind for kind in left if kind)


def passing(kinds: Kinds, snapshot: Snapshot, asks: ToolTest) -> Kinds:
    """The kinds for which `asks` is true under the snapshot's tier, without the tools that have no
    seat in it. They are the snapshot's; they may have been sorted under another tier."""
    without = beyond_limit(snapshot)
    seated = filter_kinds(kinds, lambda tool: tool.id not in without) if without else kinds
    return tuple(kind for kind in seated if asks(kind[0], snapshot))


def names_of(kinds: Kinds) -> set[str]:
    return {tool.name for kind in kinds for tool in kind}


def _kind(tool: CatalogTool, snapshot: Snapshot) -> Hashable:
    """The fields that gates depend on; each built-in tool is a kind of its own."""
    if not tool.custom:
        return tool.id
    raw, definition = tool.definition.raw, tool.definition
    service = raw["implementation"]["service"] if raw["type"] == ToolType.SERVICE else None
    return (
        raw["type"],
        service,
        raw["constraints"]["required_isolation"],
        definition.sandbox_profile,
        definition.states,
        tuple(raw["required_permissions"]),
        snapshot.own_groups(tool),
        tool.origin,
        tool.status,
        tool.flaw,
        seats.put_out(tool),
    )
