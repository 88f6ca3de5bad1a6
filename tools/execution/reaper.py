"""What became of executions whose worker fell silent, and of those nobody has begun.

A pure or idempotent tool is run again, up to `MOST_ATTEMPTS` times; for any other nobody can know
whether its effect happened, and the row says so (ruling 16). Hints that were lost are given again.
"""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.definitions.callers import CallerKind
from tools.definitions.results import EventType, Status
from tools.definitions.vocabulary import Delivery
from tools.execution import bell, cache, events
from tools.models import Execution
from tools.policy import budgets

MOST_ATTEMPTS = 3
BATCH = 100
PATIENCE = timedelta(seconds=5)
_REPEATABLE = frozenset({Delivery.PURE, Delivery.IDEMPOTENT})


def reap() -> list[UUID]:
    """Settle what was abandoned; the ids of executions that wait for a worker."""
    for execution in Execution.objects.abandoned().select_related("tool_version", "organization")[
        :BATCH
    ]:
        if _settle(execution):
            bell.ring(execution.pk)
    waiting = Execution.objects.waiting_longer_than(PATIENCE).order_by("queued_at")
    return list(waiting.values_list("pk", flat=True)[:BATCH])


@transaction.atomic
def _settle(execution: Execution) -> bool:
    """One abandoned row: back to the queue, or to its end. False when its worker was faster."""
    again = (
        execution.tool_version.definition["delivery"] in _REPEATABLE
        and execution.attempt < MOST_ATTEMPTS
    )
    abandoned = Execution.objects.abandoned().filter(pk=execution.pk, fence=execution.fence)
    if not abandoned.update(**(_REQUEUED if again else _ending(execution))):
        return False
    if not again:  # its effect may have happened, so it is paid for
        budgets.settle(execution.pk, spent=execution.cost)
        cache.give_up(execution.pk)
    message = "The worker fell silent; the call is run again." if again else _message(execution)
    events.append(execution.pk, EventType.WARNING if again else EventType.FAILED, message)
    record(
        Event.TOOL_LOST,
        by=Actor(CallerKind.SYSTEM, "reaper", execution.organization.slug),
        outcome=Outcome.FAILURE,
        subject=execution.tool_name,
        digest=execution.tool_version.digest,
        reason="requeued" if again else _code(execution),
        execution_id=execution.pk,
        details={"attempt": execution.attempt, "worker": execution.worker},
    )
    return True


_REQUEUED = {
    "status": Status.PENDING,
    "queued_at": Now(),
    "lease_until": None,
    "started_at": None,
    "worker": "",
}


def _ending(execution: Execution) -> dict[str, object]:
    return {
        "status": Status.FAILED,
        "lease_until": None,
        "completed_at": Now(),
        "error_code": _code(execution),
        "error_message": _message(execution),
    }


def _code(execution: Execution) -> str:
    repeatable = execution.tool_version.definition["delivery"] in _REPEATABLE
    return "WORKER_LOST" if repeatable else "OUTCOME_UNKNOWN"


def _message(execution: Execution) -> str:
    if _code(execution) == "WORKER_LOST":
        return (
            f"The worker was lost {execution.attempt} times. Call again, or ask an administrator."
        )
    return "The worker was lost during the call; whether its effect happened is not known."
