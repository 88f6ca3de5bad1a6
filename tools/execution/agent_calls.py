"""What is open of one agent's calls, ended together: where it is suspended at once."""

from contextlib import suppress

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.definitions.callers import Caller
from tools.definitions.results import OPEN
from tools.errors import Conflict
from tools.execution import cancelling
from tools.models import Agent, Execution
from tools.models.execution_queryset import ExecutionQuerySet

MOST_AT_ONCE = 1_000


def open_calls(agent: Agent) -> ExecutionQuerySet:
    """What waits or runs. A composite call ends those that it made."""
    return Execution.objects.filter(
        user=agent.service_account_id,
        organization=agent.organization_id,
        status__in=OPEN,
        parent=None,
    )


def stop_calls(*, caller: Caller, agent: Agent) -> int:
    """End each that is open, as `cancel` does; how many. Raises `Forbidden`."""
    require(caller, "change_execution")
    stopped = 0
    for identifier in list(open_calls(agent).values_list("pk", flat=True)[:MOST_AT_ONCE]):
        with suppress(Conflict):  # it was over sooner
            cancelling.stop(identifier, by=actor_of(caller))
            stopped += 1
    return stopped
