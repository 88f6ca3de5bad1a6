from django.db import models
from django.db.models.functions import Now

from tools.models.execution import Execution
from tools.models.organization import Organization
from tools.models.session import Session


class StateTransition(models.Model):
    """A state was entered because a tool succeeded. Written with its result, never changed."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="transitions"
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, null=True, blank=True, related_name="transitions"
    )
    execution = models.OneToOneField(Execution, on_delete=models.PROTECT, related_name="transition")
    tool_name = models.CharField(max_length=128)
    from_state = models.CharField(max_length=100)
    to_state = models.CharField(max_length=100)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state}"
