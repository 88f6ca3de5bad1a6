"""Evidence. Rows are written once; triggers refuse to change or delete them.

What a record speaks of is text, never a foreign key: it outlives what it names.
"""

from django.db import models
from django.db.models import Func, Q
from uuid_utils.compat import uuid7

from audit.events import Outcome


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
