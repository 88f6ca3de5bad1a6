"""`/audit/`: the list of audit records, and one record. Needs a user with permissions in an
organization. The URL holds active filters, facets and time range, so that it can be bookmarked
and shared; a range such as `1h` is relative to now.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from audit.actions import Actor
from audit.alerts import alerts
from audit.events import Event, Outcome
from audit.export import export
from audit.models import AuditRecord
from audit.records import record_access, record_search
from audit.records.record_search import Position, RecordSearch, tally_newest
from tools.accounts.user_permissions import require
from tools.web.pages import PageRequest, View, page

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
_CHIP_LABELS = {
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


@dataclass(frozen=True)
class AuditRecordRow:
    record: AuditRecord
    details: str


def needs(permission: str) -> Callable[[View], View]:
    """Below `page`: refuses users without the permission."""

    def checked(view: View) -> View:
        @wraps(view)
        def permitted(request: PageRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            require(request.caller, permission)
            return view(request, *args, **kwargs)

        return permitted

    return checked


def records_address(asked: Mapping[str, str], **changes: str) -> str:
    query = {name: value for name, value in {**asked, **changes}.items() if value}
    return reverse("audit") + (f"?{urlencode(query)}" if query else "")


def filter_chips(asked: Mapping[str, str]) -> list[AuditFilterChip]:
    return [
        AuditFilterChip(
            _CHIP_LABELS[name], _chip_value(name, value), records_address(asked, **{name: ""})
        )
        for name, value in asked.items()
        if value and name in _CHIP_LABELS
    ]


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


def evidence_page(view: View) -> View:
    """Decorator of read-only pages for users who may read their organization's audit records."""
    return require_safe(page(needs(PERMISSION)(view)))


@evidence_page
def record_list(request: HttpRequest) -> HttpResponse:
    """Records of the user's organization, the newest first."""
    asked = {name: query_value(request.GET, name) for name in record_search.SEARCH_FIELDS}
    agent = asked.pop("agent")
    over = query_value(request.GET, "over")
    asked |= {"actor": asked["actor"] or agent, "over": over if over in RANGES else ""}
    opened = request.user.has_perm(record_access.MAY_OPEN)
    by = actor_of(request)
    meant = asked | {"since": range_start(asked, timezone.now())}
    wanted = record_search.read_search(by.organization, meant, opened=opened, zone=UTC)
    page = record_access.read_page(wanted, PAGE_SIZE, _read_position(request), by=by)
    context = {
        "asked": asked,
        "opened": opened,
        "flaws": [f"{LABELS.get(name, name)} {flaw}." for name, flaw in wanted.flaws.items()],
        "codes": codes_by_family(),
        "outcomes": event_outcomes(),
        "records": [_record_row(record) for record in page.records],
        "alerts": alerts.alerts_of(by.organization).open().count(),
        "filtered": any(asked.values()),
        "more": any(asked[name] for name in COLLAPSED_FILTERS),
        "ranges": [(name, words) for name, (words, _) in RANGES.items()],
        "chips": filter_chips(asked),
        "view": records_address(asked),
        "facets": record_facets(wanted, asked),
        "looked_through": record_search.MOST_SCANNED,
        "ask": f"{reverse('audit-exports')}?{urlencode(wanted.filters)}",
        "older": records_address(asked, cursor=page.older.cursor) if page.older else "",
        "newer": records_address(asked, cursor=page.newer.cursor) if page.newer else "",
        "start": records_address(asked) if page.newer else "",
        "exports": [(name, _export_address(wanted, name)) for name in export.FORMATS],
    }
    return render(request, "audit/records.html", context)


@evidence_page
def record_detail(request: HttpRequest, record_id: UUID) -> HttpResponse:
    """One record, its sequence number and, with permission, the call's payload."""
    may_open = request.user.has_perm(record_access.MAY_OPEN)
    opened = record_access.open_record(record_id, by=actor_of(request), may_open=may_open)
    if opened is None:
        raise Http404
    context = {
        "shown": _record_row(opened.record),
        "sealed": opened.sealed,
        "payload": opened.payload,
        "parts": _payload_parts(opened.payload.content or {}),
        "alerts": alerts.alerts_of(opened.record.organization).open().count(),
    }
    return render(request, "audit/record.html", context)


def actor_of(request: HttpRequest) -> Actor:
    """The actor who reads a page of evidence."""
    user: Any = request.user
    return Actor(
        kind="person",
        name=user.get_username(),
        organization=str(user.organization.slug),
        id=str(user.pk),
        source_ip=str(request.META.get("REMOTE_ADDR", ""))[:45],
        request_id=str(getattr(request, "name", "")),
    )


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


def _chip_value(name: str, value: str) -> str:
    return RANGES[value][0] if name == "over" and value in RANGES else value


def _record_row(record: AuditRecord) -> AuditRecordRow:
    return AuditRecordRow(record, _json(record.details))


def _payload_parts(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, part if isinstance(part, str) else _json(part)) for name, part in content.items()
    ]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _read_position(request: HttpRequest) -> Position | None:
    """The position where the page begins; an invalid one is the newest."""
    try:
        return Position.read(query_value(request.GET, "cursor"))
    except record_search.BadPosition:
        return None


def _export_address(wanted: record_search.RecordSearch, name: str) -> str:
    return f"{reverse('api-audit-export')}?{urlencode({'format': name} | wanted.filters)}"
