"""What the database's clock showed while a log grew, as signed checkpoints say it.

A record's time is that of the same clock. Where it lies far from both checkpoints it was sealed
between, it is not what that clock showed: an attacker who has only the database cannot sign others.
A clock that was set forward or back was so for the checkpoints of that time too.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

CLOCKS_AGREE_WITHIN = timedelta(minutes=10)
_SLACK_US = CLOCKS_AGREE_WITHIN // timedelta(microseconds=1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_MS = int(_EPOCH.timestamp() * 1000)
_EVER_US = 1 << 64


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The times, in microseconds since 2000, that records before the index `until` may have."""

    low: int
    high: int
    until: int


@dataclass(frozen=True, slots=True)
class SigningClock:
    """Sizes that were signed, sorted, each with the first and the last time it was signed at."""

    signed: Sequence[tuple[int, int, int]]

    def span(self, index: int) -> TimeSpan:
        """Of records sealed together with that one. Anything, without a checkpoint."""
        place = self._after(index)
        if place == len(self.signed):
            return TimeSpan(-_EVER_US, _EVER_US, _EVER_US)
        until, sealed_at, _ = self.signed[place]
        if place == 0:
            return TimeSpan(-_EVER_US, sealed_at + _SLACK_US, until)
        before = self.signed[place - 1][2]
        return TimeSpan(
            min(before, sealed_at) - _SLACK_US, max(before, sealed_at) + _SLACK_US, until
        )

    def _after(self, index: int) -> int:
        return bisect_right(self.signed, index, key=lambda one: one[0])


def contradicts_id(record_id: bytes, at: int) -> bool:
    """Whether a record's time is not that which its id, a UUID of version 7, was made at.

    By itself it is no evidence: the clock of the process that made the id may be wrong.
    """
    made = (int.from_bytes(record_id[:6]) - _EPOCH_MS) * 1000
    return not -_SLACK_US <= made - at <= _SLACK_US
