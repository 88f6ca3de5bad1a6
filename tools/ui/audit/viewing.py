"""The filters of a view of audit records, as its URL has them: active filters, facets and time
range. The URL can be bookmarked and shared; a range such as `1h` is relative to now."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse

from audit.records.record_search import RecordSearch, tally_newest

RANGES = {
    "1h": ("the last hour", timedelta(hours=1)),
    "24h": ("the last 24 hours", timedelta(days=1)),
    "7d": ("the last 7 days", timedelta(days=7)),
    "30d": ("the last 30 days", timedelta(days=30)),
}
_MOST = 6  # values of a facet
_FACETS = (("code", "Codes"), ("outcome", "Outcomes"), ("actor", "Who"))
_LABELS = {
    "code": "Code", "outcome": "Outcome", "actor": "Who", "tool": "Tool", "over": "Time",
    "since": "Since", "until": "Until", "q": "Words", "reason": "Reason", "execution": "Execution",
    "request": "Request",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditFilterChip:
    """An active filter; its address is the view without it."""

    label: str
    value: str
    address: str


@dataclass(frozen=True, slots=True)
class AuditFacetChoice:
    value: str
    count: int
    address: str


@dataclass(frozen=True, slots=True)
class AuditFacet:
    title: str
    choices: list[AuditFacetChoice]


def address(asked: Mapping[str, str], **changes: str) -> str:
    query = {name: value for name, value in {**asked, **changes}.items() if value}
    return reverse("audit") + (f"?{urlencode(query)}" if query else "")


def chips(asked: Mapping[str, str]) -> list[AuditFilterChip]:
    return [
        AuditFilterChip(_LABELS[name], _value(name, value), address(asked, **{name: ""}))
        for name, value in asked.items()
        if value and name in _LABELS
    ]


def since_of(asked: Mapping[str, str], now: datetime) -> str:
    """The start of the time range: an absolute `since` takes precedence over a relative range."""
    known = RANGES.get(asked.get("over", ""))
    return asked["since"] or ((now - known[1]).isoformat() if known else "")


def facets(wanted: RecordSearch, asked: Mapping[str, str]) -> list[AuditFacet]:
    """Values among the newest matching records; none for a full-text search."""
    if wanted.text:
        return []
    rows, found = tally_newest(wanted), []
    for at, (name, title) in enumerate(_FACETS):
        counted = Counter(row[at] for row in rows).most_common(_MOST)
        if len(counted) > 1:
            choices = [
                AuditFacetChoice(value, count, address(asked, **{name: value}))
                for value, count in counted
            ]
            found.append(AuditFacet(title, choices))
    return found


def _value(name: str, value: str) -> str:
    return RANGES[value][0] if name == "over" and value in RANGES else value
