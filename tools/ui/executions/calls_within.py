"""What a composite call's page shows of the calls that it made."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from tools.definitions.results import OPEN, Status
from tools.execution.composing import Made, absent_calls
from tools.models import Execution
from tools.ui.shown import milliseconds

MOST_SHOWN = 100


@dataclass(frozen=True)
class CallsWithin:
    """Those that were begun last, and how many there are of each status."""

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
        """Whether a person is asked about one of them."""
        return any(one["status"] == Status.REQUIRES_CONFIRMATION for one in self.counts)

    @property
    def seen(self) -> str:
        """Another text when something of it has changed."""
        known = [f"{one['status']}{one['count']}" for one in self.counts]
        return "-".join([*known, str(len(self.absent))])


def calls_within(execution: Execution) -> CallsWithin | None:
    """None for a call that makes none of its own."""
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
