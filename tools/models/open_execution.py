"""Executions that have not ended, apart from all others: the queue, what runs, what is awaited.

The row of an execution is written when it is accepted and completed when it ends; whatever looks
for open ones looks here, so that the large table needs no index that the end of a call changes.
Triggers of that table keep this one (tools/migrations/0044_open_executions.py, with the columns of
0048): no code writes it.
"""

from typing import Any

from django.db import models
from django.db.models import Q

from tools.definitions.results import Status
from tools.models.execution import Execution
from tools.models.organization import Organization
from tools.models.session import Session
from tools.models.tool import ToolVersion
from tools.models.user import User

ONE_OPEN_PER_SESSION = "execution_one_open_per_session"


def mirrored(model: type[models.Model], **options: Any) -> Any:
    """A foreign key that the execution has, where it is checked."""
    return models.ForeignKey(
        model,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
        **options,
    )


class OpenExecution(models.Model):
    """An execution whose status is open. It is inserted and deleted, never updated."""

    execution = models.OneToOneField(
        Execution,
        primary_key=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="open",
    )
    organization = mirrored(Organization)
    user = mirrored(User)
    session = mirrored(
        Session, null=True, help_text="Empty for a composite call, which leaves it to its calls."
    )
    parent = mirrored(Execution, null=True)
    tool_name = models.CharField(max_length=128)
    status = models.CharField(max_length=20)
    queued_at = models.DateTimeField()
    cache_key = models.CharField(max_length=64)
    composite = models.BooleanField()
    parked_below = models.PositiveSmallIntegerField(null=True)
    tool_version = mirrored(ToolVersion)
    wake_at = models.DateTimeField(null=True)
    cancel_unseen = models.BooleanField(
        help_text="It was cancelled while it was parked, and no turn has seen that."
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["organization", "queued_at"],
                name="open_execution_queued",
                condition=Q(status=Status.PENDING),
            ),
            models.Index(
                fields=["organization", "tool_name"],
                name="open_execution_running",
                condition=Q(status=Status.RUNNING),
            ),
            models.Index(
                fields=["user"],
                name="open_execution_held",
                condition=Q(status=Status.REQUIRES_CONFIRMATION),
            ),
            models.Index(
                fields=["parent"],
                name="open_execution_of_parent",
                condition=Q(parent__isnull=False),
            ),
            models.Index(
                fields=["cache_key"],
                name="open_execution_cacheable",
                condition=~Q(cache_key=""),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "session", name=ONE_OPEN_PER_SESSION, condition=Q(session__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.status}"
