"""Composite calls, which make calls of their own: batches, chains, programs of agents.

A composite call is an execution that runs in short turns. A turn reads the rows of its calls,
begins those that can begin now, and then either has the result or *parks* the execution: it returns
to the queue, and no worker, thread or connection waits while its calls run or await approval. The
next turn starts when few enough of its calls are open, or at a given time. All state is in rows, so
a lost turn can run again; a call is made once for each place.

Each nested call passes through the whole execution pipeline, as the caller of the composite call.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from sandbox.spec import ResourceUsage
from tools.definitions.results import Status
from tools.definitions.tool import ToolDefinition
from tools.execution import call, events, leases, run
from tools.execution.call import Performance, Result
from tools.models import Execution
from tools.models.execution_queryset import AT_ONCE
from tools.workflows.chain_boundary import boundary_details
from tools.workflows.nested_calls import CallPostponed, Composition, CompositionFailed, TurnStopped

log = logging.getLogger(__name__)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0  # when a call could not be accepted
_POSTPONEMENTS_KEY = "put_off"  # of its memory: the number in a row


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """The next turn starts when fewer than `below` calls are open, or at `until` if that is
    earlier."""

    below: int = 1
    until: datetime | None = None


type Turn = Callable[[Composition], Result | WaitCondition]


@dataclass(frozen=True, slots=True)
class CompositeKind:
    """How one kind of composite call runs a turn.

    One that `handles_end` also runs turns after it was cancelled or its timeout expired, until it
    has a result; the open calls of any other are cancelled then.
    """

    turn: Turn
    handles_end: bool = False


_COMPOSITE_KINDS: dict[str, CompositeKind] = {}


def register_kind(name: str, kind: CompositeKind) -> None:
    """Called by the module of each kind when the product starts."""
    _COMPOSITE_KINDS[name] = kind


def _kind_of(definition: ToolDefinition) -> CompositeKind:
    return _COMPOSITE_KINDS[definition.entry_point or definition.type]


def take_turn(performance: Performance) -> None:
    """Runs a turn: sets the result, or parks the row; then nothing else of the performance is
    written."""
    execution, kind = performance.execution, _kind_of(performance.definition)
    with leases.hold_lease(execution.pk, execution.fence, since=performance.claimed_at) as lease:
        progress = events.ProgressWriter(execution.pk)
        view = Composition(performance, lease.stop, progress)
        result = _turn_result(view, kind)
        view.cancel_unwanted_calls()
        if isinstance(result, WaitCondition):
            progress.flush()
            _park(performance, view, result)
            return
        view.cancel_open_calls()
        progress.flush()
    # The usage of all its turns, without its calls.
    result.metrics = run.usage_metrics(ResourceUsage()) | result.metrics | view.usage
    performance.result = result


def _turn_result(view: Composition, kind: CompositeKind) -> Result | WaitCondition:
    postponements = view.memory.pop(_POSTPONEMENTS_KEY, 0)
    try:
        if not kind.handles_end and (forced_end := _forced_end(view)):
            return forced_end
        return kind.turn(view)
    except CompositionFailed as end:
        return Result(Status.FAILED, error_code=end.code, error_message=str(end))
    except CallPostponed:
        return _retry_later(view, 0 if view.made_progress else postponements)
    except TurnStopped:  # another worker runs the next turn
        return WaitCondition(below=0, until=timezone.now())


def _retry_later(view: Composition, postponements: int) -> WaitCondition:
    """Waits twice as long each time, until a call could begin."""
    view.memory[_POSTPONEMENTS_KEY] = postponements + 1
    wait_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(postponements, 8))
    return WaitCondition(below=view.open_count, until=timezone.now() + timedelta(seconds=wait_s))


def _forced_end(view: Composition) -> Result | None:
    if view.cancelled:
        return Result(
            Status.CANCELLED,
            error_code="CANCELLED",
            error_message="Cancelled while it ran. What was open of its calls is cancelled too.",
        )
    if view.out_of_time:
        return Result(
            Status.TIMEOUT,
            error_code="TIMEOUT",
            error_message=f"It was not through within {view.timeout_s:g} s; what was open of its"
            " calls is cancelled.",
        )
    return None


def _park(performance: Performance, view: Composition, waiting: WaitCondition) -> None:
    """Returns the row to the queue. If the fence was lost, another worker has the row."""
    # After its timeout a chain still compensates: then only its calls start the next turn.
    moments = [moment for moment in (waiting.until, view.deadline) if moment is not None]
    until = waiting.until if view.out_of_time else min(moments)
    with transaction.atomic():
        parked = _park_row(performance, waiting.below, until)
    if not parked:
        log.warning("a turn ended after its execution was claimed again")
    performance.returned = True


def _park_row(performance: Performance, below: int, until: datetime | None) -> bool:
    """False if the fence was lost."""
    execution = performance.execution
    row = Execution.objects.held(execution.pk, execution.fence)
    return bool(
        row.update(
            status=Status.PENDING,
            queued_at=Now(),
            worker="",
            lease_until=None,
            hints=0,
            hinted_at=None,
            attempt=1,  # counts lost turns in a row
            parked_below=below,
            wake_at=until,
            memory=execution.memory,
        )
    )


def schedule_final_turn(performance: Performance, result: Result) -> bool:
    """Whether another turn follows, because the call was cancelled as it succeeded."""
    if result.status != Status.SUCCESS or not _kind_of(performance.definition).handles_end:
        return False
    performance.returned = _park_row(performance, AT_ONCE, None)
    return performance.returned


call.register(call.Composer(take_turn, schedule_final_turn, boundary_details))
