"""The child calls of a composite call, for its page."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from tools.definitions.results import OPEN, Status
from tools.execution.composing import Made, absent_calls
from tools.models import Execution
from tools.ui.display import milliseconds

MOST_SHOWN = 100


@dataclass(frozen=True)
class CallsWithin:
    """The latest child calls, and the number of all of them by status."""

    rows: list[Execution]
    counts: list[dict[str, Any]]
    absent: list[Made]
    total: int
    open: int

    @property
    def more(self) -> int:
        return self.total - len(self.rows)

    @property
    def over(self) -> int:
        return self.total - self.open

    @property
    def asks(self) -> bool:
        """Whether one of them awaits approval."""
        return any(one["status"] == Status.REQUIRES_CONFIRMATION for one in self.counts)

    @property
    def seen(self) -> str:
        """A fingerprint that changes when a call changes."""
        known = [f"{one['status']}{one['count']}" for one in self.counts]
        return "-".join([*known, str(len(self.absent))])


def calls_within(execution: Execution) -> CallsWithin | None:
    """None for a call that makes no calls."""
    if not execution.composite:
        return None
    found = Execution.objects.filter(parent=execution.pk)
    counted = found.values("status").annotate(count=Count("pk")).order_by("status")
    counts: list[dict[str, Any]] = [dict(one) for one in counted]
    rows = list(
        found.only(
            "place", "tool_name", "status", "parked_below", "duration_ms", "error_code",
            "created_at",
        ).order_by("-created_at", "-pk")[:MOST_SHOWN]
    )  # fmt: skip
    for row in rows:
        row.shown_duration = milliseconds(row.duration_ms)  # type: ignore[attr-defined]
    absent = list(absent_calls(execution.memory).values())[:MOST_SHOWN]
    total = sum(one["count"] for one in counts)
    return CallsWithin(
        rows[::-1],
        counts,
        absent,
        total,
        sum(one["count"] for one in counts if one["status"] in OPEN),
    )
