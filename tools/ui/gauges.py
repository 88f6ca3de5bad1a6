"""Gauges: bars that show how much of a limit is used, reserved and left."""

from dataclasses import dataclass
from decimal import Decimal

FULL = 100.0
WARNS = 80.0  # percent, as in alerts
_LEAST = 1.0  # percent, so that a small value is visible


@dataclass(frozen=True, slots=True)
class Gauge:
    """`used` and `held` (reserved) are percent of the limit, together at most 100."""

    used: float
    held: float
    tone: str
    says: str


def gauge(
    used: Decimal | float, bound: Decimal | float, says: str, held: Decimal | float = 0
) -> Gauge:
    """With a limit of zero, any usage is 100 percent."""
    share, more = _percent(used, bound), _percent(held, bound)
    taken = share + more
    tone = "bad" if taken >= FULL else "warn" if taken >= WARNS else "good"
    share = min(FULL, share)
    return Gauge(share, min(FULL - share, more), tone, says)


def _percent(part: Decimal | float, whole: Decimal | float) -> float:
    if not part:
        return 0.0
    return max(_LEAST, float(part) / float(whole) * FULL) if whole else FULL
