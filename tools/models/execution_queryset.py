"""The statements of executions: acceptance, claim, result, and what is listed of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.db import connection, models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from audit.inserts import InsertRow, SqlValue, fetch_one, inserts_for_each, json_value
from audit.partitions import first_id, partition_of_month
from tools.definitions.results import (
    FAILURES,
    FINAL,
    OPEN,
    REFUSED,
    EventType,
    Status,
    event_for,
)
from tools.models.advisory_locks import take_lock
from tools.models.callers import account_of
from tools.models.ids import made_before
from tools.models.pipeline_sql import (
    ACCEPT,
    ANSWER,
    CALL_FACTS,
    CANDIDATE,
    FINISH,
    NO_EVENT,
    ROOM,
    START_EVENT,
    TAKE,
    UNSTARTED_END_EVENT,
    waiting_condition,
)
from tools.models.session import Session

if TYPE_CHECKING:
    from tools.models.execution import Execution


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

    def apply(self, execution: "Execution", completed_at: datetime) -> None:
        """To what is in memory, as the statement that stored it has done to the row."""
        for name in self.__dataclass_fields__:
            if name != "warnings":
                setattr(execution, name, getattr(self, name))
        execution.warnings = [*execution.warnings, *self.warnings]
        execution.cached, execution.completed_at = self.cached_from is not None, completed_at
        execution.lease_until = None


MOST_PLACE = 200
AT_ONCE = 32_767  # `parked_below` of a call that resumes with any number of open calls
_BATCH = 1_000
_CLOCKS = timedelta(days=1)  # between processes that make ids
RETRIED_ONCE = "execution_retried_once"
UNDO = "undo:"  # prefix of the place of a call that compensates another one
EFFECT_POSSIBLE = {"effect_possible": True}  # in `error_details`
# Ends that leave open whether the effect happened: a person may resolve them, once.
UNSURE = Q(error_code="OUTCOME_UNKNOWN") | Q(error_details__contains=EFFECT_POSSIBLE)
# Executions with data that the organization's retention deletes when they are over: an output, and
# copies of others' outputs. Parameters of a composite's calls are made of these, and it is unknown
# which part of them.
KEEPS_DATA = (
    Q(unsuccessful__isnull=True, output_expired_at__isnull=True)
    | Q(parameters_asked__isnull=False)
    | Q(Q(parent__isnull=False), ~Q(parameters={}))
)
_DATABASE_FILLS = frozenset({"created_at", "queued_at"})
_CANDIDATE_COLUMNS = frozenset({
    "id", "organization_id", "user_id", "agent_id", "token_id", "tool_name", "tool_version_id",
    "made_by_id", "parent_id", "place", "depth", "composite", "parked_below", "memory",
    "cancelled_places", "cancel_requested_at", "parameters", "refers_to", "requested_groups",
    "state", "session_id", "options", "cache_key", "cost", "timeout_s", "request_id", "source_ip",
    "status", "fence", "attempt", "worker", "queued_at", "started_at", "created_at",
    "error_details", "warnings",
})  # fmt: skip
_FACTS = (
    "organization_room", "tool_room", "held", "reserved", "session_closed", "session_state",
    "session_pinned", "halted_reason",
)  # fmt: skip
_HINT_AGAIN = """
    WITH due AS (
        SELECT w.id FROM tools_openexecution o JOIN tools_execution w ON w.id = o.execution_id
        WHERE o.status = %(pending)s AND w.status = %(pending)s
            AND coalesce(w.hinted_at, w.queued_at) < clock_timestamp()
                - least(60, 5 * power(2, least(w.hints, 4))) * interval '1 second'
            AND (w.parked_below IS NULL OR NOT {waits})
        ORDER BY o.queued_at LIMIT %(limit)s FOR NO KEY UPDATE OF w SKIP LOCKED
    )
    UPDATE tools_execution e
    SET hints = least(e.hints + 1, 1000), hinted_at = clock_timestamp()
    FROM due WHERE e.id = due.id RETURNING e.id
"""


@cache
def _candidate_columns(model: type["Execution"]) -> tuple[tuple[str, bool], ...]:
    """In the order of the model's fields, and whether each is JSON."""
    return tuple(
        (field.attname, isinstance(field, models.JSONField))
        for field in model._meta.concrete_fields
        if field.attname in _CANDIDATE_COLUMNS
    )


@cache
def _candidate_statement(model: type["Execution"], table: str) -> str:
    columns = ", ".join(f"w.{name}" for name, _ in _candidate_columns(model))
    return CANDIDATE.filled(table=table, columns=columns)


@cache
def _insert_columns(model: type["Execution"]) -> tuple[tuple[str, bool], ...]:
    """Those that the database does not fill, and whether each is JSON."""
    fields = model._meta.local_concrete_fields
    return tuple(
        (field.attname, isinstance(field, models.JSONField))
        for field in fields
        if field.attname not in _DATABASE_FILLS and not field.generated
    )


_SESSION_COLUMNS = (
    "id", "organization_id", "user_id", "agent_id", "groups", "state", "entered_at", "created_at",
    "closed_at",
)  # fmt: skip


def _table_of(pk: UUID) -> str:
    """Where the row is, if it is of this month: its partition is planned for once, and never
    dropped meanwhile."""
    today = datetime.now(UTC)
    month = partition_of_month("tools_execution", today.year, today.month)
    if month is None or month.first is None or month.end is None:
        return "tools_execution"
    return month.name if month.first <= pk < month.end else "tools_execution"


class ExecutionQuerySet(models.QuerySet["Execution"]):
    def call_facts(
        self, *, organization_id: UUID, user_id: UUID, key: str | None, session_id: UUID | None
    ) -> tuple[UUID | None, Session | None, UUID | None, bool]:
        """The caller's execution of that idempotency key; their session, its call that is open, and
        whether it pins versions."""
        found = fetch_one(
            CALL_FACTS.text,
            {
                "organization": organization_id,
                "user": user_id,
                "key": key,
                "session": session_id,
            },
        )
        if found is None:
            raise LookupError("the statement has one row always")
        earlier, open_execution, pinned, *columns = found
        session = Session.from_db(self.db, _SESSION_COLUMNS, columns) if columns[0] else None
        return earlier, session, open_execution, pinned

    def insert_of(self, execution: "Execution") -> InsertRow:
        """The insert of a new row, which was made in memory with all its fields."""
        row: dict[str, Any] = {}
        for column, is_json in _insert_columns(self.model):
            value = getattr(execution, column)
            if value is not None:
                row[column] = json_value(value) if is_json else value
        return self.model, row

    def accept(
        self,
        execution: "Execution",
        belonging: Sequence[InsertRow],
        *,
        conditions: Sequence[str] = (),
        reservation: str = "",
        refused: str = "false",
        parameters: Mapping[str, Any] = MappingProxyType({}),
    ) -> bool:
        """Write a new row and what belongs to it by one statement; one that is Running begins with
        it. False, and nothing is written, where a condition does not hold.

        `reservation` are the parts that come first, each once for each row of `accountable`, and
        `refused` an expression that raises where one of them is not to stay.
        """
        model, row = self.insert_of(execution)
        if execution.status == Status.RUNNING:
            lease = f"clock_timestamp() + interval '{settings.EXECUTION_LEASE_S:d} seconds'"
            row = {
                **row,
                "started_at": SqlValue("clock_timestamp()"),
                "lease_until": SqlValue(lease),
            }
        parts, values = inserts_for_each(
            "accountable", [(model, row), *belonging], "created_at, started_at"
        )
        where = " AND ".join(conditions) or "true"
        statement = ACCEPT.filled(
            conditions=where, reservation=reservation, rows=parts, refused=refused
        )
        found = fetch_one(statement, values | dict(parameters))
        if found is None:
            return False
        execution.created_at = execution.queued_at = found[0]
        execution.started_at = found[1]
        return True

    def candidate(
        self, pk: UUID, *, younger_than: timedelta | None = None, full: Sequence[UUID] = ()
    ) -> "Execution | None":
        """The row that waits, with what its gates ask about; it is to be taken by `take`.

        None for one that waited too long, has to wait, or is of an organization that is `full`.
        """
        age = timedelta(seconds=settings.EXECUTION_QUEUE_S)
        parameters = {
            "pk": pk,
            "pending": Status.PENDING,
            "age": min(age, younger_than or age),
            "full": [*full],
        }
        found = fetch_one(_candidate_statement(self.model, _table_of(pk)), parameters)
        if found is None:
            return None
        columns = _candidate_columns(self.model)
        width = len(columns)
        values = [
            json.loads(value) if is_json else value
            for (_, is_json), value in zip(columns, found[:width], strict=True)
        ]
        names = [name for name, _ in columns]
        execution = self.model.from_db(self.db, names, values)
        for name, value in zip(_FACTS, found[width:], strict=False):
            setattr(execution, name, value)
        execution.limited = (execution.organization_room, execution.tool_room) != (None, None)
        execution.account = account_of(found[width + len(_FACTS) :])
        return execution

    def take(
        self,
        execution: "Execution",
        evidence: Sequence[InsertRow] = (),
        *,
        worker: str,
        lease_s: int,
    ) -> bool:
        """Move a candidate from pending to running, for the one worker that is first, with the
        evidence of its start. False, and nothing is written, where the row is not as it was read,
        or has no room beside what runs (`max_concurrency` of its organization and tool): where
        there is such a limit, call it in the transaction of the claim.
        """
        room, values = "true", {"pk": execution.pk, "fence": execution.fence, "worker": worker}
        values |= {"pending": Status.PENDING, "running": Status.RUNNING}
        values |= {"lease": timedelta(seconds=lease_s)}
        if execution.limited:
            room = ROOM
            values |= self._lock_rooms(execution)
        parts, evidence_values = inserts_for_each("taken", evidence)
        if evidence:
            values["event"] = EventType.STARTED
        statement = TAKE.filled(
            table=_table_of(execution.pk),
            room=room,
            evidence=parts,
            event=START_EVENT if evidence else NO_EVENT,
        )
        found = fetch_one(statement, values | evidence_values)
        if found is None:
            return False
        execution.status, execution.worker = Status.RUNNING, worker
        execution.fence += 1
        execution.attempt += execution.parked_below is None
        execution.started_at, execution.lease_until = found[0], found[1]
        execution.cancel_requested_at, execution.cancelled_places = found[2], found[3]
        return True

    def _lock_rooms(self, execution: "Execution") -> dict[str, Any]:
        """Claims with a limit on how many may run at once wait for each other."""
        here, tool = execution.organization_room, execution.tool_room
        place = f"toolcrib:running:{execution.organization_id}"  # always locked before the tool's
        if here is not None:
            take_lock(place)
        if tool is not None:
            take_lock(f"{place}:{execution.tool_name}")
        return {"here": here, "tool": tool}

    def held(self, pk: UUID, fence: int) -> "ExecutionQuerySet":
        """The row, as long as the holder of this fence still owns it."""
        return self.filter(pk=pk, fence=fence, status=Status.RUNNING)

    def finish(
        self,
        pk: UUID,
        fence: int,
        result: "Ending",
        evidence: Sequence[InsertRow] = (),
        *,
        started: bool = True,
        settlement: str = "",
        reached: str = "NULL",
        parameters: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, ...] | None:
        """When the holder of the fence ended it, and what `reached` says; None when it had lost
        it meanwhile, or when it succeeded after it had been cancelled.

        Evidence of the end is written by the same statement, or nothing is. `started` is whether
        the execution has an event of its start. `settlement` are the parts that come first, each
        for the row of `ended`.
        """
        values = {field: getattr(result, field) for field in result.__dataclass_fields__}
        for column in ("output", "error_details", "metrics", "memory", "warnings"):
            values[column] = None if values[column] is None else json_value(values[column])
        parts, evidence_values = inserts_for_each("ended", evidence)
        values |= evidence_values | {"pk": pk, "fence": fence, "running": Status.RUNNING}
        values |= {"success": Status.SUCCESS}
        # A refusal releases its idempotency key, since its cause may be fixed.
        values["kept"] = result.status not in REFUSED
        if not started:
            said = result.error_message[:1000]
            values |= {"event": event_for(result.status), "message": said}
        statement = FINISH.filled(
            table=_table_of(pk),
            settlement=settlement,
            evidence=parts,
            event="" if started else UNSTARTED_END_EVENT,
            reached=reached,
        )
        return fetch_one(statement, values | dict(parameters))

    def shown(self) -> "ExecutionQuerySet":
        """With `version_label`, and without the version's definition, which is not read there."""
        return self.annotate(version_label=F("tool_version__label"))

    def answer(self, pk: UUID) -> "Execution":
        """One row as `shown`, for a waiting request: no query is compiled."""
        return next(iter(self.raw(ANSWER.filled(table=_table_of(pk)), {"pk": pk})))

    def open(self, *statuses: Status) -> "ExecutionQuerySet":
        """Those that have not ended, or that have one of these statuses."""
        if not statuses:
            return self.filter(open__isnull=False)
        return self.filter(open__status__in=sorted(statuses), status__in=sorted(statuses))

    def abandoned(self) -> "ExecutionQuerySet":
        """Running rows whose worker has not renewed its lease in time."""
        return self.open(Status.RUNNING).filter(lease_until__lt=Now())

    def unresolved(self) -> "ExecutionQuerySet":
        """Ended executions whose effect is unknown and not yet resolved by a person."""
        return self.filter(UNSURE, status__in=FINAL, resolved_as="")

    def forget_keys(self, age: timedelta) -> int:
        """Make keys usable again whose calls ended so long ago; returns how many.

        They are found by their ids; what a clock that is wrong by more than an hour made is
        forgotten later.
        """
        over = Now() - age
        with_keys = self.filter(
            keys__idempotency_key__isnull=False,
            keys__execution__lt=first_id(timezone.now() - age + timedelta(hours=1)),
            created_at__lt=over,
            completed_at__lt=over,
        )
        count = 0
        while due := list(with_keys.values_list("pk", flat=True)[:_BATCH]):
            count += self.filter(pk__in=due).update(idempotency_key=None)
        return count

    def at_stage(self, stage: str) -> "ExecutionQuerySet":
        """Those of one status, as it is shown to readers."""
        if stage == Status.SUCCESS:
            return self.filter(status=stage)
        if stage not in OPEN:
            return self.filter(unsuccessful=stage)
        parked = Q(open__status=Status.PENDING, open__parked_below__isnull=False)
        if stage == Status.RUNNING:
            return self.open().filter(Q(open__status=Status.RUNNING) | parked)
        return self.open(Status(stage)).unparked()

    def children_of(self, *parents: UUID) -> "ExecutionQuerySet":
        """Those that these composite calls made: they are younger, so months before them are not
        looked into."""
        if not parents:
            return self.none()
        return self.filter(parent__in=parents, pk__gt=made_before(min(parents), _CLOCKS))

    def failed(self) -> "ExecutionQuerySet":
        """Those that failed, while running or before."""
        return self.filter(unsuccessful__in=sorted(FAILURES))

    def unparked(self) -> "ExecutionQuerySet":
        """Without those that wait for calls of their own."""
        return self.filter(parked_below__isnull=True)

    def waiting_longer_than(self, age: timedelta) -> "ExecutionQuerySet":
        return self.open(Status.PENDING).filter(open__queued_at__lt=Now() - age)

    def hint_again(self, limit: int) -> list[UUID]:
        """Waiting rows that are to be dispatched again, the oldest first.

        Each is due 5 seconds after it began to wait, then after 10, 20, 40 and each 60 more.
        """
        with connection.cursor() as cursor:
            hint = _HINT_AGAIN.replace("{waits}", waiting_condition("w"))
            cursor.execute(hint, {"pending": Status.PENDING, "limit": limit})
            return [row[0] for row in cursor.fetchall()]
