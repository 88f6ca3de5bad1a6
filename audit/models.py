"""Evidence. Rows are written once; triggers refuse to change or delete them.

What a record speaks of is text, never a foreign key: it outlives what it names.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Func, Q
from uuid_utils.compat import uuid7

from audit.events import Outcome, Severity


class ClockTimestamp(Func):
    """The database's clock at the moment of the statement, not of the transaction's beginning."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class AuditRecord(models.Model):
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
    details = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["-occurred_at", "-id"]
        indexes = [
            models.Index(fields=["organization", "-occurred_at", "-id"], name="audit_recent"),
            models.Index(fields=["organization", "actor", "-occurred_at"], name="audit_of_actor"),
            models.Index(
                fields=["organization", "subject", "-occurred_at"], name="audit_of_subject"
            ),
            models.Index(fields=["execution_id"], name="audit_of_execution"),
            BrinIndex(fields=["occurred_at"], name="audit_by_time"),
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


class AlertQuerySet(models.QuerySet["Alert"]):
    def open(self) -> "AlertQuerySet":
        return self.filter(acknowledged_at__isnull=True)


class Alert(models.Model):
    """Something in the records that a person should look at. Open until somebody says so."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.CharField(max_length=63)
    rule = models.CharField(max_length=40)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    actor = models.CharField(max_length=200)
    subject = models.CharField(max_length=200, blank=True)
    message = models.CharField(max_length=500)
    count = models.PositiveIntegerField(help_text="Records it was raised for.")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-last_at", "-id"]
        indexes = [models.Index(fields=["organization", "-last_at", "-id"], name="alert_recent")]
        constraints = [
            models.UniqueConstraint(
                "organization",
                "rule",
                "actor",
                "subject",
                name="alert_open_once",
                condition=Q(acknowledged_at__isnull=True),
            ),
            models.CheckConstraint(
                name="alert_severity_is_known", condition=Q(severity__in=[*Severity])
            ),
            models.CheckConstraint(
                name="alert_ends_after_it_began", condition=Q(last_at__gte=models.F("first_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.actor}"
