from django.db import models
from django.db.models import Q

from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.session import Session
from tools.models.tool import Tool, ToolVersion


class Pin(models.Model):
    """The version of a tool that one agent, or one session, uses."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, related_name="pins")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, null=True, related_name="pins")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="pins")
    version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["tool__name"]
        constraints = [
            models.UniqueConstraint(
                "agent", "tool", condition=Q(agent__isnull=False), name="pin_once_per_agent"
            ),
            models.UniqueConstraint(
                "session", "tool", condition=Q(session__isnull=False), name="pin_once_per_session"
            ),
            models.CheckConstraint(
                name="pin_is_an_agents_or_a_sessions",
                condition=Q(agent__isnull=True, session__isnull=False)
                | Q(agent__isnull=False, session__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_id} {self.version_id}"
