"""Events of executions: a view that derives what an execution's row says, and adds what is stored.

The start and the end of a call are in its row, so that most calls store no event. `tools_event` is
the view: the first `Started` where no event is stored, and the terminal event of what is over. What
would be lost or renumbered is stored before that happens (`tools_append_event`).
docs/decisions/0028-nothing-written-twice.md
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from audit.inserts import InsertRow, fetch_one, inserts_for_each
from tools.definitions.results import TERMINAL, EventType
from tools.models.execution import Execution
from tools.models.pipeline_sql import APPEND_EVENT

# With the id as a parameter in each place, so that it is planned for one partition.
_OF_EXECUTION = """
    SELECT %(execution)s::text || '.' || v.sequence AS id, e.id AS execution_id, v.sequence, v.type,
        v.message, v.created_at, CASE WHEN v.derived THEN e.completed_at END AS ended_at
    FROM tools_execution e CROSS JOIN LATERAL tools_events_of(
        %(execution)s, e.started_at, e.completed_at, e.status, e.error_message
    ) AS v
    WHERE e.id = %(execution)s AND v.sequence > %(after)s AND NOT (
        v.derived AND coalesce(e.completed_at < now() - %(kept)s::interval, false)
    )
    ORDER BY v.sequence
"""


class StoredEvent(models.Model):
    """An event that no execution's row says: progress, a warning, an earlier attempt. It is in the
    partition of its execution's month."""

    pk = models.CompositePrimaryKey("execution_id", "sequence")
    execution = models.ForeignKey(
        Execution,
        on_delete=models.CASCADE,
        related_name="stored_events",
        db_index=False,  # the primary key's serves
    )
    sequence = models.PositiveIntegerField()
    type = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EventType])
    message = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "tools_executionevent"
        ordering = ["sequence"]
        constraints = [
            models.UniqueConstraint(
                "execution", name="event_terminal_once", condition=Q(type__in=sorted(TERMINAL))
            ),
            models.CheckConstraint(name="event_type_is_known", condition=Q(type__in=[*EventType])),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"


class EventManager(models.Manager["ExecutionEvent"]):
    def get_queryset(self) -> models.QuerySet["ExecutionEvent"]:
        """Without derived events of calls that ended before what retention keeps: the stored ones
        of these calls are deleted."""
        found, days = super().get_queryset(), settings.RETENTION_DAYS["events"]
        return found.exclude(ended_at__lt=Now() - timedelta(days=days)) if days else found

    def of_execution(self, execution: Execution, after: int = 0) -> list["ExecutionEvent"]:
        """Its events past this number, in their order; the same rows as those of the view."""
        days = settings.RETENTION_DAYS["events"]
        kept = timedelta(days=days) if days else None
        values = {"execution": execution.pk, "after": after, "kept": kept}
        events = list(self.raw(_OF_EXECUTION, values))
        for event in events:
            event.execution = execution
        return events

    def append(
        self,
        execution_id: UUID,
        kind: EventType,
        message: str,
        evidence: Sequence[InsertRow] = (),
    ) -> None:
        """Numbered by the database; concurrent events never get the same number. Evidence is
        written by the same statement."""
        parts, values = inserts_for_each("(SELECT 1) once", evidence)
        values |= {"execution": execution_id, "type": str(kind), "message": message[:1000]}
        fetch_one(APPEND_EVENT.filled(evidence=parts), values)

    def store(self, execution_id: UUID) -> None:
        """Store what is derived of an execution, before its row stops to say it."""
        fetch_one("SELECT tools_store_events(%(execution)s)", {"execution": execution_id})


class ExecutionEvent(models.Model):
    """What happened to an execution, in order; a reader may ask for all after a number. Only to be
    read: it is a view."""

    id = models.CharField(primary_key=True, max_length=50)
    execution = models.ForeignKey(Execution, on_delete=models.DO_NOTHING, related_name="events")
    sequence = models.PositiveIntegerField()
    type = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EventType])
    message = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(
        null=True, help_text="Of a derived event: when the execution ended."
    )

    objects = EventManager()

    class Meta:
        managed = False
        db_table = "tools_event"
        ordering = ["sequence"]
        constraints = [
            models.UniqueConstraint(fields=["execution", "sequence"], name="event_number_once")
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"
