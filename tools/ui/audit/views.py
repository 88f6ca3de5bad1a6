"""`/audit/`: the list of audit records, and one record. Needs a user with permissions in an
organization."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required, permission_required
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from audit.actions import Actor
from audit.alerts import alerts
from audit.events import Event, Outcome
from audit.export import export
from audit.models import AuditRecord
from audit.records import record_access, record_search
from audit.records.record_search import Position
from tools.ui.audit import viewing

type View = Callable[..., HttpResponse]
PERMISSION = "audit.view_auditrecord"
PAGE_SIZE = 50
MORE = ("since", "until", "reason", "execution", "request")  # filters that are collapsed
LABELS = {"q": "Words", "request": "Request", "execution": "Execution", "since": "Since",
          "until": "Until"}  # fmt: skip


@dataclass(frozen=True)
class AuditRecordRow:
    record: AuditRecord
    details: str


def evidence_page(view: View) -> View:
    """Decorator of read-only pages for users who may read their organization's audit records;
    forbids caching."""
    permitted = permission_required(PERMISSION, raise_exception=True)(view)
    return never_cache(require_safe(login_required(permitted)))


@evidence_page
def record_list(request: HttpRequest) -> HttpResponse:
    """Records of the user's organization, the newest first."""
    asked = {name: plain(request.GET, name) for name in record_search.SEARCH_FIELDS}
    agent = asked.pop("agent")
    over = plain(request.GET, "over")
    asked |= {"actor": asked["actor"] or agent, "over": over if over in viewing.RANGES else ""}
    opened = request.user.has_perm(record_access.MAY_OPEN)
    by = actor_of(request)
    meant = asked | {"since": viewing.since_of(asked, timezone.now())}
    wanted = record_search.read_search(by.organization, meant, opened=opened, zone=UTC)
    page = record_access.read_page(wanted, PAGE_SIZE, _position(request), by=by)
    context = {
        "asked": asked,
        "opened": opened,
        "flaws": [f"{LABELS.get(name, name)} {flaw}." for name, flaw in wanted.flaws.items()],
        "codes": codes_by_family(),
        "outcomes": event_outcomes(),
        "records": [_shown(record) for record in page.records],
        "alerts": alerts.alerts_of(by.organization).open().count(),
        "filtered": any(asked.values()),
        "more": any(asked[name] for name in MORE),
        "ranges": [(name, words) for name, (words, _) in viewing.RANGES.items()],
        "chips": viewing.chips(asked),
        "view": viewing.address(asked),
        "facets": viewing.facets(wanted, asked),
        "looked_through": record_search.MOST_SCANNED,
        "ask": f"{reverse('audit-exports')}?{urlencode(wanted.filters)}",
        "older": viewing.address(asked, cursor=page.older.cursor) if page.older else "",
        "newer": viewing.address(asked, cursor=page.newer.cursor) if page.newer else "",
        "start": viewing.address(asked) if page.newer else "",
        "exports": [(name, _export(wanted, name)) for name in export.FORMATS],
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
        "shown": _shown(opened.record),
        "sealed": opened.sealed,
        "payload": opened.payload,
        "parts": _parts(opened.payload.content or {}),
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


def _shown(record: AuditRecord) -> AuditRecordRow:
    return AuditRecordRow(record, _json(record.details))


def _parts(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, part if isinstance(part, str) else _json(part)) for name, part in content.items()
    ]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def codes_by_family() -> list[tuple[str, list[str]]]:
    """The codes by family; a whole family is searched as `TOOL.`."""
    families: dict[str, list[str]] = {}
    for event in Event:
        families.setdefault(event.partition(".")[0] + ".", []).append(event)
    return list(families.items())


def event_outcomes() -> list[str]:
    return [*Outcome]


def plain(given: QueryDict, name: str) -> str:
    return given.get(name, "").strip().replace("\x00", "")[:200]


def _position(request: HttpRequest) -> Position | None:
    """The position where the page begins; an invalid one is the newest."""
    try:
        return Position.read(plain(request.GET, "cursor"))
    except record_search.BadPosition:
        return None


def _export(wanted: record_search.RecordSearch, name: str) -> str:
    return f"{reverse('api-audit-export')}?{urlencode({'format': name} | wanted.filters)}"
