"""`/audit/`: the list of audit records, and one record. Needs a user with permissions in an
organization. The URL holds active filters, facets and time range, so that it can be bookmarked
and shared; a range such as `1h` is relative to now.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from audit.alerts import alerts
from audit.events import Event, Outcome
from audit.export import export
from audit.models import AuditRecord
from audit.records import record_access, record_search
from audit.records.record_search import Position, RecordSearch, tally_newest
from tools.accounts.callers import actor_of
from tools.web.keyset import KeysetPage, count_at_most
from tools.web.listing import Filters, Listing, choice_field, text_field
from tools.web.pages import PageRequest, page

RANGES = {
    "1h": ("the last hour", timedelta(hours=1)),
    "24h": ("the last 24 hours", timedelta(days=1)),
    "7d": ("the last 7 days", timedelta(days=7)),
    "30d": ("the last 30 days", timedelta(days=30)),
}
PERMISSION = "audit.view_auditrecord"
PAGE_SIZE = 50
COLLAPSED_FILTERS = (
    "since",
    "until",
    "reason",
    "execution",
    "request",
)  # filters that are collapsed
LABELS = {"q": "Words", "request": "Request", "execution": "Execution", "since": "Since",
          "until": "Until"}  # fmt: skip
_MOST_CHOICES = 6  # values of a facet
_FACETS = (("code", "Codes"), ("outcome", "Outcomes"), ("actor", "Who"))


@dataclass(frozen=True, slots=True)
class AuditFacetChoice:
    value: str
    count: int
    address: str


@dataclass(frozen=True, slots=True)
class AuditFacet:
    title: str
    choices: list[AuditFacetChoice]


@dataclass(frozen=True)
class AuditRecordRow:
    record: AuditRecord
    details: str


def records_address(asked: Mapping[str, str], **changes: str) -> str:
    query = {name: value for name, value in {**asked, **changes}.items() if value}
    return reverse("audit") + (f"?{urlencode(query)}" if query else "")


def range_start(asked: Mapping[str, str], now: datetime) -> str:
    """The start of the time range: an absolute `since` takes precedence over a relative range."""
    known = RANGES.get(asked.get("over", ""))
    return asked["since"] or ((now - known[1]).isoformat() if known else "")


def record_facets(wanted: RecordSearch, asked: Mapping[str, str]) -> list[AuditFacet]:
    """Values among the newest matching records; none for a full-text search."""
    if wanted.text:
        return []
    rows, found = tally_newest(wanted), []
    for at, (name, title) in enumerate(_FACETS):
        counted = Counter(row[at] for row in rows).most_common(_MOST_CHOICES)
        if len(counted) > 1:
            choices = [
                AuditFacetChoice(value, count, records_address(asked, **{name: value}))
                for value, count in counted
            ]
            found.append(AuditFacet(title, choices))
    return found


class RecordFilters(Filters):
    code = text_field("Code")
    outcome = text_field("Outcome")
    actor = text_field("Who")
    tool = text_field("Tool")
    over = choice_field("Time", [(name, words) for name, (words, _) in RANGES.items()])
    since = text_field("Since")
    until = text_field("Until")
    q = text_field("Words")
    reason = text_field("Reason")
    execution = text_field("Execution")
    request = text_field("Request")
    field_order = [*record_search.SEARCH_FIELDS, "over"]

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({**given, "actor": given.get("actor") or given.get("agent", "")})


class RecordListing(Listing):
    """Records of the user's organization, the newest first. That they were read is on record.

    They are exported as evidence, which is on record too, and not as a CSV file of a list.
    """

    view, template, noun, page_size = "audit", "audit/records.html", "record", PAGE_SIZE
    filters, counted, exported, results = RecordFilters, False, False, "audit/records.html#results"

    def build(self) -> None:
        self.by = actor_of(self.request.caller)
        self.opened = self.request.user.has_perm(record_access.MAY_OPEN)
        self.asked = {name: self.filter.texts.get(name, "") for name in self.filter.fields}
        meant = self.asked | {"since": range_start(self.asked, timezone.now())}
        del meant["over"]
        self.wanted = record_search.read_search(
            self.by.organization, meant, opened=self.opened, zone=UTC
        )

    @cached_property
    def audit_page(self) -> record_access.AuditPage:
        position = _read_position(self.request)
        return record_access.read_page(self.wanted, self.page_size, position, by=self.by)

    @cached_property
    def page(self) -> KeysetPage:
        found = self.audit_page
        return KeysetPage(found.records, bool(found.newer), bool(found.older))

    def prepare(self, rows: list[AuditRecord]) -> list[AuditRecordRow]:
        return [_record_row(record) for record in rows]

    @property
    def paged(self) -> bool:
        return bool(self.audit_page.newer)

    @property
    def previous(self) -> str:
        return self.address(cursor=self.audit_page.newer.cursor) if self.audit_page.newer else ""

    @property
    def next(self) -> str:
        return self.address(cursor=self.audit_page.older.cursor) if self.audit_page.older else ""

    @property
    def current_address(self) -> str:
        return self.address(cursor=self.given.get("cursor", ""))

    def context(self) -> dict[str, Any]:
        wanted = self.wanted
        return {
            "asked": self.asked,
            "opened": self.opened,
            "flaws": [f"{LABELS.get(name, name)} {flaw}." for name, flaw in wanted.flaws.items()],
            "codes": codes_by_family(),
            "outcomes": event_outcomes(),
            "alerts": count_open(self.by.organization),
            "filtered": bool(self.values),
            "more": any(self.asked[name] for name in COLLAPSED_FILTERS),
            "ranges": [(name, words) for name, (words, _) in RANGES.items()],
            "facets": record_facets(wanted, self.asked),
            "looked_through": record_search.MOST_SCANNED,
            "ask": f"{reverse('audit-exports')}?{urlencode(wanted.filters)}",
            "exports": [(name, _export_address(wanted, name)) for name in export.FORMATS],
        }


@page(PERMISSION)
def record_list(request: PageRequest) -> HttpResponseBase:
    return RecordListing(request).respond()


def count_open(organization: str) -> int | str:
    """The organization's open alerts."""
    return count_at_most(alerts.alerts_of(organization).open())


@page(PERMISSION)
def record_detail(request: PageRequest, record_id: UUID) -> HttpResponse:
    """One record, its sequence number and, with permission, the call's payload."""
    may_open = request.user.has_perm(record_access.MAY_OPEN)
    opened = record_access.open_record(record_id, by=actor_of(request.caller), may_open=may_open)
    if opened is None:
        raise Http404
    context = {
        "shown": _record_row(opened.record),
        "sealed": opened.sealed,
        "payload": opened.payload,
        "parts": _payload_parts(opened.payload.content or {}),
        "alerts": count_open(opened.record.organization),
    }
    return render(request, "audit/record.html", context)


def codes_by_family() -> list[tuple[str, list[str]]]:
    """The codes by family; a whole family is searched as `TOOL.`."""
    families: dict[str, list[str]] = {}
    for event in Event:
        families.setdefault(event.partition(".")[0] + ".", []).append(event)
    return list(families.items())


def event_outcomes() -> list[str]:
    return [*Outcome]


def query_value(given: QueryDict, name: str) -> str:
    return given.get(name, "").strip().replace("\x00", "")[:200]


def _record_row(record: AuditRecord) -> AuditRecordRow:
    return AuditRecordRow(record, _json(record.details))


def _payload_parts(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, part if isinstance(part, str) else _json(part)) for name, part in content.items()
    ]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _read_position(request: PageRequest) -> Position | None:
    """The position where the page begins; an invalid one is the newest."""
    try:
        return Position.read(query_value(request.GET, "cursor"))
    except record_search.BadPosition:
        return None


def _export_address(wanted: record_search.RecordSearch, name: str) -> str:
    return f"{reverse('api-audit-export')}?{urlencode({'format': name} | wanted.filters)}"
