"""Erase inputs and outputs of calls. Records stay, with commitments that reveal nothing without
them, so the log verifies as before."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.records import payloads

BATCH = 1_000
MAY_ERASE = "audit.delete_auditpayload"
_NEXT = """
SELECT p.record_id FROM audit_auditpayload p
JOIN audit_auditrecord r ON r.id = p.record_id
WHERE p.organization = %s AND p.sealed IS NOT NULL AND p.record_id > %s AND {}
ORDER BY p.record_id LIMIT %s
"""
_COUNT = """
SELECT count(*) FROM audit_auditpayload p
JOIN audit_auditrecord r ON r.id = p.record_id
WHERE p.organization = %s AND p.sealed IS NOT NULL AND {}
"""
# Also of what others wrote about a call of the agent's: the user who approved it, for instance.
_OF_AGENT_SQL = """(
    (r.actor = %s AND r.actor_kind = 'agent') OR r.execution_id IN (
        SELECT execution_id FROM audit_auditrecord
        WHERE organization = %s AND actor = %s AND actor_kind = 'agent'
            AND execution_id IS NOT NULL
    )
)"""
_ERASE = """
UPDATE audit_auditpayload
SET sealed = NULL, words = '{}', erased_at = clock_timestamp(), erased_by = %s
WHERE record_id = ANY(%s) AND sealed IS NOT NULL
"""
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class ErasureScope:
    """Whose payloads: of one execution, of an agent, or of the whole organization."""

    organization: str
    execution: UUID | None = None
    agent: str = ""
    before: datetime | None = None

    @property
    def is_whole(self) -> bool:
        return self.execution is None and not self.agent and self.before is None

    @property
    def as_details(self) -> dict[str, str]:
        named = {"execution": self.execution, "agent": self.agent, "before": self.before}
        return {name: str(value) for name, value in named.items() if value} or {"all": "payloads"}


def count_payloads(scope: ErasureScope) -> int:
    """How many payloads `erase` would erase now."""
    condition, values = _condition(scope)
    with connection.cursor() as cursor:
        cursor.execute(_COUNT.format(condition), (scope.organization, *values))
        return int(cursor.fetchone()[0])


def erase_payloads(scope: ErasureScope, *, by: Actor, reason: str) -> int:
    """How many were erased. Safe to repeat, also after it was interrupted.

    With a whole organization goes its key, and the file that opens the key: a backup of the
    database opens none of it. Of anything less a backup still holds copies that open.
    """
    _record_erasure(scope, Outcome.STARTED, by, reason)
    if scope.is_whole:
        payloads.erase_key(scope.organization)
    done = erase_where(scope.organization, *_condition(scope), by=by.name)
    _record_erasure(scope, Outcome.SUCCESS, by, reason, done)
    return done


def erase_where(organization: str, condition: str, values: list[Any], *, by: str) -> int:
    """Batch by batch: no transaction is long, and none delays writers of evidence."""
    done, last = 0, _FIRST
    while found := _next_batch(organization, last, condition, values):
        done += _erase_batch(found, by)
        last = found[-1]
    return done


def exists_where(organization: str, condition: str, values: list[Any]) -> bool:
    return bool(_next_batch(organization, _FIRST, condition, values))


def _condition(scope: ErasureScope) -> tuple[str, list[Any]]:
    conditions, values = list[str](), list[Any]()
    if scope.execution:
        conditions.append("r.execution_id = %s")
        values.append(scope.execution)
    if scope.agent:
        conditions.append(_OF_AGENT_SQL)
        values += [scope.agent, scope.organization, scope.agent]
    conditions.append("r.occurred_at < %s")
    values.append(scope.before or timezone.now())  # not what comes in while it is at work
    return " AND ".join(conditions), values


def _next_batch(organization: str, last: UUID, condition: str, values: list[Any]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(_NEXT.format(condition), (organization, last, *values, BATCH))
        return [row[0] for row in cursor.fetchall()]


def _erase_batch(ids: list[UUID], by: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_ERASE, [by[:200], ids])
        return cursor.rowcount


def _record_erasure(
    scope: ErasureScope, outcome: Outcome, by: Actor, reason: str, done: int | None = None
) -> None:
    record(
        Event.AUDIT_ERASE,
        by=by,
        outcome=outcome,
        subject="payloads",
        execution_id=scope.execution,
        details={"of": scope.as_details, "why": reason}
        | ({} if done is None else {"erased": done}),
    )
