"""Upstream calls whose caller waits are performed by the process that accepted them.

Such a call only goes out to another server: a worker would do no more than this process does, after
a message, a wake-up and a second look at the row. It takes a place of this process, of which each
organization has its share; everything else, and everything when no place is free, goes to the
workers. Claim, lease, fence, evidence and cancellation are those of every performance.
"""

from uuid import UUID

from django.conf import settings

from tools.execution import capacity
from tools.execution.pipeline import perform
from tools.models import Execution


def may_perform(execution: Execution, wait_s: float) -> bool:
    """Not what may take longer than its caller waits: the answer must not come late."""
    return (
        settings.EXECUTE_IN_PLACE == "upstream"
        and execution.goes_out
        and execution.timeout_s <= wait_s
    )


def perform_here(execution_id: UUID) -> list[UUID] | None:
    """The executions that can go on after it; None where this process has no place. It may be left
    for a worker all the same, where its organization has its share of places."""
    if not capacity.take(wait=False):
        return None
    try:
        return perform(execution_id)
    finally:
        capacity.give()
