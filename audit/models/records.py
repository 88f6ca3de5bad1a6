"""Models of evidence and of its exports. Records are written once; triggers refuse to change or
delete them.

What a record speaks of is text, never a foreign key: it outlives what it names.
"""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from audit.events import Outcome
from audit.fields import CanonicalJSONField, ClockTimestamp, TransactionId, TransactionIdField


class AuditRecord(models.Model):
    """The record of one action. `mac` covers all of it but the two columns that the database
    fills."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.CharField(max_length=63)
    occurred_at = models.DateTimeField(db_default=ClockTimestamp())
    code = models.CharField(max_length=40)
    outcome = models.CharField(max_length=10, choices=[(o.value, o.value) for o in Outcome])
    reason = models.CharField(max_length=80, blank=True)
    actor_kind = models.CharField(max_length=10)
    actor = models.CharField(max_length=200)
    actor_id = models.CharField(max_length=40, blank=True)
    token_id = models.CharField(max_length=40, blank=True)
    subject = models.CharField(max_length=200, blank=True)
    subject_digest = models.CharField(max_length=71, blank=True)
    execution_id = models.UUIDField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    source_ip = models.CharField(max_length=45, blank=True)
    details = CanonicalJSONField(default=dict, blank=True)
    mac = models.BinaryField(max_length=32, default=bytes, editable=False)
    transaction = TransactionIdField(
        db_default=TransactionId(),
        editable=False,
        help_text="Records are sealed when every transaction up to theirs is over.",
    )

    class Meta:
        ordering = ["-occurred_at", "-id"]
        indexes = [
            models.Index(fields=["organization", "-occurred_at", "-id"], name="audit_recent"),
            models.Index(fields=["organization", "actor", "-occurred_at"], name="audit_of_actor"),
            models.Index(
                fields=["organization", "subject", "-occurred_at"], name="audit_of_subject"
            ),
            models.Index(fields=["execution_id"], name="audit_of_execution"),
            models.Index(fields=["transaction"], name="audit_by_transaction"),
            models.Index(
                fields=["organization", "actor", "subject", "occurred_at"],
                name="audit_starts",
                condition=Q(code="TOOL.START"),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="audit_outcome_is_known", condition=Q(outcome__in=[*Outcome])
            ),
            models.CheckConstraint(
                name="audit_names_actor_and_place",
                condition=~Q(actor="") & ~Q(organization="") & ~Q(code=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.occurred_at:%Y-%m-%d %H:%M:%S} {self.code} {self.subject}"


class AuditPayload(models.Model):
    """The input or output of an action, redacted, apart from its record and encrypted: `sealed` can
    be erased, and the record, which holds salted commitments alone, still verifies."""

    record_id = models.UUIDField(primary_key=True)
    organization = models.CharField(max_length=63)
    sealed = models.BinaryField(null=True)
    words = ArrayField(
        models.BinaryField(), default=list, help_text="Keyed hashes of what may be searched for."
    )
    erased_at = models.DateTimeField(null=True, blank=True)
    erased_by = models.CharField(max_length=200, blank=True, db_default="")

    class Meta:
        indexes = [GinIndex(fields=["words"], name="payload_by_word", condition=~Q(words=[]))]
        constraints = [
            models.CheckConstraint(
                name="payload_is_sealed_or_erased",
                condition=Q(sealed__isnull=False, erased_at__isnull=True)
                | Q(sealed__isnull=True, erased_at__isnull=False, words=[]),
            )
        ]

    def __str__(self) -> str:
        return f"payload of {self.record_id}"


class AuditKey(models.Model):
    """An organization's key for payloads, encrypted under one in a file outside the database: a
    row without its file opens nothing, and a new one takes its place."""

    organization = models.CharField(max_length=63, primary_key=True)
    wrapped = models.BinaryField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    def __str__(self) -> str:
        return f"key of {self.organization}"


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
