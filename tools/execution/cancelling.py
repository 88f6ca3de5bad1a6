"""The end of a call that somebody does not want any more."""

from contextlib import suppress
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Coalesce, Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.definitions.callers import CallerKind
from tools.definitions.results import FINAL, OPEN, Status
from tools.errors import Conflict, Refused
from tools.execution import bell, confirmations, hints
from tools.execution.returning import CANCELLED, again, end_waiting
from tools.models import Execution
from tools.models.execution_queryset import UNDO

NOT_BEGUN = (Status.PENDING, Status.REQUIRES_CONFIRMATION)
_SEEN = (
    "status", "fence", "cost", "error_details", "tool_name", "parent_id", "place", "composite",
    "parked_below", "cancel_requested_at",
)  # fmt: skip


def stop(execution_id: UUID, *, by: Actor) -> Execution:
    """End it: at once when nothing has begun, else by telling its worker. Safe to repeat.

    Who may is asked elsewhere. Raises `Conflict` where it ended in another way.
    """
    with transaction.atomic():
        row = Execution.objects.filter(pk=execution_id)
        # Locked before it is looked at: it may be on its way back to the queue at this moment.
        found = row.select_for_update(no_key=True).only(*_SEEN).get()
        if found.status in FINAL:
            return _stopped_already(found)
        if found.status in NOT_BEGUN and not found.parked:
            message = f"Cancelled before it began{again(found)}."
            end_waiting(found, status=Status.CANCELLED, code=CANCELLED, message=message)
            confirmations.withdraw(execution_id, by=by)
        else:  # who has it in hand is to see it; asking twice moves the first moment no further
            row.update(cancel_requested_at=Coalesce("cancel_requested_at", Now()))
        record(
            Event.TOOL_CANCEL,
            by=by,
            outcome=Outcome.CHANGED,
            subject=found.tool_name,
            execution_id=execution_id,
            details={**found.error_details, **found.parentage},
        )
    bell.ring(execution_id)
    if found.composite and found.cancel_requested_at is None:
        _stop_calls_of(execution_id, by)
    if found.parked:  # its next turn is its last
        hints.tell([execution_id])
    return Execution.objects.answer(execution_id)


def _stop_calls_of(execution_id: UUID, by: Actor) -> None:
    """What is open of a composite call: nobody waits for it any more, but for what undoes."""
    open_calls = Execution.objects.filter(parent=execution_id, status__in=OPEN)
    unwanted = open_calls.exclude(place__startswith=UNDO)
    for call_id in list(unwanted.values_list("pk", flat=True)):
        with suppress(Conflict):  # it was over sooner
            stop(call_id, by=by)


def _stopped_already(execution: Execution) -> Execution:
    if execution.status != Status.CANCELLED:
        raise Conflict("The execution is over already.", code="execution_over")
    return Execution.objects.answer(execution.pk)


def check_parent(execution: Execution) -> None:
    """A call of a composite one that is over has nobody left to be made for. Raises `Refused`."""
    if execution.parent_id is None:
        return
    if Execution.objects.filter(pk=execution.parent_id, status__in=FINAL).exists():
        raise Refused(
            "The call that made this one was over before it began.",
            code="parent_over",
            gate="parent",
        )


def stop_orphans() -> int:
    """End what is open of composite calls that are over; how many. Safe to repeat."""
    orphans = Execution.objects.filter(
        status__in=OPEN, parent__status__in=FINAL, cancel_requested_at__isnull=True
    ).values_list("pk", "organization__slug")
    for execution_id, slug in list(orphans):
        with suppress(Conflict):  # it was over sooner
            stop(execution_id, by=Actor(CallerKind.SYSTEM, "reaper", slug))
    return len(orphans)
