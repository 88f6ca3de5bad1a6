"""Attempts of one call of a composite one: its state, and whether it is retried.

The place of the second is `page#2`. A permanent refusal is not retried, nor what may have had an
effect that must not double.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tools.catalog.registry import Snapshot
from tools.definitions.results import Status
from tools.definitions.vocabulary import Delivery
from tools.execution.chain_boundary import last_attempt, may_have_happened
from tools.execution.composing import Made

BRIEFLY = frozenset({"rate_limited", "too_many_held"})  # refusals that pass
clock = timezone.now
_TRIED_AGAIN = frozenset({Status.FAILED, Status.TIMEOUT, Status.SANDBOX_ERROR})
_REPEATABLE = frozenset({Delivery.PURE, Delivery.IDEMPOTENT})


@dataclass(frozen=True, slots=True)
class Open:
    """Not over: fewer than `below` of the run's calls must be open, or `until` must have come."""

    below: int = 1
    until: datetime | None = None

    @classmethod
    def of(cls, states: Iterable["Open"], *, last: bool = False) -> "Open":
        """Of items of a loop: any of them that ends makes room; after the last, all must end."""
        found = list(states)
        running = [state for state in found if state.until is None]
        moments = [state.until for state in found if state.until is not None]
        below = 1 if last and not moments else len(running)
        return cls(below, min(moments, default=None))


@dataclass(frozen=True, slots=True)
class Succeeded:
    places: tuple[str, ...]  # of its calls: one, or one for each item of its loop


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    code: str
    message: str


def standing(
    calls: Mapping[str, Made],
    place: str,
    snapshot: Snapshot,
    *,
    most: Callable[[Made], int],
    wait_s: Callable[[int], float],
) -> Succeeded | AttemptFailure | Open | str:
    """Of one call; or the place of the attempt that is to be made of it now.

    `most` says how many there are after one that failed, `wait_s` how long it is waited after so
    many of them.
    """
    attempt, made = last_attempt(calls, place)
    if made is None:
        return place
    if made.open:
        return Open()
    if made.succeeded:
        return Succeeded((place,))
    if attempt >= most(made) or not _tried_again(made, snapshot):
        return AttemptFailure(made.error_code, made.error_message)
    due = (made.completed_at or clock()) + timedelta(seconds=wait_s(attempt))
    return Open(below=0, until=due) if clock() < due else f"{place}#{attempt + 1}"


def _tried_again(made: Made, snapshot: Snapshot) -> bool:
    if made.error_code in BRIEFLY:
        return True
    if made.status not in _TRIED_AGAIN:
        return False
    return not may_have_happened(made) or _repeatable(snapshot, made.tool_name)


def _repeatable(snapshot: Snapshot, name: str) -> bool:
    """Of what makes calls of its own, these decide: they are made once more with it."""
    tool = snapshot.tool(name)
    if tool is None or tool.definition.composite:
        return False
    return tool.definition.raw["delivery"] in _REPEATABLE
