from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from tools.definitions.results import FINAL, OPEN, RAN, EventType, Status
from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.tool import ToolVersion
from tools.models.user import User


class ExecutionQuerySet(models.QuerySet["Execution"]):
    def claim(self, pk: UUID, *, worker: str, lease_s: int) -> int | None:
        """The fence of the one worker that moved the row from pending to running, or None."""
        won = self.filter(pk=pk, status=Status.PENDING).update(
            status=Status.RUNNING,
            fence=F("fence") + 1,
            attempt=F("attempt") + 1,
            worker=worker,
            started_at=Now(),
            lease_until=Now() + timedelta(seconds=lease_s),
        )
        return self.values_list("fence", flat=True).get(pk=pk) if won else None

    def held(self, pk: UUID, fence: int) -> "ExecutionQuerySet":
        """The row, as long as the holder of this fence still owns it."""
        return self.filter(pk=pk, fence=fence, status=Status.RUNNING)

    def renew(self, pk: UUID, fence: int, *, lease_s: int) -> bool:
        lease = Now() + timedelta(seconds=lease_s)
        return self.held(pk, fence).update(lease_until=lease) == 1

    def finish(self, pk: UUID, fence: int, **result: Any) -> bool:
        """True when the holder of the fence ended it; False when it had lost it meanwhile."""
        ended = {"completed_at": Now(), "lease_until": None, **result}
        return self.held(pk, fence).update(**ended) == 1

    def abandoned(self) -> "ExecutionQuerySet":
        """Running rows whose worker has not renewed its lease in time."""
        return self.filter(status=Status.RUNNING, lease_until__lt=Now())

    def waiting_longer_than(self, age: timedelta) -> "ExecutionQuerySet":
        return self.filter(status=Status.PENDING, created_at__lt=Now() - age)


class Execution(models.Model):
    """One call of one tool: the truth about it; messages about it are hints."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="executions"
    )
    user = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="executions", help_text="Who called."
    )
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, null=True, blank=True, related_name="executions"
    )
    token_id = models.UUIDField(null=True, blank=True)
    tool_name = models.CharField(max_length=128)
    tool_version = models.ForeignKey(
        ToolVersion, on_delete=models.PROTECT, related_name="executions"
    )
    parameters = models.JSONField()
    requested_groups = ArrayField(models.CharField(max_length=100), null=True, blank=True)
    state = models.CharField(max_length=100)
    timeout_s = models.FloatField()
    request_id = models.CharField(max_length=64, blank=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)

    status = models.CharField(max_length=20, choices=[(s.value, s.value) for s in Status])
    fence = models.PositiveIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    worker = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    output = models.JSONField(null=True, blank=True)
    observation = models.TextField(blank=True)
    error_code = models.CharField(max_length=60, blank=True)
    error_message = models.TextField(blank=True)
    error_details = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    duration_ms = models.FloatField(null=True, blank=True)
    output_bytes = models.BigIntegerField(null=True, blank=True)
    sandbox_id = models.CharField(max_length=60, blank=True)
    metrics = models.JSONField(default=dict, blank=True)

    objects = ExecutionQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["organization", "-created_at"], name="execution_recent"),
            models.Index(fields=["user", "-created_at"], name="execution_of_caller"),
            models.Index(
                fields=["created_at"], name="execution_open", condition=Q(status__in=[*OPEN])
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="execution_status_is_known", condition=Q(status__in=[*Status])
            ),
            models.CheckConstraint(
                name="execution_over_means_completed",
                condition=Q(status__in=[*FINAL], completed_at__isnull=False)
                | Q(status__in=[*OPEN], completed_at__isnull=True),
            ),
            models.CheckConstraint(
                name="execution_running_means_leased",
                condition=Q(
                    status=Status.RUNNING,
                    lease_until__isnull=False,
                    started_at__isnull=False,
                    fence__gte=1,
                )
                | (~Q(status=Status.RUNNING) & Q(lease_until__isnull=True)),
            ),
            models.CheckConstraint(
                name="execution_output_means_success",
                condition=Q(output__isnull=True) | Q(status=Status.SUCCESS),
            ),
            models.CheckConstraint(
                name="execution_success_has_no_error",
                condition=~Q(status=Status.SUCCESS) | Q(error_code=""),
            ),
            models.CheckConstraint(name="execution_timeout_positive", condition=Q(timeout_s__gt=0)),
            models.UniqueConstraint(
                "organization", "user", "idempotency_key", name="execution_idempotency_key_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.status}"

    @property
    def over(self) -> bool:
        return self.status in FINAL

    @property
    def ran(self) -> bool:
        return self.status in RAN

    @property
    def deadline(self) -> datetime:
        return self.created_at + timedelta(seconds=self.timeout_s)


class ExecutionEvent(models.Model):
    """What happened to an execution, in order; a reader may ask for all after a number."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="events")
    sequence = models.PositiveIntegerField()
    type = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EventType])
    message = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["sequence"]
        constraints = [
            models.UniqueConstraint("execution", "sequence", name="event_sequence_once"),
            models.CheckConstraint(name="event_type_is_known", condition=Q(type__in=[*EventType])),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"
