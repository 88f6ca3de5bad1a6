"""`/audit/alerts/`: alerts, their acknowledgment, and the channels that are notified."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from audit.alerts import alert_channels, alert_rules, alerts, deliveries
from audit.events import Severity
from audit.models import AlertChannel, AlertRule
from tools.ui.audit.audit_records import actor_of, needs
from tools.web.pages import page
from tools.web.reauthentication import Proof, proof

VIEW = "audit.view_auditrecord"
CHANGE = "audit.change_alert"
VIEW_CHANNEL = "audit.view_alertchannel"
CHANGE_CHANNEL = "audit.change_alertchannel"
MOST_OPEN = 200
CLOSED_SIZE = 25
FILTERS = ("severity", "rule")
MOST_FAILURES = 20


@dataclass(frozen=True)
class AlertChannelRow:
    row: AlertChannel
    target: str
    unusable: str


@require_safe
@page
@needs(VIEW)
def alert_list(request: HttpRequest) -> HttpResponse:
    """Alerts of the user's organization: open ones first, then acknowledged ones."""
    return _render_alerts(request)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
@needs(CHANGE)
def alert_acknowledge(request: HttpRequest, alert_id: UUID) -> HttpResponse:
    found = get_object_or_404(alerts.alerts_of(_organization(request)), pk=alert_id)
    alerts.acknowledge(alert=found, by=actor_of(request), note=request.POST.get("note", ""))
    return redirect("alerts")


@proof(Proof.NOT_NEEDED)
@require_POST
@page
@needs(CHANGE_CHANNEL)
def channel_test(request: HttpRequest, channel_id: UUID) -> HttpResponse:
    """Send a test notification and show the page with its result."""
    found = get_object_or_404(_channels(request), pk=channel_id)
    problem = deliveries.send_test_message(channel=found, by=actor_of(request))
    return _render_alerts(request, tried=found, problem=problem)


def _render_alerts(request: HttpRequest, **more: Any) -> HttpResponse:
    found = alerts.alerts_of(_organization(request))
    if not request.user.has_perm(VIEW):  # managing channels does not require reading alerts
        found = found.none()
    may_see_channels = request.user.has_perm(VIEW_CHANNEL) or request.user.has_perm(CHANGE_CHANNEL)
    asked = {name: request.GET.get(name, "").replace("\x00", "")[:40] for name in FILTERS}
    narrowed = found.filter(**{name: value for name, value in asked.items() if value})
    count = narrowed.open().count()
    closed = Paginator(narrowed.filter(acknowledged_at__isnull=False), CLOSED_SIZE)
    context = {
        "open": narrowed.open().worst_first()[:MOST_OPEN],
        "open_count": count if not any(asked.values()) else found.open().count(),
        "more": max(0, count - MOST_OPEN),
        "closed": closed.get_page(request.GET.get("page")),
        "asked": asked,
        "filtered": any(asked.values()),
        "here": urlencode({name: value for name, value in asked.items() if value}),
        "severities": [*Severity],
        "rules": [rule.name for rule in _all_rules()],
        "longest_note": alerts.LONGEST_NOTE,
        "may_acknowledge": request.user.has_perm(CHANGE),
        "may_see_channels": may_see_channels,
        "may_test": request.user.has_perm(CHANGE_CHANNEL),
        "channels": [_channel_row(row) for row in _channels(request)] if may_see_channels else [],
        "failures": _delivery_failures(request) if may_see_channels else [],
    }
    return render(request, "audit/alerts.html", context | more)


def _all_rules() -> list[AlertRule]:
    return [*AlertRule.objects.order_by("name"), *alert_rules.FIXED_RULES]


def _delivery_failures(request: HttpRequest) -> Any:
    if not request.user.has_perm(VIEW):
        return []
    return deliveries.failures_of(_organization(request))[:MOST_FAILURES]


def _channels(request: HttpRequest) -> Any:
    return AlertChannel.objects.filter(organization=_organization(request))


def _channel_row(row: AlertChannel) -> AlertChannelRow:
    return AlertChannelRow(
        row, alert_channels.masked_target(row), alert_channels.channel_problem(row)
    )


def _organization(request: HttpRequest) -> str:
    return str(request.user.organization.slug)  # type: ignore[union-attr]
