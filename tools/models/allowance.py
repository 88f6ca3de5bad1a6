"""How much an agent may use in a day or a month, and how much of it is used."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tools.models.agent import Agent
from tools.models.execution import Execution
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User


class Kind(models.TextChoices):
    CALLS = "calls", "calls (a quota)"
    COST = "cost", "cost (a budget)"


class Period(models.TextChoices):
    DAY = "day"
    MONTH = "month"


class Allowance(models.Model):
    """A limit for one agent, for all its tools or for one of them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="allowances"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="allowances")
    tool_name = models.CharField(max_length=128, blank=True, help_text="Empty: every tool.")
    kind = models.CharField(max_length=5, choices=Kind.choices)
    period = models.CharField(max_length=5, choices=Period.choices)
    amount = models.DecimalField(max_digits=18, decimal_places=6)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["agent", "tool_name", "kind", "period"]
        constraints = [
            models.UniqueConstraint("agent", "tool_name", "kind", "period", name="allowance_once"),
            models.CheckConstraint(name="allowance_not_negative", condition=Q(amount__gte=0)),
            models.CheckConstraint(
                name="allowance_kind_is_known", condition=Q(kind__in=Kind.values)
            ),
            models.CheckConstraint(
                name="allowance_period_is_known", condition=Q(period__in=Period.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.amount} {self.kind} a {self.period}"


class AllowanceUse(models.Model):
    """One period of one allowance. `held` is reserved by open executions."""

    id = models.BigAutoField(primary_key=True)
    allowance = models.ForeignKey(Allowance, on_delete=models.CASCADE, related_name="uses")
    starts_on = models.DateField(help_text="First day, in the organization's time zone.")
    used = models.DecimalField(max_digits=18, decimal_places=6, default=0, db_default=0)
    held = models.DecimalField(max_digits=18, decimal_places=6, default=0, db_default=0)
    alerted_percent = models.PositiveSmallIntegerField(default=0, db_default=0)

    class Meta:
        ordering = ["-starts_on"]
        constraints = [
            models.UniqueConstraint("allowance", "starts_on", name="allowance_use_once"),
            models.CheckConstraint(
                name="allowance_use_not_negative", condition=Q(used__gte=0, held__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.starts_on} {self.used}+{self.held}"


class Reservation(models.Model):
    """The reservation of an open execution in one period; deleted when it is settled."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="reservations")
    use = models.ForeignKey(AllowanceUse, on_delete=models.CASCADE, related_name="reservations")
    amount = models.DecimalField(max_digits=18, decimal_places=6)

    class Meta:
        constraints = [models.UniqueConstraint("execution", "use", name="reservation_once")]

    def __str__(self) -> str:
        return f"{self.amount}"


class RateHit(models.Model):
    """A call that PostgreSQL counted for the limit per minute, because Redis could not."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    tool_name = models.CharField(max_length=128)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["user", "tool_name", "-at"], name="rate_hit_recent")]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.at}"
