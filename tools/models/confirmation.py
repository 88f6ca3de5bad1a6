"""Calls awaiting approval."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tools.models.agent import Agent
from tools.models.execution import Execution
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User


class ConfirmationStatus(models.TextChoices):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void", "void: something it was bound to has changed"


class Confirmation(models.Model):
    """A held execution. `bound_hash` covers everything that would run; single use."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="confirmations"
    )
    execution = models.OneToOneField(
        Execution, on_delete=models.PROTECT, related_name="confirmation"
    )
    covers = models.JSONField(
        default=dict,
        blank=True,
        help_text="Of a batch: the tools of its calls that the consent is good for, each with the"
        " version that was shown.",
    )
    bound_hash = models.CharField(max_length=64)
    reasons = models.JSONField(help_text="Why it is asked for, as texts.")
    approvals_needed = models.PositiveSmallIntegerField(default=1)
    status = models.CharField(
        max_length=8, choices=ConfirmationStatus.choices, default=ConfirmationStatus.PENDING
    )
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    reminded_at = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    spent_at = models.DateTimeField(null=True, blank=True, help_text="When its execution began.")

    class Meta:
        ordering = ["-created_at"]
        permissions = [("decide_confirmation", "Can approve and reject held calls")]
        indexes = [
            models.Index(
                fields=["organization", "-created_at"],
                name="confirmation_waiting",
                condition=Q(status="pending"),
            )
        ]
        constraints = [
            models.CheckConstraint(
                name="confirmation_status_is_known",
                condition=Q(status__in=ConfirmationStatus.values),
            ),
            models.CheckConstraint(
                name="confirmation_hash_is_sha256",
                condition=Q(bound_hash__regex=r"^[0-9a-f]{64}$"),
            ),
            models.CheckConstraint(
                name="confirmation_needs_one_or_two",
                condition=Q(approvals_needed__in=(1, 2)),
            ),
            models.CheckConstraint(
                name="confirmation_spent_means_approved",
                condition=Q(spent_at__isnull=True) | Q(status=ConfirmationStatus.APPROVED),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.status}"


class ConfirmationDecision(models.Model):
    """One person's decision on one confirmation."""

    id = models.BigAutoField(primary_key=True)
    confirmation = models.ForeignKey(
        Confirmation, on_delete=models.PROTECT, related_name="decisions"
    )
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="decisions")
    approved = models.BooleanField()
    reason = models.CharField(max_length=1000, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint("confirmation", "user", name="one_decision_a_person")
        ]

    def __str__(self) -> str:
        return f"{self.user} {'yes' if self.approved else 'no'}"


class ConfirmationRule(models.Model):
    """A rule for which calls need an approval, beyond their tools' own requirement. Every given
    field must match."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="confirmation_rules"
    )
    name = models.CharField(max_length=100)
    enabled = models.BooleanField(default=True)
    tool_name = models.CharField(max_length=128, blank=True)
    group_name = models.CharField(max_length=100, blank=True)
    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, null=True, blank=True, related_name="confirmation_rules"
    )
    min_cost = models.DecimalField(max_digits=18, decimal_places=6, null=True, blank=True)
    side_effects = models.BooleanField(
        default=False, help_text="Only calls of tools that may have side effects."
    )
    first_use = models.BooleanField(
        default=False, help_text="Only while the agent has never used the tool with success."
    )
    approvals_needed = models.PositiveSmallIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="confirmation_rule_name_once"),
            models.CheckConstraint(
                name="confirmation_rule_needs_one_or_two",
                condition=Q(approvals_needed__in=(1, 2)),
            ),
        ]

    def __str__(self) -> str:
        return self.name
