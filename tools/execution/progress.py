"""What a run says while it runs, as `InProgress` events that a reader follows.

A talkative upstream neither fills the table nor slows its own run down: words that come faster
than they are written are joined, and after so many the rest is left out.
"""

import logging
import time
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from tools.definitions.results import EventType
from tools.execution import bell, events

log = logging.getLogger(__name__)
LONGEST = 1_000  # characters of one event
MOST_EVENTS = 1_000  # of one run
APART_S = 0.1


class Teller:
    """Called with words; writes the first at once, then at most one event every `APART_S`."""

    def __init__(self, execution_id: UUID) -> None:
        self._execution_id = execution_id
        self._waiting = ""
        self._written, self._last = 0, -APART_S

    def __call__(self, words: str) -> None:
        if self._written >= MOST_EVENTS:
            self._waiting = ""
            return
        room = LONGEST * MOST_EVENTS - len(self._waiting)
        self._waiting += words.replace("\x00", "\ufffd")[: max(0, room)]
        if time.monotonic() - self._last >= APART_S or len(self._waiting) >= LONGEST:
            self.flush()

    def flush(self) -> None:
        """Write what waits. A word that cannot be written never fails the run."""
        while self._waiting and self._written < MOST_EVENTS:
            words, self._waiting = self._waiting[:LONGEST], self._waiting[LONGEST:]
            self._written += 1
            self._last = time.monotonic()
            try:
                with transaction.atomic():
                    events.append(self._execution_id, EventType.IN_PROGRESS, _plain(words))
                bell.ring(self._execution_id)
            except DatabaseError:
                log.warning("progress of %s could not be written", self._execution_id)
            finally:
                if not connection.in_atomic_block:
                    connection.close()


def _plain(words: str) -> str:
    return words.encode("utf-8", "replace").decode("utf-8")
