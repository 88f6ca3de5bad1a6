"""Load shedding: decides whether there is room for one more call, from a sample of the queue that a
thread takes each second.

A call makes no query here, so that it can be rejected at once while the database is busy. The calls
that this process has admitted since the sample are added; where they decide, the thread takes
another sample at once, so that calls that have ended since do not count.
"""

import atexit
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.database import CONNECTION_ERRORS
from config.logs import request_id
from tools import metrics
from tools.definitions.callers import Caller, CallerKind
from tools.errors import Overloaded, Shed
from tools.models import queue
from tools.policy.questions import Gate, Question, Verdict, passed, refused

log = logging.getLogger(__name__)
SAMPLE_VALID_S = 1.0  # how long a sample is good
_RESAMPLE_TIMEOUT_S = 0.025  # how long a call waits for a new one
_LEAST_PAUSE_S = 0.05
_IDLE_S, _STALE_S, _WORTHLESS_S = 10.0, 3.0, 30.0
_LONGEST_PAUSE_S = 2.0
_LOST_S = 5.0  # an admitted call is written by then, or never
FIRST_REJECTIONS = 5
_MINUTE_S = 60
_MOST_COUNTS = 1000  # beyond it later minutes are added to an earlier one


class _RejectionKey(NamedTuple):
    organization: str
    code: str
    minute: int


@dataclass(slots=True)
class _RejectionCount:
    count: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)


class RejectionCounter:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sums: dict[_RejectionKey, _RejectionCount] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._sums)

    def __str__(self) -> str:
        return str({tuple(key): found.count for key, found in self._sums.items()})

    def add(self, caller: Caller, tool: str, code: str) -> None:
        key = _RejectionKey(caller.organization, code, int(self._clock()) // _MINUTE_S)
        with self._lock:
            found = self._sums.get(key) or self._new(key)
            found.count += 1
            if len(found.first) < FIRST_REJECTIONS:
                found.first.append(_describe_rejection(caller, tool))

    def write(self, *, every: bool = False) -> None:
        """Audit the past minutes, or every one. A failed write is retried."""
        now = int(self._clock()) // _MINUTE_S
        for key in [key for key in [*self._sums] if every or key.minute != now]:
            with self._lock:
                found = self._sums.pop(key)
            try:
                with transaction.atomic():
                    _record_rejections(key, found)
            except Exception:
                self._put_back(key, found)
                raise

    def _put_back(self, key: _RejectionKey, found: _RejectionCount) -> None:
        with self._lock:
            found.count += self._sums[key].count if key in self._sums else 0
            self._sums[key] = found

    def _new(self, key: _RejectionKey) -> _RejectionCount:
        if len(self._sums) < _MOST_COUNTS:
            return self._sums.setdefault(key, _RejectionCount())
        same = (one for one in self._sums if one[:2] == key[:2])
        return self._sums.setdefault(next(same, key), _RejectionCount())


@dataclass(frozen=True)
class Sample:
    """The waiting and running calls when the queries began, `at` on the monotonic clock."""

    at: float = -math.inf
    places: Mapping[UUID, queue.QueuePosition] = MappingProxyType({})
    agents: Mapping[UUID, queue.InFlight] = MappingProxyType({})

    @cached_property
    def youngest_first_s(self) -> float:
        """How long the youngest head of a queue has waited: long means that no worker takes calls.

        A queue with a limit of its own is no sign of that: a call that has just got room may have
        waited long for it.
        """
        return min(self._waits(bounded=False), default=0.0)

    @cached_property
    def oldest_first_s(self) -> float:
        return max([*self._waits(bounded=False), *self._waits(bounded=True)], default=0.0)

    def _waits(self, *, bounded: bool) -> list[float]:
        waiting = [place for place in self.places.values() if place.bounded is bounded]
        return [place.oldest_s for place in waiting if place.oldest_s is not None]


def take_sample() -> Sample:
    at = time.monotonic()
    places = {place.id: place for place in queue.queue_positions()}
    return Sample(at, places, queue.in_flight())


@dataclass(eq=False, slots=True)
class Arrival:
    """An admitted call; `left_at` once it is written."""

    keys: tuple[UUID, ...]
    at: float = field(default_factory=time.monotonic)
    left_at: float | None = None


class LoadShedder:
    """What a process knows of the queue. Without a thread it knows the last argument of
    `sample`."""

    def __init__(self) -> None:
        self.rejections = RejectionCounter()
        self._known = Sample()
        self._recent: dict[UUID, set[Arrival]] = defaultdict(set)
        self._lock = threading.Lock()

    def sample(self, found: Sample) -> None:
        with self._lock:
            self._known = found
            for key, arrivals in [*self._recent.items()]:
                left = {one for one in arrivals if not _is_counted(one, found)}
                if left:
                    self._recent[key] = left
                else:
                    del self._recent[key]
        metrics.queue_age.set(found.oldest_first_s)
        metrics.queue_depth.set(sum(place.depth for place in found.places.values()))

    def enter(self, caller: Caller) -> Arrival:
        """Admit one call. Raises `Shed`; `count_rejection` audits that."""
        refusal = self.refusal(caller)
        if refusal is not None and self._passes_without_recent(caller):
            self._request_sample()
            refusal = self.refusal(caller)
        if refusal is not None:
            raise refusal
        arrival = Arrival(tuple(filter(None, (caller.organization_id, caller.agent_id))))
        with self._lock:
            # Checked again under the lock: of concurrent calls, one may take the last slot.
            refusal = self._refusal_by(self._usable_sample(), caller)
            if refusal is not None:
                raise refusal
            for key in arrival.keys:
                self._recent[key].add(arrival)
        return arrival

    def leave(self, arrival: Arrival | None, *, written: bool) -> None:
        """Its row is written, and the next sample counts it; or there will be none."""
        if arrival is None:
            return
        arrival.left_at = time.monotonic()
        if not written:
            with self._lock:
                for key in arrival.keys:
                    self._recent[key].discard(arrival)

    def count_rejection(self, caller: Caller, tool: str, refusal: Shed) -> None:
        metrics.shed.labels(refusal.code).inc()
        self.rejections.add(caller, tool, refusal.code)

    def refusal(self, caller: Caller, *, recent: bool = True) -> Shed | None:
        """By the last sample and, with `recent`, by the calls admitted since."""
        return self._refusal_by(self._sample(), caller, recent=recent)

    def _refusal_by(self, known: Sample, caller: Caller, *, recent: bool = True) -> Shed | None:
        place, agent = known.places.get(caller.organization_id), self._agent(known, caller)
        if agent is not None and caller.agent_id is not None:
            used = agent.open + recent * self._admitted_since(caller.agent_id)
            if used >= agent.most:
                return _too_many_open(caller, agent.most, used)
        if place is not None:
            used = place.depth + recent * self._admitted_since(place.id)
            if used >= place.max_depth:
                return _queue_full(place, used)
        first_s = place.oldest_s if place is not None else None
        if max(known.youngest_first_s, first_s or 0.0) > settings.QUEUE_AGE_S:
            return Overloaded(
                "Calls wait too long for a worker at the moment. Try again in a few seconds.",
                gate=Gate.LOAD.value,
            )
        return None

    def _agent(self, known: Sample, caller: Caller) -> queue.InFlight | None:
        return known.agents.get(caller.agent_id) if caller.agent_id is not None else None

    def _admitted_since(self, key: UUID) -> int:
        return len(self._recent.get(key, ()))

    def _passes_without_recent(self, caller: Caller) -> bool:
        """Whether only the calls admitted since the sample are in the way."""
        return self.refusal(caller, recent=False) is None

    def _sample(self) -> Sample:
        return self._usable_sample()

    def _usable_sample(self) -> Sample:
        return self._known

    def _request_sample(self) -> None:
        """Without a thread there is no new sample."""


class SamplingLoadShedder(LoadShedder):
    """The same, with a thread that samples each second as long as calls come, and on request."""

    def __init__(self, find: Callable[[], Sample] = take_sample) -> None:
        super().__init__()
        self._find = find
        self._wanted, self._seen = threading.Event(), threading.Condition()
        self._asked_at = 0.0
        self._thread: threading.Thread | None = None

    def _sample(self) -> Sample:
        """After a pause the sample is stale; a call waits for a new one, but not for long."""
        self._asked_at = time.monotonic()
        if self._asked_at - self._known.at > _STALE_S:
            self._request_sample()
        return self._usable_sample()

    def _usable_sample(self) -> Sample:
        worthless = self._asked_at - self._known.at > _WORTHLESS_S
        return Sample() if worthless else self._known

    def _request_sample(self) -> None:
        since = time.monotonic()
        self._start()
        self._wanted.set()
        with self._seen:
            self._seen.wait_for(lambda: self._known.at >= since, _RESAMPLE_TIMEOUT_S)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="pressure", daemon=True)
                self._thread.start()
                atexit.register(self._write_rest)

    def _watch(self) -> None:
        while True:
            self._wanted.clear()
            # About a tenth of its time at most, however long the queue has grown.
            pause_s = 9 * self._round_s()
            time.sleep(min(max(_LEAST_PAUSE_S, pause_s), _LONGEST_PAUSE_S))
            idle = time.monotonic() - self._asked_at > _IDLE_S and not self.rejections
            self._wanted.wait(None if idle else SAMPLE_VALID_S)

    def _round_s(self) -> float:
        """How long one sample took; a failed one counts as a long one."""
        began = time.monotonic()
        try:
            self.sample(self._find())
            took_s = time.monotonic() - began
            with self._seen:
                self._seen.notify_all()
            self.rejections.write()
        except CONNECTION_ERRORS as error:
            log.warning("The length of the queue is not known: %s", type(error).__name__)
        except Exception:  # top level of the thread: it samples again in a second
            log.exception("The length of the queue is not known")
        else:
            return took_s
        finally:
            connection.close()
        return SAMPLE_VALID_S

    def _write_rest(self) -> None:
        try:
            self.rejections.write(every=True)
        except Exception:  # the process ends; rejected calls are in its log then
            log.exception("Rejected calls were not recorded: %s", self.rejections)


LOAD_SHEDDER = SamplingLoadShedder()


@contextmanager
def hold_room(caller: Caller) -> Iterator[None]:
    """Room for a run that writes no row. Raises `Shed`."""
    arrival = LOAD_SHEDDER.enter(caller)
    try:
        yield
    finally:
        LOAD_SHEDDER.leave(arrival, written=False)


def peek(question: Question) -> Verdict:
    """The gate's current verdict, without admitting a call."""
    refusal = LOAD_SHEDDER.refusal(question.caller)
    if refusal is None:
        return passed(Gate.LOAD)
    return refused(Gate.LOAD, refusal)


def _is_counted(arrival: Arrival, found: Sample) -> bool:
    """Whether the sample has seen its row, or never will."""
    left = arrival.left_at is not None and arrival.left_at <= found.at
    return left or found.at - arrival.at > _LOST_S


def _too_many_open(caller: Caller, most: int, used: int) -> Shed:
    return Shed(
        f"{used} calls of {caller.name} are not over yet; {most} may be open at once. Wait for "
        "one of them, or cancel it.",
        code="too_many_in_flight",
        gate=Gate.LOAD.value,
        limit=most,
        used=used,
        resets_in_s=1,
    )


def _queue_full(place: queue.QueuePosition, used: int) -> Shed:
    """`Retry-After`: after the waiting time of the first in the queue, most of those waiting now
    have begun."""
    wait_s = min(60, max(1, math.ceil(place.oldest_s or 1)))
    return Shed(
        f"{used} calls of the organization wait for a worker; {place.max_depth} may. Try again in "
        f"{wait_s} s.",
        gate=Gate.LOAD.value,
        limit=place.max_depth,
        used=used,
        resets_in_s=wait_s,
    )


def _describe_rejection(caller: Caller, tool: str) -> dict[str, Any]:
    return {
        "actor": str(caller),
        "actor_id": str(caller.agent_id or caller.user_id),
        "token_id": str(caller.token_id or ""),
        "source_ip": caller.source_ip,
        "request_id": request_id.get(),
        "tool": tool,
    }


def _record_rejections(key: _RejectionKey, found: _RejectionCount) -> None:
    record(
        Event.TOOL_SHED,
        by=Actor(CallerKind.SYSTEM, "load", key.organization),
        outcome=Outcome.DENIED,
        reason=key.code,
        details={
            "minute": datetime.fromtimestamp(key.minute * _MINUTE_S, UTC).isoformat(),
            "count": found.count,
            "first": found.first,
        },
    )
