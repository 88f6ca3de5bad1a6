"""Calls that no worker can even begin: a fault of ours, met at the claim, is not met for ever."""

from uuid import UUID

from django.db import transaction

from audit.actions import Actor
from tools.definitions.callers import CallerKind
from tools.definitions.results import Status
from tools.execution import bell, cache, confirmations
from tools.execution.chain_boundary import end_of
from tools.execution.returning import again, end_waiting, record_lost
from tools.models import Execution

MOST_STUMBLES = 3
POISONED = "POISONED"


@transaction.atomic
def count(execution_id: UUID, fault: Exception) -> None:
    """Write down that a claim met `fault`; the third time it is the call's end.

    The fault stands in evidence by its class alone: its text may hold what nobody may read. Where
    no evidence can be written nothing is counted either, and the call waits until it can.
    """
    rows = Execution.objects.select_for_update(of=("self",), no_key=True)
    execution = rows.filter(pk=execution_id, status=Status.PENDING).first()
    if execution is None:
        return
    stumbles = execution.stumbles + 1
    word = POISONED if stumbles >= MOST_STUMBLES else "stumbled"
    Execution.objects.filter(pk=execution_id).update(stumbles=stumbles)
    if word == POISONED:
        _set_aside(execution)
        transaction.on_commit(lambda: bell.ring(execution_id))
    details = execution.error_details if word == POISONED else {}
    record_lost(
        execution,
        "worker",
        reason=word,
        fault=type(fault).__name__[:80],
        stumbles=stumbles,
        **details,
    )


def _set_aside(execution: Execution) -> None:
    message = (
        f"Toolcrib failed {MOST_STUMBLES} times to begin this call{again(execution)} and has set it"
        f" aside{'' if execution.fence else '; nothing of it ran'}. Its operators have a record of"
        " it."
    )
    told = execution.error_details | end_of(execution, execution.tool_version.definition)
    end_waiting(execution, status=Status.FAILED, code=POISONED, message=message, error_details=told)
    cache.give_up(execution.pk)
    system = Actor(CallerKind.SYSTEM, "worker", execution.organization.slug)
    confirmations.withdraw(execution.pk, by=system)
