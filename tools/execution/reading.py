"""Which executions a caller may read."""

from django.db.models import Q

from tools.accounts.user_permissions import may
from tools.definitions.callers import Caller
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet


def readable(caller: Caller) -> ExecutionQuerySet:
    """An agent its own, a person what is granted. A token for some tools reads the calls of these,
    and the batches that it made itself by their door, which asks for no grant of their tool.

    Also what a reference may point at.
    """
    here = Execution.objects.filter(organization_id=caller.organization_id)
    if caller.token_tools is not None:
        made_here = Q(options__at_its_door=True, token_id=caller.token_id)
        here = here.filter(Q(tool_name__in=caller.token_tools) | made_here)
    return here if may(caller, "view_execution") else here.filter(user_id=caller.user_id)


def reads_all(caller: Caller) -> bool:
    """Whether `readable` is all that its organization has."""
    return caller.token_tools is None and may(caller, "view_execution")
