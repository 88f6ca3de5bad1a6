"""Cached results of calls."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.db.models import Q
from django.db.models.functions import Now

from tools.definitions.results import Status
from tools.models.execution import Execution
from tools.models.organization import Organization
from tools.models.pipeline_sql import LEAD
from tools.models.tool import Tool


class CacheEntryQuerySet(models.QuerySet["CacheEntry"]):
    def good(self, key: str) -> "CacheEntryQuerySet":
        return self.filter(key=key, ready=True, expires_at__gt=Now())

    def lead(self, key: str, *, organization: UUID, tool: UUID, execution: UUID) -> bool:
        """True for the one execution that computes the result."""
        values: dict[str, Any] = {
            "key": key,
            "organization": organization,
            "tool": tool,
            "execution": execution,
        }
        with connection.cursor() as cursor:
            states = {"pending": Status.PENDING, "running": Status.RUNNING}
            cursor.execute(LEAD.text, values | states)
            return cursor.rowcount == 1

    def led_by(self, execution: UUID) -> "CacheEntryQuerySet":
        return self.filter(execution=execution, ready=False)

    def fill(self, key: str, *, execution: UUID, ttl_s: float, warnings: list[str]) -> bool:
        """False when it was invalidated meanwhile."""
        found, until = self.led_by(execution).filter(key=key), Now() + timedelta(seconds=ttl_s)
        return found.update(ready=True, expires_at=until, warnings=warnings) == 1

    def expired(self) -> "CacheEntryQuerySet":
        return self.filter(ready=True, expires_at__lte=Now())


class CacheEntry(models.Model):
    """The execution whose output is the cached result of a key, or, while it is not ready, will
    be."""

    key = models.CharField(primary_key=True, max_length=64)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="+")
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="+")
    ready = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    warnings = models.JSONField(
        default=list,
        blank=True,
        db_default=models.Value([], models.JSONField()),
        help_text="Of the answer, without those of the call that it was found for.",
    )

    objects = CacheEntryQuerySet.as_manager()

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
