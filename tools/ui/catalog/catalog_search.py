"""The search of the catalog's list, and its facets: a facet is a filter with the number of tools
that each of its values would leave."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.http import QueryDict

from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.licensing.license_coverage import LowestTiers

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


type ToolFacetCounts = Counter[ToolFacetValues]


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


@dataclass(frozen=True)
class CatalogSearch:
    """The search and filters of the URL. Unknown values match no tool."""

    q: str = ""
    category: str = ""
    group: str = ""
    type: str = ""
    status: str = ""
    tier: str = ""
    origin: str = ""

    @classmethod
    def from_query(cls, query: QueryDict) -> "CatalogSearch":
        return cls(**{name: query.get(name, "").strip()[:200] for name in cls.__dataclass_fields__})

    def matches(self, tool: CatalogTool, snapshot: Snapshot, tiers: Mapping[UUID, str]) -> bool:
        """Whether all filters match; the full-text search is separate."""
        raw = tool.definition.raw
        return (
            self.category in ("", raw["category"])
            and self.type in ("", raw["type"])
            and self.status in ("", tool.status)
            and self.tier in ("", tiers.get(tool.id))
            and self.origin in ("", tool.origin)
            and (not self.group or self.group in snapshot.groups_of(tool))
        )

    def find_tools(
        self, tools: Iterable[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
    ) -> list[CatalogTool]:
        """The best first, of a full-text search."""
        matching = [tool for tool in tools if self.matches(tool, snapshot, tiers.of)]
        if self.q:
            return [one.tool for one in relevant_tools(rank_tools(snapshot, self.q, matching))]
        return matching


def facet_counts(
    tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
) -> ToolFacetCounts:
    """How many tools there are of each kind; computed once for a whole catalog."""
    if tools is not snapshot.sorted_tools:
        return _facet_counts(tools, snapshot, tiers)
    return snapshot.remember(("kinds", tiers.terms), lambda: _facet_counts(tools, snapshot, tiers))


def count_facets(kinds: ToolFacetCounts, chosen: Mapping[str, str]) -> dict[str, Counter[str]]:
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


def catalog_facets(
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


def _facet_counts(
    tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
) -> ToolFacetCounts:
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
