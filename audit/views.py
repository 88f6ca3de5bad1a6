"""`/audit/`: evidence to read. Knows its reader only as a user with permissions in a place."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from audit import alerts
from audit.actions import Actor
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.search import search

PERMISSION = "audit.view_auditrecord"
CHANGE = "audit.change_alert"
PAGE_SIZE = 50
MOST_ALERTS = 200
EXACT = ("actor", "tool", "execution", "outcome")
FIELDS = (*EXACT, "code", "since", "q")


@dataclass(frozen=True)
class Shown:
    record: AuditRecord
    details: str


@never_cache
@require_safe
@login_required
@permission_required(PERMISSION, raise_exception=True)
def record_list(request: HttpRequest) -> HttpResponse:
    """Records of the reader's organization, the newest first."""
    asked = {name: _plain(request.GET, name) for name in FIELDS}
    asked["actor"] = asked["actor"] or _plain(request.GET, "agent")
    records, flaws = _found(_organization(request), asked)
    before = _identifier(_plain(request.GET, "before"))
    page = list((records.filter(pk__lt=before) if before else records)[: PAGE_SIZE + 1])
    more = len(page) > PAGE_SIZE
    context = {
        "asked": asked,
        "flaws": flaws,
        "codes": _codes(),
        "outcomes": [*Outcome],
        "records": [_shown(record) for record in page[:PAGE_SIZE]],
        "alerts": alerts.alerts_of(_organization(request)).open().count(),
        "filtered": any(asked.values()),
        "older": _address(asked, before=str(page[PAGE_SIZE - 1].pk)) if more else "",
        "start": _address(asked) if before else "",
    }
    return render(request, "audit/records.html", context)


@never_cache
@require_safe
@login_required
@permission_required(PERMISSION, raise_exception=True)
def alert_list(request: HttpRequest) -> HttpResponse:
    """Open alerts first, then those somebody has looked at, of the reader's organization."""
    found = alerts.alerts_of(_organization(request))
    context = {
        "open": found.open()[:MOST_ALERTS],
        "closed": found.filter(acknowledged_at__isnull=False)[:PAGE_SIZE],
        "may_acknowledge": request.user.has_perm(CHANGE),
    }
    return render(request, "audit/alerts.html", context)


@require_POST
@login_required
@permission_required(CHANGE, raise_exception=True)
def alert_acknowledge(request: HttpRequest, alert_id: UUID) -> HttpResponse:
    found = get_object_or_404(alerts.alerts_of(_organization(request)), pk=alert_id)
    by = Actor("person", request.user.get_username(), _organization(request))
    alerts.acknowledge(alert=found, by=by)
    return redirect("alerts")


def _organization(request: HttpRequest) -> str:
    return str(request.user.organization.slug)  # type: ignore[union-attr]


def _found(organization: str, asked: dict[str, str]) -> tuple[Any, list[str]]:
    """What was asked for, and a sentence about each filter that cannot be read."""
    flaws, exact = [], {name: asked[name] for name in EXACT if asked[name]}
    if asked["execution"] and _identifier(asked["execution"]) is None:
        flaws.append("The execution is not an identifier; copy it from the execution's page.")
        exact.pop("execution")
    since = _moment(asked["since"])
    if asked["since"] and since is None:
        flaws.append("Since is not a time such as 2026-01-31T12:00.")
    found = search(organization, exact=exact, code=asked["code"], since=since, text=asked["q"])
    return found.order_by("-pk"), flaws


def _shown(record: AuditRecord) -> Shown:
    return Shown(record, json.dumps(record.details, indent=2, ensure_ascii=False))


def _codes() -> list[tuple[str, list[str]]]:
    """The codes by family; a family itself is searched as `TOOL.`."""
    families: dict[str, list[str]] = {}
    for event in Event:
        families.setdefault(event.partition(".")[0] + ".", []).append(event)
    return list(families.items())


def _plain(query: QueryDict, name: str) -> str:
    return query.get(name, "").strip().replace("\x00", "")[:200]


def _identifier(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _moment(text: str) -> Any:
    """A time as a browser's field or RFC 3339 writes it; UTC where it names no zone."""
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    if moment is not None and timezone.is_naive(moment):
        return timezone.make_aware(moment)
    return moment


def _address(asked: dict[str, str], **more: str) -> str:
    query = {name: value for name, value in (asked | more).items() if value}
    return reverse("audit") + (f"?{urlencode(query)}" if query else "")
