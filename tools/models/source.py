"""Where tools come from beside the product and its administrators."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization


class Source(models.Model):
    """Carries groups for tools that name none (ruling 19)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=128)
    default_groups = ArrayField(
        models.CharField(max_length=100),
        null=True,
        blank=True,
        help_text="Groups of its tools that name none; empty value (null) is `default`.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ToolService(Source):
    class Meta(Source.Meta):
        constraints = [
            models.UniqueConstraint("organization", "name", name="tool_service_name_once"),
            models.CheckConstraint(name="tool_service_has_a_name", condition=~Q(name="")),
        ]


class McpServer(Source):
    class Meta(Source.Meta):
        verbose_name = "MCP server"
        constraints = [
            models.UniqueConstraint("organization", "name", name="mcp_server_name_once"),
            models.CheckConstraint(name="mcp_server_has_a_name", condition=~Q(name="")),
        ]
