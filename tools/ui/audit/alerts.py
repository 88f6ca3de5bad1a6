"""`/audit/alerts/`: alerts, their acknowledgment, and the channels that are notified."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from audit.alerts import alert_channels, alert_rules, alerts, deliveries
from audit.events import Severity
from audit.models import Alert, AlertChannel, AlertRule
from tools.ui.audit.audit_records import actor_of, needs
from tools.web.keyset import MOST_COUNTED, count_at_most
from tools.web.listing import Column, Filters, Listing, select_field, text_field
from tools.web.pages import page
from tools.web.reauthentication import Proof, proof

VIEW = "audit.view_auditrecord"
CHANGE = "audit.change_alert"
VIEW_CHANNEL = "audit.view_alertchannel"
CHANGE_CHANNEL = "audit.change_alertchannel"
MOST_OPEN = 200
MOST_RULES = 100
MOST_FAILURES = 20


@dataclass(frozen=True)
class AlertChannelRow:
    row: AlertChannel
    target: str
    unusable: str


@require_safe
@page
@needs(VIEW)
def alert_list(request: HttpRequest) -> HttpResponseBase:
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
def channel_test(request: HttpRequest, channel_id: UUID) -> HttpResponseBase:
    """Send a test notification and show the page with its result."""
    found = get_object_or_404(_channels(request), pk=channel_id)
    problem = deliveries.send_test_message(channel=found, by=actor_of(request))
    return _render_alerts(request, tried=found, problem=problem)


class AlertFilters(Filters):
    severity = select_field("Severity", [*Severity])
    rule = text_field("Rule", "Exact name", list="rules")


class ClosedAlertListing(Listing):
    """The alerts that were acknowledged, on the page of the open ones, which come first."""

    view, template, noun, filters = "alerts", "audit/alerts.html", "alert", AlertFilters
    order, swaps = "-last", False
    columns = [
        Column("rule", "", lambda alert: alert.rule),
        Column("severity", "", lambda alert: alert.severity),
        Column("actor", "", lambda alert: alert.actor),
        Column("message", "", lambda alert: alert.message),
        Column("records", "", lambda alert: alert.count),
        Column("first", "", lambda alert: alert.first_at),
        Column("last", "", lambda alert: alert.last_at, sort="last_at"),
        Column("acknowledged", "", lambda alert: alert.acknowledged_at),
        Column("acknowledged_by", "", lambda alert: alert.acknowledged_by),
        Column("note", "", lambda alert: alert.note),
    ]

    def build(self) -> None:
        self.found = alerts.alerts_of(_organization(self.request))
        if not self.request.user.has_perm(VIEW):  # managing channels does not require it
            self.found = self.found.none()
        self.narrowed = self.found.filter(**self.values)

    @property
    def bare_address(self) -> str:
        return reverse(self.view)

    def rows(self) -> QuerySet[Alert]:
        return self.narrowed.filter(acknowledged_at__isnull=False)

    def context(self) -> dict[str, Any]:
        request = self.request
        may_see = request.user.has_perm(VIEW_CHANNEL) or request.user.has_perm(CHANGE_CHANNEL)
        count = self.narrowed.open()[: MOST_OPEN + MOST_COUNTED].count()
        return {
            "open": self.narrowed.open().worst_first()[:MOST_OPEN],
            "open_count": count_at_most(self.found.open()),
            "more": max(0, count - MOST_OPEN),
            "filtered": bool(self.values),
            "rules": [rule.name for rule in _all_rules()],
            "longest_note": alerts.LONGEST_NOTE,
            "may_acknowledge": request.user.has_perm(CHANGE),
            "may_see_channels": may_see,
            "may_test": request.user.has_perm(CHANGE_CHANNEL),
            "channels": [_channel_row(row) for row in _channels(request)] if may_see else [],
            "failures": _delivery_failures(request) if may_see else [],
        }


def _render_alerts(request: HttpRequest, **more: Any) -> HttpResponseBase:
    return ClosedAlertListing(request).respond(**more)  # type: ignore[arg-type]


def _all_rules() -> list[AlertRule]:
    return [*AlertRule.objects.order_by("name")[:MOST_RULES], *alert_rules.FIXED_RULES]


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
