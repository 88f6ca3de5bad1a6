"""`/audit/alerts/`: alerts, their acknowledgment, and the channels that are notified."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from audit.alerts import alert_channels, alert_rules, alerts, deliveries
from audit.events import Severity
from audit.models import AlertChannel, AlertRule
from tools.accounts.callers import actor_of
from tools.errors import Forbidden
from tools.ui.suggestions import MOST_OFFERED, first_names, matching_names
from tools.web.keyset import count_at_most
from tools.web.listing import Column, Filters, Listing, select_field, text_field
from tools.web.one_time import REPEATED, done_here
from tools.web.pages import PageRequest, action_page, page
from tools.web.reauthentication import Proof

VIEW = "audit.view_auditrecord"
CHANGE = "audit.change_alert"
VIEW_CHANNEL = "audit.view_alertchannel"
CHANGE_CHANNEL = "audit.change_alertchannel"
OPEN, CLOSED, CHANNELS = "open", "acknowledged", "channels"
TEMPLATE = "audit/alerts.html"
MOST_FAILURES = 20


@dataclass(frozen=True)
class AlertChannelRow:
    row: AlertChannel
    target: str
    unusable: str


@page(VIEW)
def alert_list(request: PageRequest) -> HttpResponseBase:
    """Alerts of the user's organization that are open, or acknowledged; or the channels."""
    listing = TABS.get(request.GET.get("show", ""), AlertListing)
    return listing(request).respond()


@action_page(Proof.NOT_NEEDED, CHANGE)
def alert_acknowledge(request: PageRequest, alert_id: UUID) -> HttpResponse:
    found = get_object_or_404(alerts.alerts_of(request.caller.organization), pk=alert_id)
    alerts.acknowledge(alert=found, by=actor_of(request.caller), note=request.POST.get("note", ""))
    return redirect("alerts")


@action_page(Proof.NOT_NEEDED, CHANGE_CHANNEL)
def channel_test(request: PageRequest, channel_id: UUID) -> HttpResponseBase:
    """Send a test notification, once for a form that is sent twice, and show its result."""
    found = get_object_or_404(_channels(request), pk=channel_id)
    if request.repeated:
        messages.info(request, REPEATED)
    elif problem := deliveries.send_test_message(channel=found, by=actor_of(request.caller)):
        messages.error(request, f"{found.name} was not told. {problem}")
    else:
        messages.success(request, f"{found.name} was told.")
    if request.user.has_perm(VIEW):
        return redirect(f"{reverse('alerts')}?show={CHANNELS}")
    return done_here(ChannelListing(request).respond())


@page(VIEW)
def search_rules(request: PageRequest) -> HttpResponse:
    """The options of the filter by a rule."""
    return matching_names(request, _rule_names, 200)


class AlertFilters(Filters):
    severity = select_field("Severity", [*Severity])
    rule = text_field("Rule", "Exact name", list="rules")


class AlertListing(Listing):
    """One tab of the page: alerts that are open, the worst first."""

    view, template, noun, order = "alerts", TEMPLATE, "alert", "-severity"
    filters: type[Filters] = AlertFilters
    show, title = OPEN, "Open"

    def build(self) -> None:
        self.fixed = {} if self.show == OPEN else {"show": self.show}
        self.found = alerts.alerts_of(self.caller.organization)
        if not self.request.user.has_perm(VIEW):  # managing channels does not require it
            self.found = self.found.none()
        self.may_acknowledge = self.request.user.has_perm(CHANGE)
        self.columns = [*_ALERT_COLUMNS, *self.own_columns()]

    def own_columns(self) -> list[Column]:
        return [Column("acknowledge", "Acknowledge", hidden=True)] if self.may_acknowledge else []

    @property
    def bare_address(self) -> str:
        return reverse(self.view)

    def rows(self) -> Any:
        return self.found.open().filter(**self.values).weighed()

    def context(self) -> dict[str, Any]:
        may_see = _may_see_channels(self.request)
        return {
            "tabs": [(show, one.title, f"{reverse(self.view)}?show={show}")
                     for show, one in TABS.items() if show != CHANNELS or may_see],
            "open_count": count_at_most(self.found.open()),
            "rules": first_names(_rule_names(), "known-rules"),
            "longest_note": alerts.LONGEST_NOTE,
            "failures": _delivery_failures(self.request) if may_see else [],
        }  # fmt: skip

    @property
    def partials(self) -> dict[str, str]:
        return super().partials | {
            name: f"{TEMPLATE}#{self.show}_{name}" for name in ("row", "empty")
        }


_ALERT_COLUMNS = [
    Column("severity", "Severity", lambda alert: alert.severity, sort="weight"),
    Column("rule", "", lambda alert: alert.rule),
    Column("actor", "", lambda alert: alert.actor),
    Column("message", "Alert", lambda alert: alert.message),
    Column("records", "Records", lambda alert: alert.count, css="number"),
    Column("first", "", lambda alert: alert.first_at),
    Column("last", "Last", lambda alert: alert.last_at, sort="last_at", css="number"),
]


class ClosedAlertListing(AlertListing):
    show, order, title = CLOSED, "-last", "Acknowledged"

    def own_columns(self) -> list[Column]:
        return [
            Column("acknowledged_by", "Acknowledged", lambda alert: alert.acknowledged_by),
            Column("acknowledged", "", lambda alert: alert.acknowledged_at),
            Column("note", "", lambda alert: alert.note),
        ]

    def rows(self) -> Any:
        return self.found.filter(acknowledged_at__isnull=False, **self.values).weighed()


class ChannelListing(AlertListing):
    """The channels that are notified."""

    show, order, noun, filters, title = CHANNELS, "channel", "channel", Filters, "Channels"

    def build(self) -> None:
        if not _may_see_channels(self.request):
            raise Forbidden("This page needs a permission that you do not have.")
        super().build()
        self.may_test = self.request.user.has_perm(CHANGE_CHANNEL)
        test = [Column("test", "Test", hidden=True)] if self.may_test else []
        self.columns = [
            Column("channel", "Channel", lambda one: one.row.name, sort="name"),
            Column("leads_to", "Leads to", lambda one: one.target),
            Column("from", "Told from", lambda one: one.row.least),
            Column("state", "State", lambda one: one.unusable or one.row.enabled),
            *test,
        ]

    def rows(self) -> QuerySet[AlertChannel]:
        return _channels(self.request)

    def prepare(self, rows: list[AlertChannel]) -> list[AlertChannelRow]:
        return [_channel_row(row) for row in rows]


TABS: dict[str, type[AlertListing]] = {
    one.show: one for one in (AlertListing, ClosedAlertListing, ChannelListing)
}


def _may_see_channels(request: PageRequest) -> bool:
    return any(request.user.has_perm(name) for name in (VIEW_CHANNEL, CHANGE_CHANNEL))


def _rule_names(words: str = "") -> list[str]:
    """Suggestions for a filter that takes any: with these words, the rules without a row first."""
    fixed = [rule.name for rule in alert_rules.FIXED_RULES if words.lower() in rule.name.lower()]
    rows = AlertRule.objects.filter(name__icontains=words).order_by("name")
    return [*fixed, *rows.values_list("name", flat=True)[: MOST_OFFERED + 1]]


def _delivery_failures(request: PageRequest) -> Any:
    if not request.user.has_perm(VIEW):
        return []
    return deliveries.failures_of(request.caller.organization)[:MOST_FAILURES]


def _channels(request: PageRequest) -> Any:
    return AlertChannel.objects.filter(organization=request.caller.organization)


def _channel_row(row: AlertChannel) -> AlertChannelRow:
    return AlertChannelRow(
        row, alert_channels.masked_target(row), alert_channels.channel_problem(row)
    )
