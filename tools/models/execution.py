from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import F, Q
from django.db.models.functions import Now

from audit.inserts import insert_row, json_value
from tools.definitions.results import (
    FAILURES,
    FINAL,
    OPEN,
    REFUSED,
    TERMINAL,
    EventType,
    Status,
    event_for,
)
from tools.definitions.values.rates import Rate
from tools.models.agent import Agent
from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.queue import waits
from tools.models.session import Session
from tools.models.tool import ToolVersion
from tools.models.user import User


@dataclass(frozen=True, slots=True)
class Ending:
    """The columns that store an execution's result."""

    status: Status
    output: Any
    output_digest: str
    output_type: str
    observation: str
    error_code: str
    error_message: str
    error_details: dict[str, Any]
    duration_ms: float
    output_bytes: int | None
    sandbox_id: str
    metrics: dict[str, Any]
    cost: Decimal
    cached_from: UUID | None
    state_after: str
    memory: dict[str, Any]
    warnings: list[str]


MOST_PLACE = 200
AT_ONCE = 32_767  # `parked_below` of a call that resumes with any number of open calls
RETRIED_ONCE = "execution_retried_once"
UNDO = "undo:"  # prefix of the place of a call that compensates another one
EFFECT_POSSIBLE = {"effect_possible": True}  # in `error_details`
# Ends that leave open whether the effect happened: a person may resolve them, once.
UNSURE = Q(error_code="OUTCOME_UNKNOWN") | Q(error_details__contains=EFFECT_POSSIBLE)
# Executions with data that the organization's retention deletes: an output, and copies of others'
# outputs. Parameters of a composite's calls are made of these, and it is unknown which part of
# them.
KEEPS_OUTPUT = (
    Q(status=Status.SUCCESS, output_expired_at__isnull=True)
    | Q(status__in=sorted(FINAL), parameters_asked__isnull=False)
    | Q(Q(status__in=sorted(FINAL), parent__isnull=False), ~Q(parameters={}))
)
_DATABASE_FILLS = frozenset({"created_at", "queued_at"})
# A parked call, which waits until few enough of its calls are open, or for a time, may resume then
# regardless of its age; any other call may start as long as it is not too old.
_MAY_GO_ON = """
    w.parked_below IS NULL AND w.queued_at > clock_timestamp() - %(age)s
    OR w.parked_below IS NOT NULL AND NOT {waits}
"""
_CLAIM = """
    UPDATE tools_execution
    SET status = %(running)s, fence = fence + 1, worker = %(worker)s,
        attempt = CASE WHEN parked_below IS NULL THEN attempt + 1 ELSE attempt END,
        started_at = CASE WHEN composite THEN coalesce(started_at, clock_timestamp())
            ELSE clock_timestamp() END,
        lease_until = clock_timestamp() + %(lease)s
    WHERE status = %(pending)s AND id = (
        SELECT w.id FROM tools_execution w
        WHERE w.id = %(pk)s AND w.status = %(pending)s AND ({going}) AND {room}
            AND w.organization_id <> ALL(%(full)s::uuid[])
        FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING id, organization_id, user_id, agent_id, token_id, tool_name, tool_version_id,
        made_by_id, parent_id, place, depth, composite, parked_below, memory, cancelled_places,
        cancel_requested_at,
        parameters, refers_to, requested_groups, state, session_id, options, cache_key, cost,
        timeout_s, request_id, source_ip, status, fence, attempt, worker, queued_at, started_at,
        error_details,
        EXISTS (SELECT FROM tools_confirmation c WHERE c.execution_id = tools_execution.id) AS held,
        EXISTS (SELECT FROM tools_reservation r WHERE r.execution_id = tools_execution.id)
            AS reserved, %(limited)s::boolean AS limited
"""
_UNLIMITED = """
    NOT EXISTS (SELECT FROM tools_organization o
        WHERE o.id = w.organization_id AND o.max_concurrency IS NOT NULL)
    AND NOT EXISTS (SELECT FROM tools_toolversion v JOIN tools_tool t ON t.id = v.tool_id
        WHERE v.id = w.tool_version_id AND t.max_concurrency IS NOT NULL)
"""
_LIMITS = """
    SELECT e.organization_id, e.tool_name, o.max_concurrency, t.max_concurrency
    FROM tools_execution e
    JOIN tools_organization o ON o.id = e.organization_id
    JOIN tools_toolversion v ON v.id = e.tool_version_id JOIN tools_tool t ON t.id = v.tool_id
    WHERE e.id = %(pk)s AND e.status = %(pending)s
        AND (e.parked_below IS NOT NULL OR e.queued_at > clock_timestamp() - %(age)s)
"""
_ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
# Runs with the locks held, as a statement of its own, so that it sees committed claims of others.
_ROOM = """
    (%(here)s::bigint IS NULL OR %(here)s > (SELECT count(*) FROM tools_execution r
        WHERE r.organization_id = w.organization_id AND r.status = 'Running'))
    AND (%(tool)s::bigint IS NULL OR %(tool)s > (SELECT count(*) FROM tools_execution r
        WHERE r.organization_id = w.organization_id AND r.status = 'Running'
            AND r.tool_name = w.tool_name))
"""
_FINISH = """
    WITH ended AS (
    UPDATE tools_execution
    SET status = %(status)s, output = %(output)s, output_digest = %(output_digest)s,
        output_type = %(output_type)s, observation = %(observation)s,
        error_code = %(error_code)s, error_message = %(error_message)s,
        error_details = %(error_details)s, duration_ms = %(duration_ms)s,
        output_bytes = %(output_bytes)s, sandbox_id = %(sandbox_id)s, metrics = %(metrics)s,
        cost = %(cost)s, cached = %(cached_from)s::uuid IS NOT NULL, cached_from = %(cached_from)s,
        state_after = %(state_after)s, memory = %(memory)s, warnings = warnings || %(warnings)s,
        completed_at = clock_timestamp(), lease_until = NULL,
        idempotency_key = CASE WHEN %(kept)s THEN idempotency_key END
    WHERE id = %(pk)s AND fence = %(fence)s AND status = %(running)s
        AND (cancel_requested_at IS NULL OR %(status)s <> %(success)s)
    RETURNING id)
    INSERT INTO tools_executionevent (execution_id, sequence, type, message)
    SELECT ended.id, 1 + (
        SELECT coalesce(max(sequence), 0) FROM tools_executionevent WHERE execution_id = %(pk)s
    ), %(event)s, %(message)s
    FROM ended
"""

_HINT_AGAIN = """
    WITH due AS (
        SELECT w.id FROM tools_execution w
        WHERE w.status = %(pending)s AND coalesce(w.hinted_at, w.queued_at)
            < clock_timestamp() - least(60, 5 * power(2, least(w.hints, 4))) * interval '1 second'
            AND (w.parked_below IS NULL OR NOT {waits})
        ORDER BY w.queued_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE tools_execution e
    SET hints = least(e.hints + 1, 1000), hinted_at = clock_timestamp()
    FROM due WHERE e.id = due.id RETURNING e.id
"""

_ANSWER = """
    SELECT e.id, e.status, e.tool_name, e.parameters, e.output, e.observation, e.error_code,
        e.output_digest, e.output_type, e.output_expired_at, e.parameters_asked, e.refers_to,
        e.organization_id, e.error_message, e.error_details, e.started_at, e.completed_at,
        e.duration_ms, e.output_bytes,
        e.sandbox_id, e.metrics, e.warnings, e.session_id, e.state, e.state_after, e.cached,
        e.cached_from, e.cost, e.resolved_as, e.resolved_at, e.resolved_by,
        e.resolution_reason, e.parent_id, e.place, e.parked_below, v.label AS version_label
    FROM tools_execution e JOIN tools_toolversion v ON v.id = e.tool_version_id WHERE e.id = %s
"""


class ExecutionQuerySet(models.QuerySet["Execution"]):
    def accept(self, execution: "Execution") -> None:
        """Write a new row; the execution was made in memory with all its fields."""
        fields = execution._meta.local_concrete_fields
        row: dict[str, Any] = {}
        for field in fields:
            value = getattr(execution, field.attname)
            if value is not None and field.attname not in _DATABASE_FILLS:
                is_json = isinstance(field, models.JSONField)
                row[field.attname] = json_value(value) if is_json else value
        insert_row(Execution, row)

    def claim(
        self,
        pk: UUID,
        *,
        worker: str,
        lease_s: int,
        younger_than: timedelta | None = None,
        full: Sequence[UUID] = (),
    ) -> "Execution | None":
        """The row, for the one worker that moved it from pending to running; else None.

        Compare and swap in one statement, which also returns what the gates need. A row that waited
        too long, or that has no room beside what runs (`max_concurrency` of its organization and
        tool), or is of an organization that is `full`, stays as it is. Call it in the transaction
        of the claim: where there is a limit, claims wait for each other until the end of theirs.
        """
        age = timedelta(seconds=settings.EXECUTION_QUEUE_S)
        values = {
            "pk": pk,
            "pending": Status.PENDING,
            "running": Status.RUNNING,
            "worker": worker,
            "lease": timedelta(seconds=lease_s),
            "age": min(age, younger_than or age),
            "full": [*full],
        }
        return self._claimed(_UNLIMITED, values | {"limited": False}) or self._squeezed(values)

    def _squeezed(self, values: dict[str, Any]) -> "Execution | None":
        """The same with a limit on how many may run at once."""
        with connection.cursor() as cursor:
            cursor.execute(_LIMITS, values)
            found = cursor.fetchone()
            if found is None or found[2:] == (None, None):
                return None
            organization, name, here, tool = found
            place = f"toolcrib:running:{organization}"  # always locked before the tool's
            for key in [place] * (here is not None) + [f"{place}:{name}"] * (tool is not None):
                cursor.execute(_ONE_BY_ONE, [key])
        return self._claimed(_ROOM, values | {"limited": True, "here": here, "tool": tool})

    def _claimed(self, room: str, values: dict[str, Any]) -> "Execution | None":
        claim = _CLAIM.replace("{going}", _MAY_GO_ON.replace("{waits}", waits("w")))
        return next(iter(self.raw(claim.replace("{room}", room), values)), None)

    def held(self, pk: UUID, fence: int) -> "ExecutionQuerySet":
        """The row, as long as the holder of this fence still owns it."""
        return self.filter(pk=pk, fence=fence, status=Status.RUNNING)

    def finish(self, pk: UUID, fence: int, result: "Ending") -> bool:
        """True when the holder of the fence ended it; False when it had lost it meanwhile, or when
        it succeeded after it had been cancelled.

        The one terminal event is written by the same statement.
        """
        values = {field: getattr(result, field) for field in result.__dataclass_fields__}
        for column in ("output", "error_details", "metrics", "memory", "warnings"):
            values[column] = None if values[column] is None else json_value(values[column])
        with connection.cursor() as cursor:
            values |= {"pk": pk, "fence": fence, "running": Status.RUNNING}
            values |= {"success": Status.SUCCESS}
            values |= {"event": event_for(result.status), "message": result.error_message[:1000]}
            # A refusal releases its idempotency key, since its cause may be fixed.
            cursor.execute(_FINISH, values | {"kept": result.status not in REFUSED})
            return cursor.rowcount == 1

    def shown(self) -> "ExecutionQuerySet":
        """With `version_label`, and without the version's definition, which is not read there."""
        return self.annotate(version_label=F("tool_version__label"))

    def answer(self, pk: UUID) -> "Execution":
        """One row as `shown`, for a waiting request: no query is compiled."""
        return next(iter(self.raw(_ANSWER, [pk])))

    def abandoned(self) -> "ExecutionQuerySet":
        """Running rows whose worker has not renewed its lease in time."""
        return self.filter(status=Status.RUNNING, lease_until__lt=Now())

    def unresolved(self) -> "ExecutionQuerySet":
        """Ended executions whose effect is unknown and not yet resolved by a person."""
        return self.filter(UNSURE, status__in=FINAL, resolved_as="")

    def forget_keys(self, age: timedelta) -> int:
        """Make keys usable again whose calls ended so long ago; returns how many."""
        return self.filter(idempotency_key__isnull=False, completed_at__lt=Now() - age).update(
            idempotency_key=None
        )

    def at_stage(self, stage: str) -> "ExecutionQuerySet":
        """Those of one status, as it is shown to readers."""
        parked = Q(status=Status.PENDING, parked_below__isnull=False)
        if stage == Status.RUNNING:
            return self.filter(Q(status=Status.RUNNING) | parked)
        return self.filter(status=stage).exclude(parked)

    def failed(self) -> "ExecutionQuerySet":
        """Those that failed, while running or before."""
        return self.filter(status__in=sorted(FAILURES))

    def unparked(self) -> "ExecutionQuerySet":
        """Without those that wait for calls of their own."""
        return self.filter(parked_below__isnull=True)

    def waiting_longer_than(self, age: timedelta) -> "ExecutionQuerySet":
        return self.filter(status=Status.PENDING, queued_at__lt=Now() - age)

    def hint_again(self, limit: int) -> list[UUID]:
        """Waiting rows that are to be dispatched again, the oldest first.

        Each is due 5 seconds after it began to wait, then after 10, 20, 40 and each 60 more.
        """
        with connection.cursor() as cursor:
            hint = _HINT_AGAIN.replace("{waits}", waits("w"))
            cursor.execute(hint, {"pending": Status.PENDING, "limit": limit})
            return [row[0] for row in cursor.fetchall()]


class Resolution(models.TextChoices):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


class Execution(models.Model):
    """One call of one tool: the source of truth; messages on the broker only wake workers."""

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
        Agent, on_delete=models.PROTECT, null=True, blank=True, related_name="executions"
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
        Session, on_delete=models.PROTECT, null=True, blank=True, related_name="executions"
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="children",
        db_index=False,  # the constraint's serves
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
        ToolVersion, on_delete=models.PROTECT, related_name="executions"
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
    held: bool = True  # whether an approval was required; set by the claim
    reserved: bool = True  # whether it has reserved an allowance; set by the claim
    limited: bool = True  # whether others may wait for its slot; set by the claim
    rate: Rate | None = None  # of the request that made it; not stored
    objects = ExecutionQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["organization", "-created_at"], name="execution_recent"),
            models.Index(fields=["user", "-created_at"], name="execution_of_caller"),
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
                fields=["created_at"], name="execution_open", condition=Q(status__in=sorted(OPEN))
            ),
            models.Index(
                fields=["queued_at"],
                name="execution_queued",
                condition=Q(status=Status.PENDING),
            ),
            models.Index(
                fields=["organization", "-created_at"],
                name="execution_failed",
                condition=Q(status__in=sorted(FAILURES)),
            ),
            models.Index(
                fields=["organization", "tool_name", "-created_at"], name="execution_of_tool"
            ),
            models.Index(
                fields=["organization", "error_code", "-id"],
                name="execution_with_code",
                condition=~Q(error_code=""),
            ),
            models.Index(
                fields=["organization", "status", "-created_at"],
                name="execution_not_well",
                condition=Q(status__in=sorted(FINAL - {Status.SUCCESS})),
            ),
            models.Index(
                fields=["organization", "queued_at"],
                name="execution_queued_here",
                condition=Q(status=Status.PENDING),
            ),
            models.Index(
                fields=["organization", "tool_name"],
                name="execution_running_here",
                condition=Q(status=Status.RUNNING),
            ),
            models.Index(
                fields=["user", "tool_version"],
                name="execution_succeeded",
                condition=Q(status=Status.SUCCESS),
            ),
            models.Index(
                fields=["user", "tool_name", "-created_at"],
                name="execution_rated",
                condition=~Q(rated_by=""),
            ),
            models.Index(
                fields=["completed_at"],
                name="execution_keyed",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.Index(
                fields=["cache_key"],
                name="execution_waits_for_another",
                condition=Q(status=Status.PENDING) & ~Q(cache_key=""),
            ),
            models.Index(
                fields=["organization", "output_digest"],
                name="execution_names_output",
                condition=~Q(output_digest=""),
            ),
            models.Index(
                fields=["organization", "completed_at"],
                name="execution_keeps_output",
                condition=KEEPS_OUTPUT,
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
            models.UniqueConstraint(
                "organization", "user", "idempotency_key", name="execution_idempotency_key_once"
            ),
            models.UniqueConstraint(
                "session",
                name="execution_one_open_per_session",
                condition=Q(status__in=sorted(OPEN), composite=False),
            ),
            models.UniqueConstraint(
                "parent",
                "place",
                name="execution_once_per_place",
                condition=Q(parent__isnull=False),
            ),
            models.UniqueConstraint(
                "retry_of",
                name=RETRIED_ONCE,
                condition=Q(retry_of__isnull=False),
            ),
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
    def over(self) -> bool:
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
        return self.over and unsure and not self.resolved_as


_APPEND = """
    INSERT INTO tools_executionevent (execution_id, sequence, type, message)
    SELECT %(execution)s, coalesce(max(sequence), 0) + 1, %(type)s, %(message)s
    FROM tools_executionevent WHERE execution_id = %(execution)s
"""


class EventQuerySet(models.QuerySet["ExecutionEvent"]):
    def append(self, execution_id: UUID, kind: EventType, message: str) -> None:
        """Numbered by the database; concurrent events never get the same number."""
        values: dict[str, Any] = {
            "execution": execution_id,
            "type": str(kind),
            "message": message[:1000],
        }
        with connection.cursor() as cursor:
            cursor.execute(_APPEND, values)


class ExecutionEvent(models.Model):
    """What happened to an execution, in order; a reader may ask for all after a number."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="events")
    sequence = models.PositiveIntegerField()
    type = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EventType])
    message = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ["sequence"]
        constraints = [
            models.UniqueConstraint("execution", "sequence", name="event_sequence_once"),
            models.UniqueConstraint(
                "execution", name="event_terminal_once", condition=Q(type__in=sorted(TERMINAL))
            ),
            models.CheckConstraint(name="event_type_is_known", condition=Q(type__in=[*EventType])),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"
