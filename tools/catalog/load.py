"""The load of the installation: how long calls have waited, and how busy the processors are.

Needed only for groups that close under load; each figure is measured once a second at most.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.db.models import F
from django.db.models.functions import Now

from tools.definitions.results import Status
from tools.models import Execution

FOR_S = 1.0
_STALE_S = 5.0
_MEASURED_S = 0.1
_COUNTED = 8  # guest time follows, which the first two include
_IDLE = slice(3, 5)  # idle, and waiting for a disk


class Figure:
    """A measured number, cached for a second for all callers."""

    def __init__(self, find: Callable[[], float]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._known, self._until = 0.0, 0.0

    def now(self) -> float:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._find()
                self._until = time.monotonic() + FOR_S
            return self._known


class Processors:
    """Percent of all processors' time that was spent, as the kernel counts it."""

    def __init__(self, counts: Path = Path("/proc/stat")) -> None:
        self._counts = counts
        self._earlier = (0.0, 0, 0)

    def busy_percent(self) -> float:
        """Since the last reading or, when that is long ago, within a tenth of a second."""
        if time.monotonic() - self._earlier[0] > _STALE_S:
            self._earlier = self._read()
            time.sleep(_MEASURED_S)
        _, idle, total = self._earlier
        self._earlier = self._read()
        passed = self._earlier[2] - total
        return 100 * (1 - (self._earlier[1] - idle) / passed) if passed > 0 else 0.0

    def _read(self) -> tuple[float, int, int]:
        """The time, and the ticks since boot: idle, and total."""
        with self._counts.open() as lines:
            ticks = [int(text) for text in lines.readline().split()[1 : 1 + _COUNTED]]
        return time.monotonic(), sum(ticks[_IDLE]), sum(ticks)


def oldest_wait_s() -> float:
    """How long the call that has waited longest for a worker has done so, of all organizations."""
    waiting = Execution.objects.unparked().filter(status=Status.PENDING).order_by("queued_at")
    oldest = waiting.values_list(Now() - F("queued_at"), flat=True).first()
    return oldest.total_seconds() if oldest else 0.0


@dataclass(frozen=True)
class Load:
    queue_age_s: Figure
    cpu_percent: Figure


HERE = Load(Figure(oldest_wait_s), Figure(Processors().busy_percent))
