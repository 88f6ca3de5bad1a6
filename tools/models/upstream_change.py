from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.tool import Tool


class Decision(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn", "withdrawn: the upstream went back"


class UpstreamChange(models.Model):
    """A change of an upstream against the approved version."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="upstream_changes")
    seen = models.JSONField(help_text="The definition that follows from what the upstream says.")
    digest = models.CharField(max_length=71)
    seen_at = models.DateTimeField(auto_now_add=True)
    decision = models.CharField(max_length=9, choices=Decision.choices, default=Decision.OPEN)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-seen_at", "-id"]
        indexes = [models.Index(fields=["decision", "-seen_at"], name="upstream_change_open")]
        constraints = [
            models.UniqueConstraint("tool", "digest", name="upstream_change_once"),
            models.CheckConstraint(
                name="upstream_change_decision_is_known",
                condition=Q(decision__in=Decision.values),
            ),
            models.CheckConstraint(
                name="upstream_change_decided_or_open",
                condition=Q(decision=Decision.OPEN, decided_at__isnull=True)
                | (~Q(decision=Decision.OPEN) & Q(decided_at__isnull=False)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool.name}, seen {self.seen_at:%Y-%m-%d %H:%M}"
