"""Usage rollups: sums of the calls of a past day, so that they are not added up again.

Ended calls never change, and calls that had not ended are listed; so a day's sums and the results
of the rest are exactly those of its executions. A trigger forgets a day that gets or loses one.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from tools.models.agent import Agent
from tools.models.organization import Organization


class DayOfCalls(models.Model):
    """A day of a time zone whose calls were summed, except the `unfinished` ones."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(
        Organization,
        on_delete=models.CASCADE,
        related_name="days_of_calls",
        db_index=False,  # the constraint's serves
    )
    zone = models.CharField(max_length=64)
    day = models.DateField()
    unfinished = ArrayField(models.UUIDField(), help_text="Executions that were not over yet.")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-day"]
        default_permissions = ()  # rows are never shown
        constraints = [
            models.UniqueConstraint("organization", "zone", "day", name="day_of_calls_once")
        ]

    def __str__(self) -> str:
        return f"{self.day}"


class RollupPart(models.TextChoices):
    """The calls that a row sums up."""

    ALL = "all"
    AGENT = "agent"
    TOOL = "tool"
    PAIR = "pair"


class DayFigures(models.Model):
    """Of all calls of a day, of each agent's, of each tool's, or of each agent's of each tool."""

    id = models.BigAutoField(primary_key=True)
    day = models.ForeignKey(
        DayOfCalls, on_delete=models.CASCADE, related_name="figures", db_index=False
    )
    part = models.CharField(max_length=5, choices=RollupPart.choices)
    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, null=True, related_name="+", db_index=False
    )
    tool_name = models.CharField(max_length=128, blank=True)
    calls = models.PositiveIntegerField()
    failures = models.PositiveIntegerField()
    denials = models.PositiveIntegerField()
    cached = models.PositiveIntegerField()
    cost = models.DecimalField(max_digits=24, decimal_places=6)
    median_ms = models.FloatField(null=True)
    p95_ms = models.FloatField(null=True)

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(fields=["day", "part", "agent", "tool_name"], name="figures_of_a_day")
        ]

    def __str__(self) -> str:
        return f"{self.part} {self.calls}"
