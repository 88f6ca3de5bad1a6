"""Models of background exports."""

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from audit.fields import ClockTimestamp


class ExportState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"
    GONE = "gone", "gone: its time is over, or somebody removed it"


class AuditExportQuerySet(models.QuerySet["AuditExport"]):
    def requested_by(self, organization: str, person_id: str) -> "AuditExportQuerySet":
        return self.filter(organization=organization, asked_by_id=person_id)

    def unfinished(self) -> "AuditExportQuerySet":
        return self.filter(state__in=(ExportState.WAITING, ExportState.RUNNING))

    def with_file(self) -> "AuditExportQuerySet":
        """Those that have a file, or will have one."""
        return self.exclude(state__in=(ExportState.FAILED, ExportState.GONE))


class AuditExport(models.Model):
    """A file of evidence for one user. `filters` are as a query has them."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.CharField(max_length=63)
    format = models.CharField(max_length=5)
    filters = models.JSONField(default=dict)
    opened = models.BooleanField(help_text="Whether words were looked for in payloads too.")
    asked_by = models.CharField(max_length=200)
    asked_by_id = models.CharField(max_length=40)
    state = models.CharField(max_length=7, choices=ExportState.choices, default=ExportState.WAITING)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    moved_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Its last progress.")
    expires_at = models.DateTimeField(null=True, blank=True)
    records = models.PositiveBigIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)
    problem = models.CharField(max_length=300, blank=True)

    objects = AuditExportQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(
                fields=["organization", "asked_by_id", "-created_at"], name="export_of_person"
            ),
            models.Index(
                fields=["state", "moved_at"],
                name="export_unfinished",
                condition=Q(state__in=("waiting", "running", "ready")),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="export_state_is_known", condition=Q(state__in=ExportState.values)
            ),
            models.CheckConstraint(
                name="export_ready_has_an_end",
                condition=~Q(state="ready") | Q(expires_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.format} for {self.asked_by}"
