from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tools.models.execution import Execution
from tools.models.organization import Organization
from tools.models.tool import Tool


class CacheEntry(models.Model):
    """Which execution's output answers a key, or, while it is not ready, will."""

    key = models.CharField(primary_key=True, max_length=64)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="+")
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="+")
    ready = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "cache entries"
        indexes = [models.Index(fields=["expires_at"], name="cache_entry_expiry")]
        constraints = [
            models.CheckConstraint(
                name="cache_entry_ready_means_expiring",
                condition=Q(ready=False) | Q(expires_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.key[:12]
