"""What time takes away: outputs, where their organization says for how long it keeps them, and
messages, for which the installation says it.

With an output goes what a model was shown of it, answers of the cache that were it, and the copies
of others' outputs that references had put into the call's parameters; of a call within another all
parameters, for a chain or a program makes them of outputs. While the other one is not over it may
read what its calls gave back, and they keep it.
"""

from collections import Counter
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.definitions.callers import CallerKind
from tools.definitions.results import OPEN, Status
from tools.models import CacheEntry, Execution, Message, Organization, StoredOutput
from tools.models.execution import KEEPS_OUTPUT

BATCH = 500
_MOST_BATCHES = 50  # of one organization in one round
_MOST_SWEPT = 500  # of stored outputs in one round: each may be large


def keep() -> None:
    """One round, each batch in a transaction of its own. What is beyond them is the next one's."""
    for organization in Organization.objects.filter(output_days__isnull=False):
        for _ in range(_MOST_BATCHES):
            if expire(organization) < BATCH:
                break
    sweep()
    for _ in range(_MOST_BATCHES):
        if not settings.MESSAGE_DAYS or forget_messages() < BATCH:
            break


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
        details={"outputs": gone, "executions": len(due), "output_days": organization.output_days},
    )
    return len(due)


def sweep() -> None:
    """Delete what nobody names any more: one that is kept anew at this moment stays."""
    for pk in StoredOutput.objects.unnamed().values_list("pk", flat=True)[:_MOST_SWEPT]:
        StoredOutput.objects.unnamed().filter(pk=pk).delete()


@transaction.atomic
def forget_messages() -> int:
    """How many went, the oldest first; from the inboxes of people as well."""
    before = timezone.now() - timedelta(days=settings.MESSAGE_DAYS)
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
            details={"messages": gone[organization.pk], "message_days": settings.MESSAGE_DAYS},
        )
    return len(due)


def _due(organization: Organization) -> list[UUID]:
    """Locked, so that nobody begins to serve one of them from the cache meanwhile."""
    rows: QuerySet[Execution] = Execution.objects.select_for_update(skip_locked=True, of=("self",))
    age = timedelta(days=organization.output_days or 0)
    due = rows.filter(KEEPS_OUTPUT, organization=organization, completed_at__lt=Now() - age)
    due = due.exclude(parent__status__in=sorted(OPEN))
    return list(due.order_by("completed_at").values_list("pk", flat=True)[:BATCH])
