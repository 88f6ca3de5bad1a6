"""How much of a bound is used, as a bar: what is used, what is held beside it, and what is left."""

from dataclasses import dataclass
from decimal import Decimal

FULL = 100.0
WARNS = 80.0  # percent, as the alerts have it
_LEAST = 1.0  # percent; what is not nothing can be seen


@dataclass(frozen=True, slots=True)
class Gauge:
    """`used` and `held` are percent of the bound, together at most all of it."""

    used: float
    held: float
    tone: str
    says: str


def gauge(
    used: Decimal | float, bound: Decimal | float, says: str, held: Decimal | float = 0
) -> Gauge:
    """Where the bound is nothing, whatever is used is all of it."""
    share, more = _percent(used, bound), _percent(held, bound)
    taken = share + more
    tone = "bad" if taken >= FULL else "warn" if taken >= WARNS else "good"
    share = min(FULL, share)
    return Gauge(share, min(FULL - share, more), tone, says)


def _percent(part: Decimal | float, whole: Decimal | float) -> float:
    if not part:
        return 0.0
    return max(_LEAST, float(part) / float(whole) * FULL) if whole else FULL
