"""Executions."""

from decimal import Decimal
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now

from tools.definitions.results import (
    FAILURES,
    FINAL,
    OPEN,
    Rate,
    Status,
)
from tools.models.agent import Agent
from tools.models.callers import Account
from tools.models.execution_queryset import (
    KEEPS_DATA,
    MOST_PLACE,
    UNSURE,
    ExecutionQuerySet,
)
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.session import Session
from tools.models.tool import ToolVersion
from tools.models.user import User


class Resolution(models.TextChoices):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


class Execution(models.Model):
    """One call of one tool: the source of truth; messages on the broker only wake workers.

    The table is partitioned by month, by ranges of ids: what must be unique has a table of its own,
    `ExecutionKey`. docs/decisions/0029-executions-by-month.md
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization,
        on_delete=models.PROTECT,
        related_name="executions",
        db_index=False,  # the index of what is recent serves
    )
    user = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        related_name="executions",
        db_index=False,  # the index of a caller's serves
        help_text="Who called.",
    )
    agent = models.ForeignKey(
        Agent,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="executions",
        db_index=False,  # its service account is the caller
    )
    token_id = models.UUIDField(null=True, blank=True)
    made_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="executions_made",
        db_index=False,  # the index of calls from the playground serves
        help_text="Who made it at the playground, as themselves or in the name of its agent.",
    )
    session = models.ForeignKey(
        Session,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="executions",
        db_index=False,  # a smaller one leaves out the calls without a session
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="children",
        db_index=False,  # a smaller one leaves out the calls without a parent
        help_text="The composite call that made this one.",
    )
    place = models.CharField(
        max_length=MOST_PLACE, blank=True, help_text="By which its parent knows it."
    )
    retry_of = models.UUIDField(
        null=True, blank=True, help_text="The call that failed, where this is that call once more."
    )
    depth = models.PositiveSmallIntegerField(default=0, help_text="How many parents it has.")
    tool_name = models.CharField(max_length=128)
    tool_version = models.ForeignKey(
        ToolVersion, on_delete=models.PROTECT, related_name="executions", db_index=False
    )
    parameters = models.JSONField(help_text="What it runs with: references are resolved.")
    parameters_asked = models.JSONField(
        null=True, blank=True, help_text="As they were sent, where they hold references."
    )
    refers_to = models.JSONField(
        default=list, blank=True, help_text="Which outputs stand in its parameters, and where."
    )
    requested_groups = ArrayField(models.CharField(max_length=100), null=True, blank=True)
    state = models.CharField(max_length=100)
    timeout_s = models.FloatField()
    request_id = models.CharField(max_length=64, blank=True)
    source_ip = models.CharField(max_length=45, blank=True)
    idempotency_key = models.CharField(max_length=255, null=True, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)

    options = models.JSONField(
        default=dict, blank=True, help_text="What the caller tightened; bound by a confirmation."
    )
    rated_by = models.CharField(
        max_length=8, blank=True, help_text="Which counter let the call pass: redis or postgres."
    )
    cache_key = models.CharField(max_length=64, blank=True)
    cached = models.BooleanField(default=False)
    cached_from = models.UUIDField(null=True, blank=True, help_text="The execution that ran.")
    cost = models.DecimalField(max_digits=18, decimal_places=6, default=Decimal(0))

    status = models.CharField(max_length=20, choices=[(s.value, s.value) for s in Status])
    unsuccessful = models.GeneratedField(
        expression=Case(When(status__in=sorted(FINAL - {Status.SUCCESS}), then=F("status"))),
        output_field=models.CharField(max_length=20, null=True),
        db_persist=True,
        help_text="Its status where it ended without success: what indexes may have of it.",
    )
    fence = models.PositiveIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    worker = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    queued_at = models.DateTimeField(
        db_default=Now(), help_text="Since when it may begin: later than made where it was held."
    )
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    hints = models.PositiveSmallIntegerField(
        default=0, help_text="How often workers were told of it again."
    )
    hinted_at = models.DateTimeField(null=True, blank=True)
    stumbles = models.PositiveSmallIntegerField(
        default=0, help_text="How often a worker failed before it could begin."
    )

    composite = models.BooleanField(default=False, help_text="It makes calls of its own.")
    parked_below = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="It waits until fewer of its calls than that are open.",
    )
    wake_at = models.DateTimeField(
        null=True, blank=True, help_text="When a parked one goes on in any case."
    )
    memory = models.JSONField(
        default=dict, blank=True, help_text="What its turns know that stands in no row of a call."
    )
    cancelled_places = ArrayField(
        models.CharField(max_length=MOST_PLACE),
        default=list,
        blank=True,
        help_text="Calls of its own that are not to begin any more.",
    )

    state_after = models.CharField(max_length=100, blank=True)
    output = models.JSONField(null=True, blank=True)
    output_digest = models.CharField(
        max_length=71, blank=True, help_text="Of an output that is stored outside the row."
    )
    output_type = models.CharField(max_length=40, blank=True)
    output_expired_at = models.DateTimeField(
        null=True, blank=True, help_text="When the organization's time for outputs was over."
    )
    observation = models.TextField(blank=True)
    error_code = models.CharField(max_length=60, blank=True)
    error_message = models.TextField(blank=True)
    error_details = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    duration_ms = models.FloatField(null=True, blank=True)
    output_bytes = models.BigIntegerField(null=True, blank=True)
    sandbox_id = models.CharField(max_length=60, blank=True)
    metrics = models.JSONField(default=dict, blank=True)

    resolved_as = models.CharField(
        max_length=14,
        choices=Resolution.choices,
        blank=True,
        help_text="What a person found out about an outcome that was not known.",
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=200, blank=True)
    resolution_reason = models.CharField(max_length=500, blank=True)

    version_label: str  # where a query or the execution pipeline has set it
    rate: Rate | None = None  # of the request that made it; not stored
    # What the claim reads with the row.
    account: Account | None = None  # of its caller
    halted_reason: str | None = None  # of its organization's audit log
    held: bool = True  # whether an approval was required
    reserved: bool = True  # whether it has reserved an allowance
    limited: bool = True  # whether others may wait for its slot
    organization_room: int | None = None  # how many calls may run at once
    tool_room: int | None = None
    session_closed: bool = False
    session_state: str | None = None
    session_pinned: bool = True  # whether its session pins versions
    objects = ExecutionQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        # None has a key or a condition with a column that changes when an ordinary call is claimed
        # or succeeds, so that these updates stay in place (HOT). What is open has a table of its
        # own. docs/decisions/0025-open-executions-apart.md
        indexes = [
            models.Index(fields=["organization", "-created_at"], name="execution_recent"),
            models.Index(fields=["user", "-created_at"], name="execution_of_caller"),
            models.Index(
                fields=["organization", "tool_name", "-created_at"], name="execution_of_tool"
            ),
            models.Index(
                fields=["user", "tool_version"],
                name="execution_not_unsuccessful",
                condition=Q(unsuccessful__isnull=True),
            ),
            models.Index(
                fields=["organization", "created_at"],
                name="execution_keeps_data",
                condition=KEEPS_DATA,
            ),
            models.Index(
                fields=["session"],
                name="execution_of_session",
                condition=Q(session__isnull=False),
            ),
            models.Index(
                fields=["parent", "place"],
                name="execution_of_parent",
                condition=Q(parent__isnull=False),
            ),
            models.Index(
                fields=["made_by", "-created_at"],
                name="execution_at_playground",
                condition=Q(made_by__isnull=False),
            ),
            models.Index(
                fields=["organization", "-created_at"],
                name="execution_of_many",
                condition=Q(composite=True, parent__isnull=True),
            ),
            models.Index(
                fields=["organization", "-created_at"],
                name="execution_failed",
                condition=Q(unsuccessful__in=sorted(FAILURES)),
            ),
            models.Index(
                fields=["organization", "unsuccessful", "-created_at"],
                name="execution_unsuccessful",
                condition=Q(unsuccessful__isnull=False),
            ),
            models.Index(
                fields=["organization", "error_code", "-id"],
                name="execution_with_code",
                condition=~Q(error_code=""),
            ),
            models.Index(
                fields=["organization", "output_digest"],
                name="execution_names_output",
                condition=~Q(output_digest=""),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="execution_status_is_known", condition=Q(status__in=[*Status])
            ),
            models.CheckConstraint(
                name="execution_over_means_completed",
                condition=Q(status__in=sorted(FINAL), completed_at__isnull=False)
                | Q(status__in=sorted(OPEN), completed_at__isnull=True),
            ),
            models.CheckConstraint(
                name="execution_running_means_leased",
                condition=Q(
                    status=Status.RUNNING,
                    lease_until__isnull=False,
                    started_at__isnull=False,
                    fence__gte=1,
                )
                | (~Q(status=Status.RUNNING) & Q(lease_until__isnull=True)),
            ),
            models.CheckConstraint(
                name="execution_output_means_success",
                condition=Q(output__isnull=True, output_digest="") | Q(status=Status.SUCCESS),
            ),
            models.CheckConstraint(
                name="execution_output_in_one_place",
                condition=Q(output_digest="", output_type="")
                | (~Q(output_type="") & ~Q(output_digest="") & Q(output__isnull=True)),
            ),
            models.CheckConstraint(
                name="execution_expired_has_no_output",
                condition=Q(output_expired_at__isnull=True)
                | Q(
                    status=Status.SUCCESS,
                    output__isnull=True,
                    output_digest="",
                    observation="",
                    parameters_asked__isnull=True,
                ),
            ),
            models.CheckConstraint(
                name="execution_success_has_no_error",
                condition=~Q(status=Status.SUCCESS) | Q(error_code=""),
            ),
            models.CheckConstraint(name="execution_timeout_positive", condition=Q(timeout_s__gt=0)),
            models.CheckConstraint(
                name="execution_of_a_parent_has_a_place",
                condition=Q(parent__isnull=True, place="", depth=0)
                | (Q(parent__isnull=False, depth__gte=1) & ~Q(place="")),
            ),
            models.CheckConstraint(
                name="execution_parked_means_composite",
                condition=Q(parked_below__isnull=True) | Q(composite=True),
            ),
            models.CheckConstraint(
                name="execution_resolved_where_unknown",
                condition=Q(resolved_as="", resolved_at__isnull=True, resolved_by="")
                | (
                    Q(resolved_as__in=Resolution.values, resolved_at__isnull=False)
                    & UNSURE
                    & ~Q(resolved_by="")
                ),
            ),
            models.CheckConstraint(name="execution_cost_not_negative", condition=Q(cost__gte=0)),
            models.CheckConstraint(
                name="execution_cached_names_its_source",
                condition=Q(cached=False) | Q(cached_from__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.status}"

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def parked(self) -> bool:
        """Whether it has begun, and waits for calls of its own."""
        return self.status == Status.PENDING and self.parked_below is not None

    @property
    def stage(self) -> str:
        """Its status as it is shown to readers: what waits for its own calls is running."""
        return Status.RUNNING if self.parked else self.status

    @property
    def parentage(self) -> dict[str, Any]:
        """For evidence; empty where its caller made it directly."""
        if self.parent_id is None:
            return {}
        return {"parent": {"execution_id": str(self.parent_id), "place": self.place}}

    @property
    def retried(self) -> dict[str, Any]:
        """For evidence; empty where it is no retry."""
        return {"retry_of": str(self.retry_of)} if self.retry_of else {}

    @property
    def asked(self) -> Any:
        """Its parameters as they were sent: with references unresolved."""
        return self.parameters if self.parameters_asked is None else self.parameters_asked

    @property
    def references(self) -> dict[str, Any]:
        """For evidence; nothing where there are none."""
        return {"references": self.refers_to} if self.refers_to else {}

    @property
    def effect_possible(self) -> bool:
        """Whether it, or an earlier attempt of it, may have had an effect with an unknown end."""
        return self.error_details.get("effect_possible") is True

    @property
    def unresolved(self) -> bool:
        """One of those that the query of this name finds."""
        unsure = self.error_code == "OUTCOME_UNKNOWN" or self.effect_possible
        return self.is_final and unsure and not self.resolved_as
