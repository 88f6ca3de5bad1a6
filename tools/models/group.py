"""Tool groups, and tool versions that agents and sessions pin."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.session import Session
from tools.models.tool import Tool, ToolVersion


class ToolGroup(models.Model):
    """A group of tools that is granted by name. Names match exactly (ruling 3)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="groups")
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=1000, blank=True)
    permissions = ArrayField(
        models.CharField(max_length=100),
        default=list,
        blank=True,
        help_text="Permissions that whoever is granted this group holds.",
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="children",
        help_text="A tool in this group is also in its parent (ruling 19).",
    )
    schedule = models.JSONField(
        default=list,
        blank=True,
        help_text="Windows in which the group is open, in the organization's time zone; "
        "none means always.",
    )
    max_queue_age_s = models.FloatField(
        null=True, blank=True, help_text="Closed while a call has waited longer than this."
    )
    max_cpu_percent = models.FloatField(
        null=True, blank=True, help_text="Closed while the processors are busier than this."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        permissions = [("execute_toolgroup", "Can execute every tool of the group")]
        constraints = [
            models.UniqueConstraint("organization", "name", name="group_name_once"),
            models.CheckConstraint(
                name="group_name_is_no_wildcard", condition=~Q(name="*") & ~Q(name="")
            ),
            models.CheckConstraint(
                name="group_is_not_its_own_parent",
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")),
            ),
            models.CheckConstraint(
                name="group_limits_are_sensible",
                condition=(Q(max_queue_age_s__isnull=True) | Q(max_queue_age_s__gt=0))
                & (
                    Q(max_cpu_percent__isnull=True)
                    | Q(max_cpu_percent__gt=0, max_cpu_percent__lte=100)
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.name


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
