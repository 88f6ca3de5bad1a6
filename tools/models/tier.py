from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE


class LicenseTier(models.Model):
    """The features that an organization's license includes. Rows an administrator edits (ruling
    8)."""

    name = models.CharField(max_length=60, unique=True)
    rank = models.PositiveSmallIntegerField(
        unique=True, help_text="Order of the tiers, the smallest first."
    )
    builtin_tools = ArrayField(
        models.CharField(max_length=128),
        null=True,
        blank=True,
        help_text="Built-in tools of this tier. Empty value (null) means all of them.",
    )
    max_custom_tools = models.PositiveIntegerField(
        null=True, blank=True, help_text="Custom tools at most. Empty means unlimited."
    )
    isolation_levels = ArrayField(
        models.CharField(max_length=10),
        null=True,
        blank=True,
        help_text="Isolation levels that tools may ask for. Empty value (null) means all of them.",
    )
    custom_sandbox_profiles = models.BooleanField(default=False)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.CheckConstraint(
                name="tier_profiles_need_unlimited_tools",
                condition=Q(custom_sandbox_profiles=False) | Q(max_custom_tools__isnull=True),
                violation_error_message="Only a tier with unlimited tools may have own profiles.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def includes_builtin(self, name: str) -> bool:
        listed = self.builtin_tools is None or name in self.builtin_tools
        return listed or name in IN_EVERY_LICENSE
