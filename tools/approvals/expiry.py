"""Reminds of calls awaiting approval at two thirds of their time, and expires them."""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.definitions.callers import CallerKind
from tools.execution import bell, confirmations
from tools.models import Confirmation, ConfirmationStatus, Execution

BATCH = 200
MESSAGE = "Nobody decided in time whether this call may run. Call again, or ask an administrator."


def watch() -> None:
    """Expire confirmations that were not decided in time, and remind of those about to expire."""
    pending = Confirmation.objects.filter(status=ConfirmationStatus.PENDING)
    overdue = pending.filter(expires_at__lte=Now()).order_by("expires_at")
    for row in overdue.values("pk", "execution_id")[:BATCH]:
        if _expire_one(row["pk"], row["execution_id"]):
            bell.ring(row["execution_id"])
    soon = Now() + timedelta(minutes=settings.CONFIRMATION_MINUTES) / 3
    silent = pending.filter(reminded_at__isnull=True, expires_at__lte=soon)
    for confirmation in silent.select_related("execution", "organization")[:BATCH]:
        _remind(confirmation)


def expire(confirmation: Confirmation) -> None:
    """Call it with execution and confirmation locked, in a transaction."""
    if not confirmations.close(confirmation, ConfirmationStatus.EXPIRED):
        return
    confirmations.end(confirmation.execution_id, code="confirmation_expired", message=MESSAGE)
    _record(Event.CONFIRM_EXPIRE, confirmation, Outcome.DENIED)


@transaction.atomic
def _expire_one(pk: UUID, execution_id: UUID) -> bool:
    """False when another process has locked the row, or has handled it already."""
    rows = Execution.objects.select_for_update(skip_locked=True, of=("self",))
    if rows.filter(pk=execution_id).first() is None:
        return False
    confirmation = (
        Confirmation.objects.select_for_update(of=("self",))
        .select_related("execution", "organization")
        .filter(pk=pk, status=ConfirmationStatus.PENDING)
        .first()
    )
    if confirmation is not None:
        expire(confirmation)
    return confirmation is not None


@transaction.atomic
def _remind(confirmation: Confirmation) -> None:
    unsaid = Confirmation.objects.filter(
        pk=confirmation.pk, status=ConfirmationStatus.PENDING, reminded_at__isnull=True
    )
    if unsaid.update(reminded_at=Now()):
        metrics.confirmation_reminders.inc()
        _record(Event.CONFIRM_REMIND, confirmation, Outcome.CHANGED)


def _record(event: Event, confirmation: Confirmation, outcome: Outcome) -> None:
    record(
        event,
        by=Actor(CallerKind.SYSTEM, "confirmations", confirmation.organization.slug),
        outcome=outcome,
        subject=confirmation.execution.tool_name,
        execution_id=confirmation.execution_id,
        details={"confirmation": str(confirmation.pk), "reasons": confirmation.reasons},
    )
