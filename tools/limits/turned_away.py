"""Audits calls that were rejected by load shedding, as sums.

A row for each would make a flood of calls a flood of rows. One record has, for an organization, a
code and a minute, how many calls a process rejected and whose the first were.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.logs import request_id
from tools.definitions.callers import Caller, CallerKind

FIRST = 5
_MINUTE_S = 60
_MOST_SUMS = 1000  # beyond it later minutes are added to an earlier one


class _RejectionKey(NamedTuple):
    organization: str
    code: str
    minute: int


@dataclass(slots=True)
class _Sum:
    count: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)


class RejectionCounter:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sums: dict[_RejectionKey, _Sum] = {}
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
            if len(found.first) < FIRST:
                found.first.append(_described(caller, tool))

    def write(self, *, every: bool = False) -> None:
        """Audit the past minutes, or every one. A failed write is retried."""
        now = int(self._clock()) // _MINUTE_S
        for key in [key for key in [*self._sums] if every or key.minute != now]:
            with self._lock:
                found = self._sums.pop(key)
            try:
                with transaction.atomic():
                    _record(key, found)
            except Exception:
                self._put_back(key, found)
                raise

    def _put_back(self, key: _RejectionKey, found: _Sum) -> None:
        with self._lock:
            found.count += self._sums[key].count if key in self._sums else 0
            self._sums[key] = found

    def _new(self, key: _RejectionKey) -> _Sum:
        if len(self._sums) < _MOST_SUMS:
            return self._sums.setdefault(key, _Sum())
        same = (one for one in self._sums if one[:2] == key[:2])
        return self._sums.setdefault(next(same, key), _Sum())


def _described(caller: Caller, tool: str) -> dict[str, Any]:
    return {
        "actor": str(caller),
        "actor_id": str(caller.agent_id or caller.user_id),
        "token_id": str(caller.token_id or ""),
        "source_ip": caller.source_ip,
        "request_id": request_id.get(),
        "tool": tool,
    }


def _record(key: _RejectionKey, found: _Sum) -> None:
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
