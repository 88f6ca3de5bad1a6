"""Retention: delete old rows by kind, after `RETENTION_DAYS`; an organization may set how long it
keeps outputs. Open rows, and rows that an open one needs, stay however old they are.

With an output goes what a model was shown of it, answers of the cache that were it, and the copies
of others' outputs that references had put into the call's parameters; of a call within another all
parameters, for a chain or a program makes them of outputs. While the other one is not over it may
read what its calls gave back, and they keep it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.sessions.models import Session as BrowserSession
from django.db import connection, transaction
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import Alert, AlertDelivery
from audit.partitions import Partition
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
    Message,
    Organization,
    RequestRecord,
    Session,
    StateTransition,
    StoredEvent,
    StoredOutput,
    ToolFilter,
)
from tools.models.execution_queryset import KEEPS_DATA
from tools.worker.expired_months import MonthlyRows, drop_months, months_within, of_month

log = logging.getLogger(__name__)
BATCH = 500
_MAX_BATCHES = 50  # of one organization in one pass
_MAX_UNREFERENCED = 500  # of stored outputs in one pass: each may be large
_NO_ORGANIZATION = ""
_OF_EXECUTIONS: dict[str, type[Model]] = {
    "events": StoredEvent,
    "transitions": StateTransition,
    "confirmations": Confirmation,
}
# What is added up of a day is then made of what is left, as where executions are deleted.
_FORGET_DAYS = """
WITH span AS (
    SELECT organization_id, min(created_at) AS first, max(created_at) AS last FROM {name} GROUP BY 1
)
SELECT tools_forget_day(organization_id, moment) FROM span CROSS JOIN LATERAL (
    SELECT generate_series(first, last, interval '12 hours') UNION SELECT last
) AS moments (moment)
"""
_FORGET_KEYS = """
DELETE FROM tools_executionkey
WHERE execution_id >= coalesce(%(first)s, '00000000-0000-0000-0000-000000000000'::uuid)
    AND execution_id < %(end)s
"""
_REFERRED_TO = timedelta(days=1)  # longer than a process refers to a list that it stored
type DeletedRows = dict[str, Counter[str]]  # how many rows of each kind, by organization


def expire_outputs() -> None:
    """One pass over outputs and messages, each batch in a transaction of its own. The rest is left
    to the next pass."""
    organizations = Organization.objects.all()
    if not settings.RETENTION_DAYS["outputs"]:
        organizations = organizations.filter(output_days__isnull=False)
    for organization in organizations:
        for _ in range(_MAX_BATCHES):
            if expire_outputs_of(organization) < BATCH:
                break
    delete_unreferenced_outputs()
    for _ in range(_MAX_BATCHES):
        if not settings.RETENTION_DAYS["messages"] or delete_old_messages() < BATCH:
            break


def delete_expired_rows() -> Counter[str]:
    """One pass over all other kinds; how many rows of each were deleted. Each batch records what it
    deleted of an organization: long transactions would keep the sealer waiting."""
    deleted: Counter[str] = Counter()
    for kind, delete in _DELETE.items():
        days = settings.RETENTION_DAYS.get(kind)
        if days == 0:
            continue
        before, batch = timezone.now() - timedelta(days=days or 0), delete
        if kind in _MONTHLY:
            staying, dropped = drop_months(_MONTHLY[kind], before)
            deleted[kind] += dropped
            batch = partial(delete, staying=staying)
        for _ in range(_MAX_BATCHES):
            count = _delete_batch(kind, batch, before)
            deleted[kind] += count
            if count == 0:
                break
    if deleted.total():
        log.info("retention deleted %s", dict(deleted))
    return deleted


@transaction.atomic
def _delete_batch(kind: str, delete: Callable[[datetime], DeletedRows], before: datetime) -> int:
    deleted = delete(before)
    for organization in sorted({*chain(*deleted.values())} - {_NO_ORGANIZATION}):
        counts = {name: found[organization] for name, found in deleted.items()}
        record_expiry(organization, kind, {name: n for name, n in counts.items() if n}, before)
    return deleted[kind].total()


@transaction.atomic
def expire_outputs_of(organization: Organization) -> int:
    """How many executions lost their output or their copies."""
    due = _due(organization)
    if not due:
        return 0
    CacheEntry.objects.filter(execution__in=due).delete()
    rows = Execution.objects.filter(pk__in=due)
    rows.filter(parent__isnull=False).update(parameters={}, parameters_asked=None)
    copied = rows.filter(parameters_asked__isnull=False)
    copied.update(parameters=F("parameters_asked"), parameters_asked=None)
    deleted = rows.filter(status=Status.SUCCESS, output_expired_at__isnull=True).update(
        output=None, output_digest="", output_type="", observation="", output_expired_at=Now()
    )
    record(
        Event.OUTPUT_EXPIRE,
        by=Actor(CallerKind.SYSTEM, "retention", organization.slug),
        outcome=Outcome.CHANGED,
        subject=organization.slug,
        details={
            "outputs": deleted,
            "executions": len(due),
            "output_days": _output_days(organization),
        },
    )
    return len(due)


def delete_unreferenced_outputs() -> None:
    """An output that is stored again at this moment stays."""
    for pk in StoredOutput.objects.unnamed().values_list("pk", flat=True)[:_MAX_UNREFERENCED]:
        StoredOutput.objects.unnamed().filter(pk=pk).delete()


@transaction.atomic
def delete_old_messages() -> int:
    """How many were deleted, the oldest first; from the inboxes of people as well."""
    before = timezone.now() - timedelta(days=settings.RETENTION_DAYS["messages"])
    oldest = Message.objects.select_for_update(skip_locked=True, of=("self",)).order_by("id")
    due = [row for row in oldest.only("organization_id", "created_at")[:BATCH]
           if row.created_at < before]  # fmt: skip
    Message.objects.filter(pk__in=[row.pk for row in due]).delete()
    deleted = Counter(row.organization_id for row in due)
    for organization in Organization.objects.filter(pk__in=deleted).order_by("slug"):
        record(
            Event.MESSAGE_EXPIRE,
            by=Actor(CallerKind.SYSTEM, "retention", organization.slug),
            outcome=Outcome.CHANGED,
            subject=organization.slug,
            details={
                "messages": deleted[organization.pk],
                "message_days": settings.RETENTION_DAYS["messages"],
            },
        )
    return len(due)


def _due(organization: Organization) -> list[UUID]:
    """Locked, so that none of them is served from the cache meanwhile."""
    rows: QuerySet[Execution] = Execution.objects.select_for_update(skip_locked=True, of=("self",))
    over = Now() - timedelta(days=_output_days(organization))
    due = rows.filter(
        KEEPS_DATA,
        organization=organization,
        status__in=sorted(FINAL),
        created_at__lt=over,
        completed_at__lt=over,
    )
    due = due.exclude(parent__status__in=sorted(OPEN))
    return list(due.order_by("created_at").values_list("pk", flat=True)[:BATCH])


def _output_days(organization: Organization) -> int:
    default: int = settings.RETENTION_DAYS["outputs"]
    return organization.output_days or default


def _executions_due(before: datetime) -> QuerySet[Execution]:
    """Those that may go with, or after, all calls that they made."""
    due = Execution.objects.filter(
        Q(parent=None) | Q(parent__status__in=FINAL, parent__completed_at__lt=before),
        Q(session=None) | Q(session__closed_at__isnull=False),
        status__in=FINAL,
        completed_at__lt=before,
    )
    return due.exclude(
        pk__in=Execution.objects.unresolved().filter(completed_at__lt=before).values("pk")
    )


def _delete_executions(before: datetime, staying: Sequence[Partition] = ()) -> DeletedRows:
    """Calls before their callers: a composite call is deleted after all calls that it made. The
    events, the transition and the confirmation of a call are deleted with it. Those of months that
    stay for now are left."""
    calls = Execution.objects.filter(parent=OuterRef("pk"))
    old = _locked(_executions_due(before)).filter(~Exists(calls))
    old = _outside(staying, old)
    oldest = old.order_by("completed_at").values_list("pk", "organization__slug")
    due = dict(oldest[:BATCH])
    deleted = {"executions": Counter(due.values())}
    for kind, model in _OF_EXECUTIONS.items():
        theirs = model._default_manager.filter(execution__in=due)
        deleted[kind] = Counter(due[pk] for pk in theirs.values_list("execution", flat=True))
    StateTransition.objects.filter(execution__in=due).delete()
    _delete_confirmation_rows(Confirmation.objects.filter(execution__in=due))
    Execution.objects.filter(pk__in=due).delete()
    return deleted


def _outside(months: Sequence[Partition], rows: QuerySet[Any], column: str = "pk") -> QuerySet[Any]:
    for month in months:
        rows = rows.exclude(of_month(month, column))
    return rows


def _has_children_elsewhere(month: Partition) -> bool:
    children = Execution.objects.filter(of_month(month, "parent"))
    return children.exclude(of_month(month)).exists()


def _clear_month(before: datetime, month: Partition) -> None:
    """Delete what belongs to its executions and is not dropped with them, batch by batch."""
    for kind, model in _OF_EXECUTIONS.items():
        while _delete_batch(kind, partial(_delete_of_month, kind, model, month), before):
            pass
    CacheEntry.objects.filter(of_month(month, "execution")).delete()


def _delete_of_month(kind: str, model: type[Model], month: Partition, _: datetime) -> DeletedRows:
    rows = model._default_manager.filter(of_month(month, "execution"))
    if kind in _MONTHLY:
        rows = _outside(months_within(month, _MONTHLY[kind]), rows, "execution")
    due = dict(rows.values_list("pk", "execution__organization__slug")[:BATCH])
    if model is Confirmation:
        ConfirmationDecision.objects.filter(confirmation__in=due).delete()
    model._default_manager.filter(pk__in=[*due]).delete()
    return {kind: Counter(due.values())}


def _forget_month(month: Partition) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_DAYS.format(name=month.name))
        cursor.execute(_FORGET_KEYS, {"first": month.first, "end": month.end})


def _delete_confirmations(before: datetime) -> DeletedRows:
    over = Confirmation.objects.filter(created_at__lt=before, execution__status__in=FINAL)
    over = over.exclude(status=ConfirmationStatus.PENDING)
    oldest = _locked(over).order_by("created_at").values_list("pk", "organization__slug")
    due = dict(oldest[:BATCH])
    _delete_confirmation_rows(Confirmation.objects.filter(pk__in=due))
    return {"confirmations": Counter(due.values())}


def _delete_confirmation_rows(rows: QuerySet[Confirmation]) -> None:
    ConfirmationDecision.objects.filter(confirmation__in=rows).delete()
    rows.delete()


def _delete_transitions(before: datetime) -> DeletedRows:
    closed = Q(session=None) | Q(session__closed_at__isnull=False)
    return {"transitions": _delete_oldest(StateTransition.objects.filter(closed, at__lt=before))}


def _events_due(before: datetime) -> QuerySet[StoredEvent]:
    return StoredEvent.objects.filter(created_at__lt=before, execution__completed_at__lt=before)


def _delete_events(before: datetime, staying: Sequence[Partition] = ()) -> DeletedRows:
    old = _locked(_outside(staying, _events_due(before), "execution")).order_by("pk")
    rows = old.values_list("execution", "sequence", "execution__organization__slug")[:BATCH]
    due = {(execution, sequence): organization for execution, sequence, organization in rows}
    StoredEvent.objects.filter(pk__in=[*due]).delete()
    return {"events": Counter(due.values())}


def _requests_due(before: datetime) -> QuerySet[RequestRecord]:
    return RequestRecord.objects.filter(at__lt=before)


def _delete_requests(before: datetime, staying: Sequence[Partition] = ()) -> DeletedRows:
    """Ids are in the order of times; the table has no index of times."""
    rows = _locked(_outside(staying, RequestRecord.objects.order_by("id")))
    rows = rows.values_list("pk", "at", "organization__slug")
    due = {pk: organization for pk, at, organization in rows[:BATCH] if at < before}
    RequestRecord.objects.filter(pk__in=due).delete()
    _delete_lists(before)
    return {"requests": Counter(due.values())}


def _delete_lists(before: datetime) -> None:
    """Lists of names that no request refers to and that no process caches any longer.

    A process that stores a list renews its time, and refers to it for an hour (`KNOWN_FOR_S`). So
    what was last stored a day before the oldest request is named by none.
    """
    oldest = RequestRecord.objects.order_by("id").values_list("at", flat=True).first()
    since = before if oldest is None else min(before, oldest - _REFERRED_TO)
    _delete_oldest(ToolFilter.objects.filter(created_at__lt=since), None)
    users = ToolFilter.objects.filter(catalog=OuterRef("pk"))
    _delete_oldest(CatalogNames.objects.filter(~Exists(users), created_at__lt=before), None)


def _delete_sessions(before: datetime) -> DeletedRows:
    """Closed sessions that no call and no transition refers to any longer."""
    calls = Execution.objects.filter(session=OuterRef("pk"))
    moves = StateTransition.objects.filter(session=OuterRef("pk"))
    old = Session.objects.filter(~Exists(calls), ~Exists(moves), closed_at__lt=before)
    return {"sessions": _delete_oldest(old)}


def _delete_browser_sessions(before: datetime) -> DeletedRows:
    """`before` is now: a session of a browser has its own time of expiry, and no organization."""
    old = BrowserSession.objects.filter(expire_date__lt=before)
    return {"browser sessions": _delete_oldest(old, None)}


def _delete_alerts(before: datetime) -> DeletedRows:
    old = Alert.objects.filter(acknowledged_at__lt=before, last_at__lt=before)
    return {"alerts": _delete_oldest(old, "organization")}


def _delete_deliveries(before: datetime) -> DeletedRows:
    over = Q(delivered_at__lt=before) | Q(given_up_at__lt=before)
    return {"deliveries": _delete_oldest(AlertDelivery.objects.filter(over), "alert__organization")}


def _locked(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows that no concurrent pass deletes: each is recorded as deleted only once."""
    return rows.select_for_update(skip_locked=True, of=("self",))


def _delete_oldest(
    rows: QuerySet[Any], organization: str | None = "organization__slug"
) -> Counter[str]:
    """How many were deleted, by organization; `organization` is the path to its slug."""
    name = F(organization) if organization else Value(_NO_ORGANIZATION)
    due = dict(_locked(rows).order_by("pk").values_list("pk", name)[:BATCH])
    if due:
        rows.model._default_manager.filter(pk__in=due).delete()
    return Counter(due.values())


# Kinds without days in RETENTION_DAYS have a time of expiry of their own.
_DELETE: dict[str, Callable[..., DeletedRows]] = {
    "executions": _delete_executions,
    "confirmations": _delete_confirmations,
    "transitions": _delete_transitions,
    "events": _delete_events,
    "requests": _delete_requests,
    "sessions": _delete_sessions,
    "browser sessions": _delete_browser_sessions,
    "deliveries": _delete_deliveries,
    "alerts": _delete_alerts,
}
_EVENTS = MonthlyRows(
    kind="events",
    model=StoredEvent,
    id_column="execution",
    organization="execution__organization__slug",
    due=_events_due,
)
_MONTHLY = {
    "executions": MonthlyRows(
        kind="executions",
        model=Execution,
        id_column="pk",
        organization="organization__slug",
        due=_executions_due,
        is_needed=_has_children_elsewhere,
        clear=_clear_month,
        forget=_forget_month,
        belonging=[_EVENTS],
    ),
    "events": _EVENTS,
    "requests": MonthlyRows(
        kind="requests",
        model=RequestRecord,
        id_column="pk",
        organization="organization__slug",
        due=_requests_due,
    ),
}
