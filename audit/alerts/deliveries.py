"""Alert deliveries: planned in the transaction that raises the alert, sent after it, retried until
delivered or given up. At least once: a worker that dies in the middle may send it twice, and the
delivery's id is the same both times.

Channels that answered last are served first, and no organization has more than its share of a
batch: receivers that never answer do not delay those of other organizations. A channel that fails
is paused with all its pending deliveries.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib.postgres.aggregates import BoolOr
from django.db import transaction
from django.db.models import Count, Min, Q, QuerySet, Sum
from django.db.models.functions import Now

from audit import metrics
from audit.actions import Actor, record
from audit.alerts import alert_channels
from audit.alerts.alert_channels import AlertMessage, DeliveryFailed
from audit.events import Event, Outcome, Severity
from audit.models import Alert, AlertChannel, AlertDelivery
from audit.models.alerts import worst_first

log = logging.getLogger(__name__)
MOST_AN_HOUR = 60  # on one channel; more would not be read
_HOUR = timedelta(hours=1)
_STALE_AFTER = timedelta(days=1)
_FIRST_PAUSE_S = 10
_LONGEST_PAUSE_S = 3600
_CLAIM_LEASE = timedelta(
    seconds=60
)  # no other worker takes it meanwhile; longer than one sending takes
_BATCH_S = 8.0
_SHARE_S = 4.0  # of a batch, for one organization; less than a receiver that never answers takes
_WORKER_DIED = "The worker that sent it ended before it was delivered."


def plan_deliveries(alert: Alert, *, capped: bool = True) -> bool:
    """Call it in the transaction that raises the alert. Returns whether a channel has reached its
    hourly limit for this severity, and is not notified."""
    severity = Severity(alert.severity)
    wanted = AlertChannel.objects.filter(
        organization=alert.organization,
        enabled=True,
        least__in=[one for one in Severity if one.rank <= severity.rank],
    )
    full = set(_full_channels(wanted, severity)) if capped else set()
    AlertDelivery.objects.bulk_create(
        AlertDelivery(alert=alert, channel=channel) for channel in wanted if channel.pk not in full
    )
    return bool(full)


def delete_deliveries(alert: Alert) -> None:
    """Delete deliveries of the alert, so that it can be planned again, under another id."""
    AlertDelivery.objects.filter(alert=alert).delete()


def send_due() -> int:
    """Return how many were delivered."""
    until, delivered, spent_s = time.monotonic() + _BATCH_S, 0, defaultdict[str, float](float)
    while (began := time.monotonic()) < until:
        served = [name for name, seconds in spent_s.items() if seconds >= _SHARE_S]
        delivery = _claim_delivery(served)
        if delivery is None:
            break
        if _is_stale(delivery):
            _give_up(delivery, delivery.problem or _WORKER_DIED)
        else:
            delivered += _send(delivery)
        spent_s[delivery.channel.organization] += time.monotonic() - began
    return delivered


def send_test_message(*, channel: AlertChannel, by: Actor) -> str:
    """Send a test message to the channel; the error, empty when it was delivered."""
    problem = _attempt(channel, _test_message(channel))
    record(
        Event.ALERT_TEST,
        by=by,
        outcome=Outcome.FAILURE if problem else Outcome.SUCCESS,
        subject=channel.name,
        details={"channel": str(channel.pk), "problem": problem},
    )
    return problem


def failures_of(organization: str) -> QuerySet[AlertDelivery]:
    """Deliveries that failed or are pending, the newest first."""
    return (
        AlertDelivery.objects.filter(alert__organization=organization, delivered_at=None)
        .exclude(problem="")
        .select_related("alert", "channel")
        .order_by("-id")
    )


def _full_channels(channels: Iterable[AlertChannel], severity: Severity) -> Iterable[Any]:
    """A flood of less severe alerts does not prevent a more severe one from being sent."""
    counted = Q(delivered_at__gt=Now() - _HOUR) | Q(delivered_at=None, given_up_at=None)
    found = AlertDelivery.objects.filter(
        counted,
        channel__in=channels,
        alert__severity__in=[one for one in Severity if one.rank >= severity.rank],
    ).values_list("channel")
    full = found.annotate(delivered=Count("pk")).filter(delivered__gte=MOST_AN_HOUR)
    return full.values_list("channel", flat=True)


def _pending() -> QuerySet[AlertDelivery]:
    return AlertDelivery.objects.filter(delivered_at=None, given_up_at=None)


def _due_channels(served: list[str]) -> Iterable[Any]:
    """Those that fail come last. Equals are in random order, so that none starves."""
    waiting = _pending().filter(channel__enabled=True).exclude(channel__organization__in=served)
    found = waiting.values("channel").annotate(next=Min("due_at"), fails=BoolOr(~Q(problem="")))
    due = found.filter(next__lte=Now()).order_by("fails", "?")
    return [row["channel"] for row in due]


@transaction.atomic
def _claim_delivery(served: list[str]) -> AlertDelivery | None:
    """Committed before anything is sent: only a worker that dies causes a second sending."""
    for channel in _due_channels(served):
        if delivery := _next_delivery(channel):
            delivery.attempts += 1
            row = AlertDelivery.objects.filter(pk=delivery.pk)
            row.update(attempts=delivery.attempts, due_at=Now() + _CLAIM_LEASE)
            return delivery
    return None


def _next_delivery(channel: Any) -> AlertDelivery | None:
    """The least tried go first: one that its receiver rejects does not delay the others."""
    return (
        _pending()
        .filter(channel=channel, due_at__lte=Now())
        .select_for_update(skip_locked=True, of=("self",))
        .select_related("alert", "channel")
        .order_by("attempts", worst_first("alert__severity"), "id")
        .first()
    )


def _is_stale(delivery: AlertDelivery) -> bool:
    """Already tried, for an alert that ended a day ago."""
    tried = delivery.problem or delivery.attempts > 1
    old = Alert.objects.filter(pk=delivery.alert_id, last_at__lt=Now() - _STALE_AFTER)
    return bool(tried) and old.exists()


def _send(delivery: AlertDelivery) -> bool:
    problem = _attempt(delivery.channel, message_of(delivery))
    if problem:
        _postpone(delivery, problem)
    else:
        _finish(delivery)
    metrics.deliveries.labels("failed" if problem else "told").inc()
    return not problem


@transaction.atomic
def _postpone(delivery: AlertDelivery, problem: str) -> None:
    """Postpone all pending deliveries of the channel, the longer the more often it failed."""
    waiting = _pending().filter(channel=delivery.channel_id)
    failed = waiting.aggregate(times=Sum("attempts"))["times"] or 1
    again = {"problem": problem, "due_at": Now() + retry_delay(failed)}
    waiting.filter(pk=delivery.pk, attempts=delivery.attempts).update(**again)
    _unlocked(waiting.filter(due_at__lt=again["due_at"])).update(**again)


@transaction.atomic
def _finish(delivery: AlertDelivery) -> None:
    """Resume deliveries that only waited for the channel."""
    row = AlertDelivery.objects.filter(pk=delivery.pk, attempts=delivery.attempts)
    row.update(delivered_at=Now(), problem="")
    held = _pending().filter(channel=delivery.channel_id, attempts=0).exclude(problem="")
    _unlocked(held).update(due_at=Now(), problem="")


def _unlocked(rows: QuerySet[AlertDelivery]) -> QuerySet[AlertDelivery]:
    """Skips rows that another process has just claimed: two processes that change many never wait
    for each other."""
    free = rows.select_for_update(skip_locked=True).values("pk")
    return AlertDelivery.objects.filter(pk__in=free)


def retry_delay(failed: int) -> timedelta:
    """The delay after so many attempts: 10 s, 20 s, 40 s and so on, an hour at most."""
    return timedelta(seconds=min(_FIRST_PAUSE_S * 2 ** min(failed - 1, 10), _LONGEST_PAUSE_S))


@transaction.atomic
def _give_up(delivery: AlertDelivery, problem: str) -> None:
    row = AlertDelivery.objects.filter(pk=delivery.pk, given_up_at=None, delivered_at=None)
    if row.update(problem=problem, given_up_at=Now()):
        record(
            Event.ALERT_DELIVER,
            by=Actor("system", "alerts", delivery.alert.organization),
            outcome=Outcome.FAILURE,
            subject=delivery.alert.rule,
            details={
                "alert": str(delivery.alert_id),
                "channel": str(delivery.channel_id),
                "attempts": delivery.attempts,
                "problem": problem,
            },
        )


def _attempt(channel: AlertChannel, message: AlertMessage) -> str:
    try:
        alert_channels.send_message(channel, message)
    except DeliveryFailed as problem:
        log.warning("%s was not told on the channel %s", message.title, channel.pk)
        return str(problem)[:300]
    return ""


def message_of(delivery: AlertDelivery) -> AlertMessage:
    alert = delivery.alert
    seen = f"{alert.count} record{'s' if alert.count != 1 else ''}, last at {alert.last_at:%c} UTC"
    return AlertMessage(
        delivery=f"{alert.pk}:{delivery.pk}",
        title=f"[Toolcrib {alert.severity}] {alert.message}",
        text=f"{alert.message}\n\nOrganization {alert.organization}, rule {alert.rule}: {seen}.\n",
        content={"type": "alert", "alert": _alert_content(alert)},
    )


def _alert_content(alert: Alert) -> dict[str, Any]:
    return {
        "id": str(alert.pk),
        "organization": alert.organization,
        "rule": alert.rule,
        "severity": alert.severity,
        "actor": alert.actor,
        "subject": alert.subject,
        "message": alert.message,
        "count": alert.count,
        "first_at": alert.first_at.isoformat(),
        "last_at": alert.last_at.isoformat(),
    }


def _test_message(channel: AlertChannel) -> AlertMessage:
    return AlertMessage(
        delivery=f"test:{channel.pk}:{time.time_ns()}",
        title=f"[Toolcrib test] {channel.name}",
        text=f"Alerts of the organization {channel.organization} will be told here.\n",
        content={"type": "test", "organization": channel.organization, "channel": channel.name},
    )
