"""Sessions of agents, and the state transitions in them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User


class SessionQuerySet(models.QuerySet["Session"]):
    def open(self) -> "SessionQuerySet":
        return self.filter(closed_at__isnull=True)


class Session(models.Model):
    """One workflow of one caller. Its state, groups and history are the server's alone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="sessions"
    )
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="sessions")
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, null=True, blank=True, related_name="sessions"
    )
    groups = ArrayField(models.CharField(max_length=100), help_text="Effective; never null.")
    state = models.CharField(max_length=100)
    entered_at = models.DateTimeField(db_default=Now(), help_text="When it came into its state.")
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["organization", "-created_at"], name="session_recent"),
            models.Index(
                fields=["organization", "state"],
                name="session_open_by_state",
                condition=Q(closed_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.state}"


class StateTransition(models.Model):
    """A state was entered because a tool succeeded. Written with its result, never changed."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="transitions"
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, null=True, blank=True, related_name="transitions"
    )
    execution = models.OneToOneField(
        "tools.Execution", on_delete=models.PROTECT, related_name="transition"
    )
    tool_name = models.CharField(max_length=128)
    from_state = models.CharField(max_length=100)
    to_state = models.CharField(max_length=100)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state}"
