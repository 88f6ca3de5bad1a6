"""Calls that make calls of their own: batches, chains, programs of agents.

Such a *composite* call is an execution like any other, run in short turns. A turn looks at the rows
of its calls, begins those that can begin now, and either has its result or *parks*: it gives itself
back, and no worker, thread or connection waits while its calls run or a person thinks. It goes on
when few enough of them are open, or at a moment it has named. All it knows stands in rows, so that
a turn that was lost is taken again; a call is begun once for each place, however often it is tried.

Each call of its own takes the whole pipeline, in the name of the composite one's caller.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
from tools.workflows.chain_boundary import end_of
from tools.workflows.nested_calls import CannotGoOn, Composition, NotNow, Stopped

log = logging.getLogger(__name__)
_AGAIN_S, _LONGEST_S = 1.0, 30.0  # where a call could not be made just now
_PUT_OFF = "put_off"  # in its memory: how often in a row


@dataclass(frozen=True, slots=True)
class Waiting:
    """Go on when fewer than `below` calls are open, or at `until`, whichever comes first."""

    below: int = 1
    until: datetime | None = None


type Turn = Callable[[Composition], Result | Waiting]


@dataclass(frozen=True, slots=True)
class CompositeKind:
    """How one kind of composite call takes a turn.

    One that `sees_its_end` is asked also when it was cancelled or its time is over, until it has a
    result; of any other, what is open is cancelled then.
    """

    turn: Turn
    sees_its_end: bool = False


_KINDS: dict[str, CompositeKind] = {}


def add_kind(name: str, kind: CompositeKind) -> None:
    """The package of each kind adds it when the product starts."""
    _KINDS[name] = kind


def _kind_of(definition: ToolDefinition) -> CompositeKind:
    return _KINDS[definition.entry_point or definition.type]


def take_turn(performance: Performance) -> None:
    """Its result, or a row that is parked; then nothing more of the performance is written."""
    execution, kind = performance.execution, _kind_of(performance.definition)
    with leases.hold_lease(execution.pk, execution.fence, since=performance.claimed_at) as lease:
        tell = events.ProgressWriter(execution.pk)
        view = Composition(performance, lease.stop, tell)
        word = _word_of(view, kind)
        view.cancel_unwanted()
        if isinstance(word, Waiting):
            tell.flush()
            _park(performance, view, word)
            return
        view.cancel_open()
        tell.flush()
    # What its turns used together; its calls have their own.
    word.metrics = run.usage_metrics(ResourceUsage()) | word.metrics | view.spent
    performance.result = word


def _word_of(view: Composition, kind: CompositeKind) -> Result | Waiting:
    put_off = view.memory.pop(_PUT_OFF, 0)
    try:
        if not kind.sees_its_end and (over := _forced_end(view)):
            return over
        return kind.turn(view)
    except CannotGoOn as end:
        return Result(Status.FAILED, error_code=end.code, error_message=str(end))
    except NotNow:
        return _later(view, 0 if view.came_on else put_off)
    except Stopped:  # another worker takes the next turn
        return Waiting(below=0, until=timezone.now())


def _later(view: Composition, put_off: int) -> Waiting:
    """Each time it waits twice as long, until something of it could begin."""
    view.memory[_PUT_OFF] = put_off + 1
    wait_s = min(_LONGEST_S, _AGAIN_S * 2 ** min(put_off, 8))
    return Waiting(below=view.open, until=timezone.now() + timedelta(seconds=wait_s))


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


def _park(performance: Performance, view: Composition, waiting: Waiting) -> None:
    """The row waits again. Where the fence was lost, another worker has it in hand."""
    # One that is asked beyond its time undoes what it did, perhaps: nothing wakes it but its calls.
    moments = [moment for moment in (waiting.until, view.deadline) if moment is not None]
    until = waiting.until if view.out_of_time else min(moments)
    with transaction.atomic():
        parked = _put_back(performance, waiting.below, until)
    if not parked:
        log.warning("a turn came to its end after it was taken away")
    performance.returned = True


def _put_back(performance: Performance, below: int, until: datetime | None) -> bool:
    """False where the fence was lost."""
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
            attempt=1,  # it has come on: what is counted is how often in a row it was lost
            parked_below=below,
            wake_at=until,
            memory=execution.memory,
        )
    )


def sees_its_end(performance: Performance, result: Result) -> bool:
    """Whether one more turn sees to the end of what was cancelled as it succeeded."""
    if result.status != Status.SUCCESS or not _kind_of(performance.definition).sees_its_end:
        return False
    performance.returned = _put_back(performance, AT_ONCE, None)
    return performance.returned


def outcome(output: Any) -> Result:
    return Result(Status.SUCCESS, output=output)


call.register(call.Composer(take_turn, sees_its_end, end_of))
