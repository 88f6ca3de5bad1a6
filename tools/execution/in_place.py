"""Upstream calls whose caller waits are performed by the process that accepted them.

Such a call only goes out to another server: a worker would do no more than this process does, after
a message, a wake-up and a second look at the row. It takes a place of this process, of which each
organization has its share, and is claimed by the statement that accepts it: the gates have just
been asked, and its START stands beside its ACCEPT. Everything else, and everything when no place is
free, goes to the workers. Lease, fence, evidence and cancellation are those of every performance.
"""

from django.conf import settings

from tools.definitions.results import Status
from tools.execution import capacity
from tools.execution.context import Admission, Performance
from tools.execution.evidence import is_authentic
from tools.limits import budgets
from tools.models import Execution


def take_place(admission: Admission) -> None:
    """Where the call is to be performed here, and there is a place."""
    if _fits(admission):
        admission.place = capacity.take_place(admission.caller.organization_id)


def _fits(admission: Admission) -> bool:
    """What is held, may be known already or has to wait for room is claimed later; so is what may
    take longer than its caller waits, for the answer must not come late."""
    tool = admission.resolved
    return (
        settings.EXECUTE_IN_PLACE == "upstream"
        and admission.goes_out
        and admission.timeout_s <= admission.wait_s
        and admission.need is None
        and tool.definition.cache_ttl_s is None
        and tool.max_concurrency is None
        and admission.snapshot.max_concurrency is None
        and is_authentic(tool, admission.snapshot)
    )


def claim_here(admission: Admission, execution: Execution) -> Performance:
    """The performance of a call that is about to be written."""
    execution.status, execution.worker = Status.RUNNING, capacity.worker_name()
    execution.fence = execution.attempt = 1
    execution.held = execution.limited = False
    execution.reserved = budgets.applies(admission.caller, admission.resolved, admission.snapshot)
    return Performance(
        execution, admission.resolved, admission.caller, admission.snapshot, execution.worker
    )
