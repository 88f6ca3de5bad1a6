"""Agents, their tokens, and how much each may use in a day or a month."""

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from tools.definitions.callers import Scope
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User


class Agent(models.Model):
    """A program that calls tools. Its grants belong to its service account."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="agents")
    slug = models.SlugField(max_length=63)
    description = models.CharField(max_length=500, blank=True)
    service_account = models.OneToOneField(User, on_delete=models.PROTECT, related_name="agent")
    active = models.BooleanField(default=True, help_text="A suspended agent is refused at once.")
    strict = models.BooleanField(
        default=False, help_text="Answer unknown group names with 400 instead of a warning."
    )
    max_in_flight = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many of its calls may be open; empty: no limit."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        permissions = [("impersonate_agent", "Can call tools as the agent")]
        constraints = [
            models.UniqueConstraint("organization", "slug", name="agent_slug_once_per_organization")
        ]

    def __str__(self) -> str:
        return self.slug


class TokenQuerySet(models.QuerySet["Token"]):
    def usable(self, now: datetime) -> "TokenQuerySet":
        return self.filter(revoked_at__isnull=True, expires_at__gt=now)


class Token(models.Model):
    """The keyed hash of a bearer token; the token itself is shown once and never stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    label = models.CharField(max_length=100, blank=True)
    public_id = models.CharField(max_length=8, unique=True, editable=False)
    secret_hash = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=20))
    groups = ArrayField(
        models.CharField(max_length=100),
        null=True,
        blank=True,
        help_text="Narrower than the holder's groups; empty value (null) is all of the holder's.",
    )
    tools = ArrayField(
        models.CharField(max_length=128),
        null=True,
        blank=True,
        help_text="The only tools this token is good for; empty value (null) is every tool.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, blank=True)
    issuer = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = TokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                name="token_scopes_are_known", condition=Q(scopes__contained_by=[*Scope])
            ),
            models.CheckConstraint(name="token_has_a_scope", condition=~Q(scopes=[])),
            models.CheckConstraint(
                name="token_ends_after_it_began", condition=Q(expires_at__gt=F("created_at"))
            ),
            models.CheckConstraint(
                name="token_hash_is_a_hash",
                condition=Q(secret_hash__regex=r"^[0-9a-f]{64}$"),  # noqa: S106
            ),
        ]

    def __str__(self) -> str:
        return f"tcr_{self.public_id}…"

    @property
    def usable(self) -> bool:
        return self.revoked_at is None and self.expires_at > timezone.now()


class AllowanceKind(models.TextChoices):
    CALLS = "calls", "calls (a quota)"
    COST = "cost", "cost (a budget)"


class AllowancePeriod(models.TextChoices):
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
    kind = models.CharField(max_length=5, choices=AllowanceKind.choices)
    period = models.CharField(max_length=5, choices=AllowancePeriod.choices)
    amount = models.DecimalField(max_digits=18, decimal_places=6)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["agent", "tool_name", "kind", "period"]
        constraints = [
            models.UniqueConstraint("agent", "tool_name", "kind", "period", name="allowance_once"),
            models.CheckConstraint(name="allowance_not_negative", condition=Q(amount__gte=0)),
            models.CheckConstraint(
                name="allowance_kind_is_known", condition=Q(kind__in=AllowanceKind.values)
            ),
            models.CheckConstraint(
                name="allowance_period_is_known", condition=Q(period__in=AllowancePeriod.values)
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
    execution = models.ForeignKey(
        "tools.Execution", on_delete=models.CASCADE, related_name="reservations"
    )
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
