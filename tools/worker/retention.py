"""Retention: delete old rows by kind, after `RETENTION_DAYS`; an organization may set how long it
keeps outputs. Open rows, and rows that an open one needs, stay however old they are.

With an output goes what a model was shown of it, answers of the cache that were it, and the copies
of others' outputs that references had put into the call's parameters; of a call within another all
parameters, for a chain or a program makes them of outputs. While the other one is not over it may
read what its calls gave back, and they keep it.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.sessions.models import Session as BrowserSession
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import Alert, AlertDelivery
from audit.records.retention import record_expiry
from tools.definitions.callers import CallerKind
from tools.definitions.results import FINAL, OPEN, Status
from tools.models import (
    CacheEntry,
    CatalogNames,
    Confirmation,
    ConfirmationDecision,
    ConfirmationStatus,
    Execution,
    ExecutionEvent,
    Message,
    Organization,
    RequestRecord,
    Session,
    StateTransition,
    StoredOutput,
    ToolFilter,
)
from tools.models.execution_queryset import KEEPS_OUTPUT

log = logging.getLogger(__name__)
BATCH = 500
_MOST_BATCHES = 50  # of one organization in one pass
_MOST_SWEPT = 500  # of stored outputs in one pass: each may be large
_NO_ORGANIZATION = ""
type Gone = dict[str, Counter[str]]  # how many rows of each kind, by organization


def keep() -> None:
    """One pass, each batch in a transaction of its own. The rest is left to the next pass."""
    kept = Organization.objects.all()
    if not settings.RETENTION_DAYS["outputs"]:
        kept = kept.filter(output_days__isnull=False)
    for organization in kept:
        for _ in range(_MOST_BATCHES):
            if expire(organization) < BATCH:
                break
    sweep()
    for _ in range(_MOST_BATCHES):
        if not settings.RETENTION_DAYS["messages"] or forget_messages() < BATCH:
            break


def forget_all() -> Counter[str]:
    """One pass over all other kinds; how many rows of each were deleted. Each batch records what it
    deleted of an organization: long transactions would keep the sealer waiting."""
    gone: Counter[str] = Counter()
    for kind, forget in _FORGET.items():
        days = settings.RETENTION_DAYS.get(kind)
        if days == 0:
            continue
        before = timezone.now() - timedelta(days=days or 0)
        for _ in range(_MOST_BATCHES):
            done = _forget(kind, forget, before)
            gone[kind] += done
            if done == 0:
                break
    if gone.total():
        log.info("retention took away %s", dict(gone))
    return gone


@transaction.atomic
def _forget(kind: str, forget: Callable[[datetime], Gone], before: datetime) -> int:
    gone = forget(before)
    for organization in sorted({*chain(*gone.values())} - {_NO_ORGANIZATION}):
        rows = {what: found[organization] for what, found in gone.items() if found[organization]}
        record_expiry(organization, kind, rows, before)
    return gone[kind].total()


@transaction.atomic
def expire(organization: Organization) -> int:
    """How many executions lost their output or their copies."""
    due = _due(organization)
    if not due:
        return 0
    CacheEntry.objects.filter(execution__in=due).delete()
    rows = Execution.objects.filter(pk__in=due)
    rows.filter(parent__isnull=False).update(parameters={}, parameters_asked=None)
    copied = rows.filter(parameters_asked__isnull=False)
    copied.update(parameters=F("parameters_asked"), parameters_asked=None)
    gone = rows.filter(status=Status.SUCCESS, output_expired_at__isnull=True).update(
        output=None, output_digest="", output_type="", observation="", output_expired_at=Now()
    )
    record(
        Event.OUTPUT_EXPIRE,
        by=Actor(CallerKind.SYSTEM, "retention", organization.slug),
        outcome=Outcome.CHANGED,
        subject=organization.slug,
        details={
            "outputs": gone,
            "executions": len(due),
            "output_days": _output_days(organization),
        },
    )
    return len(due)


def sweep() -> None:
    """Delete what is no longer referenced: one that is stored again at this moment stays."""
    for pk in StoredOutput.objects.unnamed().values_list("pk", flat=True)[:_MOST_SWEPT]:
        StoredOutput.objects.unnamed().filter(pk=pk).delete()


@transaction.atomic
def forget_messages() -> int:
    """How many went, the oldest first; from the inboxes of people as well."""
    before = timezone.now() - timedelta(days=settings.RETENTION_DAYS["messages"])
    oldest = Message.objects.select_for_update(skip_locked=True, of=("self",)).order_by("id")
    due = [row for row in oldest.only("organization_id", "created_at")[:BATCH]
           if row.created_at < before]  # fmt: skip
    Message.objects.filter(pk__in=[row.pk for row in due]).delete()
    gone = Counter(row.organization_id for row in due)
    for organization in Organization.objects.filter(pk__in=gone).order_by("slug"):
        record(
            Event.MESSAGE_EXPIRE,
            by=Actor(CallerKind.SYSTEM, "retention", organization.slug),
            outcome=Outcome.CHANGED,
            subject=organization.slug,
            details={
                "messages": gone[organization.pk],
                "message_days": settings.RETENTION_DAYS["messages"],
            },
        )
    return len(due)


def _due(organization: Organization) -> list[UUID]:
    """Locked, so that none of them is served from the cache meanwhile."""
    rows: QuerySet[Execution] = Execution.objects.select_for_update(skip_locked=True, of=("self",))
    age = timedelta(days=_output_days(organization))
    due = rows.filter(KEEPS_OUTPUT, organization=organization, completed_at__lt=Now() - age)
    due = due.exclude(parent__status__in=sorted(OPEN))
    return list(due.order_by("completed_at").values_list("pk", flat=True)[:BATCH])


def _output_days(organization: Organization) -> int:
    kept: int = settings.RETENTION_DAYS["outputs"]
    return organization.output_days or kept


def _executions(before: datetime) -> Gone:
    """Calls before their callers: a composite goes once all it made went. With one go its events,
    its transition and its confirmation."""
    calls = Execution.objects.filter(parent=OuterRef("pk"))
    old = (
        _locked(Execution.objects.all())
        .filter(
            ~Exists(calls),
            Q(parent=None) | Q(parent__status__in=FINAL, parent__completed_at__lt=before),
            Q(session=None) | Q(session__closed_at__isnull=False),
            status__in=FINAL,
            completed_at__lt=before,
        )
        .exclude(pk__in=Execution.objects.unresolved().filter(completed_at__lt=before).values("pk"))
    )
    oldest = old.order_by("completed_at").values_list("pk", "organization__slug")
    due = dict(oldest[:BATCH])
    gone = {"executions": Counter(due.values())}
    for kind, model in (
        ("events", ExecutionEvent),
        ("transitions", StateTransition),
        ("confirmations", Confirmation),
    ):
        theirs = model._default_manager.filter(execution__in=due)
        gone[kind] = Counter(due[pk] for pk in theirs.values_list("execution", flat=True))
    StateTransition.objects.filter(execution__in=due).delete()
    _delete_confirmations(Confirmation.objects.filter(execution__in=due))
    Execution.objects.filter(pk__in=due).delete()
    return gone


def _confirmations(before: datetime) -> Gone:
    over = Confirmation.objects.filter(created_at__lt=before, execution__status__in=FINAL)
    over = over.exclude(status=ConfirmationStatus.PENDING)
    oldest = _locked(over).order_by("created_at").values_list("pk", "organization__slug")
    due = dict(oldest[:BATCH])
    _delete_confirmations(Confirmation.objects.filter(pk__in=due))
    return {"confirmations": Counter(due.values())}


def _delete_confirmations(rows: QuerySet[Confirmation]) -> None:
    ConfirmationDecision.objects.filter(confirmation__in=rows).delete()
    rows.delete()


def _transitions(before: datetime) -> Gone:
    closed = Q(session=None) | Q(session__closed_at__isnull=False)
    return {"transitions": _oldest(StateTransition.objects.filter(closed, at__lt=before))}


def _events(before: datetime) -> Gone:
    old = ExecutionEvent.objects.filter(created_at__lt=before, execution__completed_at__lt=before)
    return {"events": _oldest(old, "execution__organization__slug")}


def _requests(before: datetime) -> Gone:
    """Their ids are in the order of their times; the table has no index of those."""
    rows = _locked(RequestRecord.objects.order_by("id"))
    rows = rows.values_list("pk", "at", "organization__slug")
    due = {pk: organization for pk, at, organization in rows[:BATCH] if at < before}
    RequestRecord.objects.filter(pk__in=due).delete()
    _delete_lists(before)
    return {"requests": Counter(due.values())}


def _delete_lists(before: datetime) -> None:
    """Lists of names that no request's row names, and that no process knows any longer: a
    process that stores a list makes it young, and knows it for less than the least of days."""
    for model, users in (
        (ToolFilter, RequestRecord.objects.filter(tool_filter=OuterRef("pk"))),
        (CatalogNames, ToolFilter.objects.filter(catalog=OuterRef("pk"))),
    ):
        _oldest(model._default_manager.filter(~Exists(users), created_at__lt=before), None)


def _sessions(before: datetime) -> Gone:
    """Those that are closed, once no call and no transition speaks of them."""
    calls = Execution.objects.filter(session=OuterRef("pk"))
    moves = StateTransition.objects.filter(session=OuterRef("pk"))
    old = Session.objects.filter(~Exists(calls), ~Exists(moves), closed_at__lt=before)
    return {"sessions": _oldest(old)}


def _browser_sessions(before: datetime) -> Gone:
    """`before` is now: a session of a browser says itself until when it is good, and is no
    organization's."""
    old = BrowserSession.objects.filter(expire_date__lt=before)
    return {"browser sessions": _oldest(old, None)}


def _alerts(before: datetime) -> Gone:
    old = Alert.objects.filter(acknowledged_at__lt=before, last_at__lt=before)
    return {"alerts": _oldest(old, "organization")}


def _deliveries(before: datetime) -> Gone:
    over = Q(delivered_at__lt=before) | Q(given_up_at__lt=before)
    return {"deliveries": _oldest(AlertDelivery.objects.filter(over), "alert__organization")}


def _locked(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those that no concurrent pass takes: each row is recorded as deleted only once."""
    return rows.select_for_update(skip_locked=True, of=("self",))


def _oldest(rows: QuerySet[Any], organization: str | None = "organization__slug") -> Counter[str]:
    """How many of them went, of each organization; `organization` says where a row has its name."""
    name = F(organization) if organization else Value(_NO_ORGANIZATION)
    due = dict(_locked(rows).order_by("pk").values_list("pk", name)[:BATCH])
    if due:
        rows.model._default_manager.filter(pk__in=due).delete()
    return Counter(due.values())


# Without days of its own: what is over by itself.
_FORGET: dict[str, Callable[[datetime], Gone]] = {
    "executions": _executions,
    "confirmations": _confirmations,
    "transitions": _transitions,
    "events": _events,
    "requests": _requests,
    "sessions": _sessions,
    "browser sessions": _browser_sessions,
    "deliveries": _deliveries,
    "alerts": _alerts,
}
