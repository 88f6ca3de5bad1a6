"""Which of many tools the licence lets through. Its gates are asked once of each kind of tool, with
one that has a seat; the answers are those of the gates."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from tools.catalog import seats
from tools.catalog.registry import CatalogTool, Snapshot
from tools.policy.licensing import beyond_limit

type Kinds = tuple[tuple[CatalogTool, ...], ...]
type Asks = Callable[[CatalogTool, Snapshot], bool]


def kinds_in(snapshot: Snapshot) -> Kinds:
    """Of all its tools; sorted once while nothing of them changes."""
    return snapshot.settle("kinds for licences", lambda: kinds_of(snapshot.tools.values()))


def kinds_of(tools: Iterable[CatalogTool]) -> Kinds:
    found: defaultdict[Hashable, list[CatalogTool]] = defaultdict(list)
    for tool in tools:
        found[_kind(tool)].append(tool)
    return tuple(tuple(kind) for kind in found.values())


def passing(kinds: Kinds, snapshot: Snapshot, asks: Asks) -> list[CatalogTool]:
    """Those of which it `asks` yes. They are the snapshot's, which may be under another tier than
    the one that they were sorted in."""
    without = beyond_limit(snapshot)
    found: list[CatalogTool] = []
    for kind in kinds:
        seated = [tool for tool in kind if tool.id not in without] if without else kind
        if seated and asks(seated[0], snapshot):
            found += seated
    return found


def _kind(tool: CatalogTool) -> Hashable:
    """All that a gate of the licence looks at, but for the age that decides about a seat."""
    if not tool.custom:
        return tool.id
    raw = tool.definition.raw
    level, profile = raw["constraints"]["required_isolation"], tool.definition.sandbox_profile
    return raw["type"], level, profile, tool.origin, seats.put_out(tool)
