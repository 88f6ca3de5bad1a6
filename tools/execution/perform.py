"""The performance of an execution: claimed, run, finished.

Any process that wins the claim may perform it. Read `RUN` from left to right.
"""

import logging
import time
from collections import deque
from uuid import UUID

from django.conf import settings

from audit.events import Event
from audit.models import AuditRecord
from config import timeouts
from config.database import CONNECTION_ERRORS, replace_dead_connections
from config.logs import about_execution
from tools.authorization import request_records
from tools.definitions.results import FINAL, Status
from tools.execution import cache, call, dispatch, events, leases, requeue
from tools.execution.call import Performance, Result
from tools.execution.claim import Step, claim
from tools.execution.dispatch import Seat, Turn, freed_by, turns
from tools.execution.finish import finish, transitions_of
from tools.execution.requeue import LEASE_LOST, effect_of, give_back
from tools.execution.run import apply_output_rules, run
from tools.models import Execution
from tools.policy.questions import EffectiveRequest

log = logging.getLogger(__name__)
_MOST_TURNS = 8
_RETRY_S = 0.3  # between two tries to write a result


def perform(execution_id: UUID) -> list[UUID]:
    """Run an accepted execution, unless another process does or did.

    The executions that waited for its answer, or for its room, and can go on now.
    """
    return perform_turn(Turn(execution_id))


def perform_turn(turn: Turn) -> list[UUID]:
    """The same, by whose turn it is."""
    return _next_executions(_attempt(turn))


def perform_next(hinted: UUID | None) -> list[UUID] | None:
    """Run the execution that a dispatch named or, where there is a backlog or no dispatch, the one
    whose turn it is. The executions that can go on now, as with `perform`; None where none was run.
    """
    attempts = (_attempt(turn) for turn in turns(hinted))
    performance = next(filter(None, attempts), None)
    return None if performance is None else _next_executions(performance)


def perform_here(performance: Performance) -> list[UUID]:
    """Run what was claimed as it was accepted. The executions that can go on after it."""
    execution_id = performance.execution.pk
    with about_execution(str(execution_id)):
        if _perform(performance):
            _log_end(performance)
            events.notify_waiters(execution_id)
    return _next_executions(performance)


def hand_back_calls(within_s: float) -> bool:
    """Stop what this process performs, because it ends: what may be begun again returns to the
    queue, the rest ends now. Whether all of that was written within the time."""
    dispatch.stopping.set()
    leases.LEASES.hand_back()
    return dispatch.await_idle(within_s)


def _attempt(turn: Turn) -> Performance | None:
    """What became of it, where we had it in hand."""
    with about_execution(str(turn.execution_id)):
        with dispatch.seats.seat(turn.most) as seat:
            performance = _claim(turn, seat)
            if performance is None:
                return None
            if performance.result is not None:  # it ended at the claim, which notified its waiters
                _log_end(performance)
            elif _perform(performance):
                events.notify_waiters(turn.execution_id, _answer_of(performance))
                _log_end(performance)
        performance.execution.limited |= seat.crowded
        return performance


def _answer_of(performance: Performance) -> bytes:
    """For one who waits. An execution ends once, by the statement that has its fence, so what this
    process has stored is the answer. A call of a composite one has no waiter."""
    execution = performance.execution
    if not performance.ended or execution.composite or execution.parent_id is not None:
        return b""
    return events.seal_answer(execution)


def _next_executions(performance: Performance | None) -> list[UUID]:
    """What can go on after it. Turns of composite calls are short: some are taken here at once,
    for all others there are workers."""
    if performance is None:
        return []
    freed, resumable = _unblocked_executions(performance), deque(resumable_calls(performance))
    half = dispatch.seats.shares.half
    for _ in range(_MOST_TURNS):
        if not resumable or performance.execution.organization_id in dispatch.seats.holding(half):
            break
        turn = _attempt(Turn(resumable.popleft(), most=half))
        if turn is not None:
            freed += _unblocked_executions(turn)
            resumable += resumable_calls(turn)
    return [*freed, *resumable]


def resumable_calls(performance: Performance) -> list[UUID]:
    """Composite calls that may have something to do now: itself when parked, its parent."""
    execution = performance.execution
    itself = [execution.pk] if performance.returned and execution.composite else []
    return itself + ([execution.parent_id] if execution.parent_id else [])


def _unblocked_executions(performance: Performance) -> list[UUID]:
    return [*cache.waiting_executions(performance), *freed_by(performance.execution)]


def _claim(turn: Turn, seat: Seat) -> Performance | None:
    """Raises what says that the database is away; any other fault is counted, and not for ever."""
    asked_at = time.monotonic()
    try:
        performance = claim(turn.execution_id, dispatch.worker_name(), turn.younger_than, seat)
    except CONNECTION_ERRORS:
        raise
    except Exception as fault:  # the worker's outermost edge
        log.exception("an execution could not be begun")
        requeue.count_failed_claim(turn.execution_id, fault)
        return None
    if performance is not None:
        performance.claimed_at = asked_at
    return performance


def _log_end(performance: Performance) -> None:
    execution, result = performance.execution, performance.result
    asked = EffectiveRequest.from_options(execution.requested_groups, execution.state)
    if result is not None and result.status == Status.SUCCESS:
        execution.state_after = performance.definition.raw["state"] or execution.state
    request_records.log_request(
        performance.caller,
        asked,
        performance.snapshot,
        duration_ms=(time.perf_counter() - performance.began) * 1000,
        transitions=transitions_of(execution),
    )


def _perform(performance: Performance) -> bool:
    """True when its end was written; not when it was given back, or is the reaper's."""
    if _too_late(performance):
        return False
    try:
        for step in RUN:
            if not performance.returned:
                step(performance)
    except CONNECTION_ERRORS as error:
        log.warning("the database went away: %s", type(error).__name__)
        return _has_result(performance) and _finish_later(performance)
    except Exception:  # the worker's outermost edge: a fault of ours must still end the row
        log.exception("an execution met a fault of ours")
        performance.result = _fault(performance)
        finish(performance)
    return not performance.returned


def _has_result(performance: Performance) -> bool:
    """Whether a result is known that only has to be written."""
    return performance.result is not None and not performance.returned


def _too_late(performance: Performance) -> bool:
    """A claim that took so long that a run could not live on its lease is given back unbegun."""
    if time.monotonic() - performance.claimed_at < timeouts.lease_fence_s(
        settings.EXECUTION_LEASE_S
    ):
        return False
    return give_back(performance, reason=LEASE_LOST, begun=False)


def _fault(performance: Performance) -> Result:
    delivery = performance.definition.raw["delivery"]
    return Result(
        Status.FAILED,
        error_code="INTERNAL_ERROR",
        error_message="Toolcrib could not finish this call. Its operators have a record of it.",
        error_details=effect_of(performance.execution, delivery, begun=True),
    )


def _finish_later(performance: Performance) -> bool:
    """A result in hand outlives its database's absence, as long as its lease may be good.

    The commit that failed may have arrived: it is looked for before anything is written again.
    """
    until = time.monotonic() + settings.EXECUTION_LEASE_S
    while time.monotonic() < until:
        time.sleep(_RETRY_S)
        try:
            replace_dead_connections()
            if not _ended_already(performance):
                finish(performance)
        except CONNECTION_ERRORS as error:
            log.warning("the result is kept in hand: %s", type(error).__name__)
        else:
            return True
    return False


def _ended_already(performance: Performance) -> bool:
    execution = performance.execution
    ours = Execution.objects.filter(
        pk=execution.pk, fence=execution.fence, worker=performance.worker
    )
    ended = AuditRecord.objects.filter(execution_id=execution.pk, code=Event.TOOL_END)
    return ours.filter(status__in=FINAL).exists() and ended.exists()


def compose(performance: Performance) -> None:
    """One turn of a composite call; `finish` writes its end, if it has come."""
    if performance.definition.composite:
        call.composer().take_turn(performance)


RUN: tuple[Step, ...] = (compose, run, apply_output_rules, finish)
