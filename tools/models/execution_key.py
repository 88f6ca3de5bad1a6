"""What must be unique over the executions of all months: idempotency keys, the places of nested
calls, and what was retried.

Executions are partitioned by month, and an index of a partition knows only its own rows. Triggers
of that table keep this one (tools/migrations/0047_execution_keys.py): no code writes it.
"""

from django.db import models
from django.db.models import Q

from tools.models.execution import Execution
from tools.models.execution_queryset import RETRIED_ONCE
from tools.models.open_execution import mirrored
from tools.models.organization import Organization
from tools.models.user import User


class ExecutionKey(models.Model):
    """The keys of an execution that has any; it goes with the last of them, or with its execution.
    It is inserted and deleted, never updated."""

    execution = models.OneToOneField(
        Execution,
        primary_key=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="keys",
    )
    organization = mirrored(Organization)
    user = mirrored(User)
    idempotency_key = models.CharField(max_length=255, null=True)
    parent = mirrored(Execution, null=True)
    place = models.CharField(max_length=200)
    retry_of = models.UUIDField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["execution"],
                name="execution_key_by_age",
                condition=Q(idempotency_key__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "organization",
                "user",
                "idempotency_key",
                name="execution_idempotency_key_once",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.UniqueConstraint(
                "parent",
                "place",
                name="execution_once_per_place",
                condition=Q(parent__isnull=False),
            ),
            models.UniqueConstraint(
                "retry_of", name=RETRIED_ONCE, condition=Q(retry_of__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.idempotency_key or self.place or str(self.retry_of)
