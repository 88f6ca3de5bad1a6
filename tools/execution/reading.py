"""Which executions a caller may read."""

from tools.definitions.callers import Caller
from tools.models import Execution
from tools.models.execution import ExecutionQuerySet
from tools.policy.people import may


def readable(caller: Caller) -> ExecutionQuerySet:
    """An agent its own, a person what is granted. A token for some tools reads the calls of these.

    Also what a reference may point at.
    """
    here = Execution.objects.filter(organization_id=caller.organization_id)
    if caller.token_tools is not None:
        here = here.filter(tool_name__in=caller.token_tools)
    return here if may(caller, "view_execution") else here.filter(user_id=caller.user_id)
