"""Attempts of one call of a composite call: its state, and whether it is retried.

The place of the second is `page#2`. A permanent refusal is not retried, nor what may have had an
effect that must not double.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tools.catalog.snapshot import Snapshot
from tools.definitions.results import Status
from tools.definitions.vocabulary import Delivery
from tools.workflows.chain_boundary import last_attempt, may_have_effect
from tools.workflows.nested_calls import NestedCall

TEMPORARY_REFUSALS = frozenset({"rate_limited", "too_many_held"})  # refusals that end by themselves
clock = timezone.now
_RETRYABLE_STATUSES = frozenset({Status.FAILED, Status.TIMEOUT, Status.SANDBOX_ERROR})
_REPEATABLE_DELIVERIES = frozenset({Delivery.PURE, Delivery.IDEMPOTENT})


@dataclass(frozen=True, slots=True)
class AttemptOpen:
    """Before the call goes on, fewer than `below` of the run's calls must be open, or `until` must
    have come."""

    below: int = 1
    until: datetime | None = None

    @classmethod
    def of_loop(cls, states: Iterable["AttemptOpen"], *, last: bool = False) -> "AttemptOpen":
        """The state of a loop: any item that ends makes room; after the last one, all must end."""
        found = list(states)
        running = [state for state in found if state.until is None]
        moments = [state.until for state in found if state.until is not None]
        below = 1 if last and not moments else len(running)
        return cls(below, min(moments, default=None))


@dataclass(frozen=True, slots=True)
class AttemptSuccess:
    places: tuple[str, ...]  # of its calls: one, or one for each item of its loop


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    code: str
    message: str


def attempt_state(
    calls: Mapping[str, NestedCall],
    place: str,
    snapshot: Snapshot,
    *,
    most: Callable[[NestedCall], int],
    wait_s: Callable[[int], float],
) -> AttemptSuccess | AttemptFailure | AttemptOpen | str:
    """The state of one call, or the place of the attempt that must be made now.

    `most` is the maximum of attempts after one that failed, `wait_s` the pause after that many
    attempts.
    """
    attempt, made = last_attempt(calls, place)
    if made is None:
        return place
    if made.open:
        return AttemptOpen()
    if made.succeeded:
        return AttemptSuccess((place,))
    if attempt >= most(made) or not _is_retried(made, snapshot):
        return AttemptFailure(made.error_code, made.error_message)
    due = (made.completed_at or clock()) + timedelta(seconds=wait_s(attempt))
    return AttemptOpen(below=0, until=due) if clock() < due else f"{place}#{attempt + 1}"


def _is_retried(made: NestedCall, snapshot: Snapshot) -> bool:
    if made.error_code in TEMPORARY_REFUSALS:
        return True
    if made.status not in _RETRYABLE_STATUSES:
        return False
    return not may_have_effect(made) or _is_repeatable(snapshot, made.tool_name)


def _is_repeatable(snapshot: Snapshot, name: str) -> bool:
    """A composite call is not repeated: its own calls would be made once more with it."""
    tool = snapshot.tool(name)
    if tool is None or tool.definition.composite:
        return False
    return tool.definition.raw["delivery"] in _REPEATABLE_DELIVERIES
