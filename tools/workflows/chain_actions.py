"""Actions on chains for the entry points: read a run with its calls."""

from uuid import UUID

from tools.definitions.callers import Caller
from tools.definitions.vocabulary import ToolType
from tools.errors import NotFound
from tools.execution.composing import Made, absent_calls, calls_in_order
from tools.execution.reading import readable
from tools.models import Execution


def find_chain_run(caller: Caller, identifier: UUID) -> Execution:
    """A run the caller may read. Raises `NotFound` also for an execution of another tool."""
    found = (
        readable(caller)
        .shown()
        .filter(pk=identifier, tool_version__definition__type=ToolType.CHAIN)
        .first()
    )
    if found is None:
        raise NotFound("There is no such run among yours.", code="run_not_found")
    return found


def calls_of_run(run: Execution) -> list[Made]:
    """In the order in which they were made; what could not be made comes last."""
    memory = Execution.objects.values_list("memory", flat=True).get(pk=run.pk)
    return [*calls_in_order(run.pk), *absent_calls(memory).values()]
