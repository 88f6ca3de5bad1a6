"""Concurrency slots for requests that hold a thread for long: no caller and no organization can
take all."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from config.http import request_queue
from tools.definitions.callers import Caller


class CallerConcurrency:
    """Slots, of which one organization may take half at most, and one caller a quarter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[UUID] = Counter()  # by organization
        self._callers: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def take(self, caller: Caller) -> bool:
        """Take a slot; False where none is free. A request with a slot releases its turn for a
        thread."""
        organization, user = caller.organization_id, caller.user_id
        with self._lock:
            if (
                self._taken.total() >= self._most
                or self._taken[organization] >= (self._most + 1) // 2
                or self._callers[user] >= (self._most + 3) // 4
            ):
                return False
            self._taken[organization] += 1
            self._callers[user] += 1
        request_queue.release_slot()
        return True

    def give_back(self, caller: Caller) -> None:
        with self._lock:
            for taken, owner in (
                (self._taken, caller.organization_id),
                (self._callers, caller.user_id),
            ):
                taken[owner] -= 1
                if not taken[owner]:
                    del taken[owner]

    @contextmanager
    def one(self, caller: Caller) -> Iterator[bool]:
        """Whether a slot was free; it is released at the end."""
        free = self.take(caller)
        try:
            yield free
        finally:
            if free:
                self.give_back(caller)
