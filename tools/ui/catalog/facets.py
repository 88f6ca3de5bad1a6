"""Facets of the catalog: filters with the number of tools that each would leave, and chips that
remove an active filter. All filters are in the URL, so a view can be bookmarked.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tools.catalog.registry import CatalogTool, Snapshot
from tools.policy.license_gates import LowestTiers

MOST_SHOWN = 8  # values of a facet before "more"
LABELS = {
    "category": "Category",
    "group": "Group",
    "type": "Type",
    "tier": "Licence from",
    "status": "Status",
    "origin": "Origin",
}
FACETS = ("group", "type", "tier", "status", "origin")
_CHIPS = {"q": "Search", **LABELS}

type Kinds = Counter["ToolFacetValues"]


class ToolFacetValues(NamedTuple):
    """The values of all facets that a group of tools shares; often hundreds share them."""

    category: str
    group: frozenset[str]
    type: str
    tier: str
    status: str
    origin: str

    def has(self, name: str, value: str) -> bool:
        held = getattr(self, name)
        return value in held if name == "group" else value == held


@dataclass(frozen=True, slots=True)
class CatalogFacetChoice:
    value: str
    count: int
    address: str


@dataclass(frozen=True, slots=True)
class CatalogFacet:
    """The most frequent values are in `choices`, the others in `more`."""

    label: str
    choices: list[CatalogFacetChoice]
    more: list[CatalogFacetChoice]


@dataclass(frozen=True, slots=True)
class CatalogFilterChip:
    """An active filter; its address is the view without it."""

    label: str
    value: str
    address: str


def kinds_of(tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers) -> Kinds:
    """How many tools there are of each kind; computed once for a whole catalog."""
    if tools is not snapshot.sorted_tools:
        return _kinds(tools, snapshot, tiers)
    return snapshot.remember(("kinds", tiers.terms), lambda: _kinds(tools, snapshot, tiers))


def _kinds(tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers) -> Kinds:
    return Counter(
        ToolFacetValues(
            tool.definition.raw["category"],
            snapshot.groups_of(tool),
            tool.definition.raw["type"],
            tiers.of.get(tool.id, ""),
            tool.status,
            tool.origin,
        )
        for tool in tools
    )


def counted(kinds: Kinds, chosen: Mapping[str, str]) -> dict[str, Counter[str]]:
    """By facet and value, the number of tools that match all other facets: a filter narrows the
    other facets, never its own."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for kind, number in kinds.items():
        barred = [name for name, value in chosen.items() if not kind.has(name, value)]
        for name in FACETS if not barred else barred if len(barred) == 1 else ():
            if name == "group":
                counts[name].update(dict.fromkeys(kind.group, number))
            elif name in counts:
                counts[name][getattr(kind, name)] += number
    return counts


def facets(
    counts: Mapping[str, Counter[str]],
    chosen: Mapping[str, str],
    address: Callable[..., str],
) -> list[CatalogFacet]:
    """The facets that leave a choice. An active value is not offered again."""
    found = []
    for name in FACETS:
        ordered = sorted(counts[name].items(), key=lambda item: (-item[1], item[0]))
        offered = [
            CatalogFacetChoice(value, count, address(**{name: value}))
            for value, count in ordered
            if value and value != chosen.get(name)
        ]
        if offered:
            found.append(CatalogFacet(LABELS[name], offered[:MOST_SHOWN], offered[MOST_SHOWN:]))
    return found


def chips(chosen: Mapping[str, str], without: Callable[[str], str]) -> Sequence[CatalogFilterChip]:
    return [CatalogFilterChip(_CHIPS[name], value, without(name)) for name, value in chosen.items()]
