"""Missing payloads: a log's records commit to them, and no erasure of them is on record.

An erasure is on record before it begins, also one by retention. A row proves nothing: an attacker
who has only the database can empty it, and can forge none of those records.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from audit.events import Event
from audit.log.leaves import body_sql
from audit.records import payloads
from audit.records.payloads import Erased
from audit.verification.chunks import Mac

Ask = Callable[..., list[Any]]
Gone = tuple[int | None, str]
ERASED_WITHIN = timedelta(hours=1)  # what came in while an erasure was at work
_MOST = 1000
_NEVER = datetime(1, 1, 2, tzinfo=UTC)
_COMMITTED = """r.organization = %s AND strpos(r.details::text, '_commitment":"sha256:') > 0"""
_LOST = f"""
SELECT l.index, r.id FROM audit_auditrecord r LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE {_COMMITTED} AND NOT EXISTS (SELECT FROM audit_auditpayload p WHERE p.record_id = r.id)
ORDER BY r.id LIMIT {_MOST}
"""  # noqa: S608
_TOLD = f"""
SELECT convert_to({body_sql("r")}, 'UTF8'), r.mac, r.occurred_at FROM audit_auditrecord r
WHERE r.organization = %s AND r.code IN ('{Event.AUDIT_ERASE}', '{Event.AUDIT_RETENTION}')
    AND r.subject = 'payloads'
"""  # noqa: S608
# As `audit.records.erasure` finds what is an agent's.
_EMPTIED = f"""
SELECT l.index, r.id FROM audit_auditrecord r JOIN audit_auditpayload p ON p.record_id = r.id
LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE r.organization = %s AND p.sealed IS NULL AND r.occurred_at >= %s
    AND (r.execution_id IS NULL OR r.execution_id <> ALL(%s::uuid[]))
    AND NOT EXISTS (
        SELECT FROM unnest(%s::text[], %s::timestamptz[]) AS told(agent, until)
        WHERE r.occurred_at < told.until AND (
            (r.actor_kind = 'agent' AND r.actor = told.agent) OR EXISTS (
                SELECT FROM audit_auditrecord a
                WHERE a.execution_id = r.execution_id AND a.organization = r.organization
                    AND a.actor_kind = 'agent' AND a.actor = told.agent
            )
        )
    )
ORDER BY r.id LIMIT {_MOST}
"""  # noqa: S608
_OLDEST = """
SELECT l.index, r.id FROM audit_auditrecord r JOIN audit_auditpayload p ON p.record_id = r.id
LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE r.organization = %s AND p.sealed IS NOT NULL AND r.occurred_at >= %s
ORDER BY r.occurred_at, r.id LIMIT 1
"""


@dataclass(slots=True)
class _ErasedPayloads:
    """What was erased, as genuine records say: everything before a time, calls, and agents'."""

    before: datetime = _NEVER
    executions: list[UUID] = field(default_factory=list)
    agents: dict[str, datetime] = field(default_factory=dict)

    def add(self, body: dict[str, Any], at: datetime) -> None:
        said = body["details"]
        scope = said.get("of", said)
        until = _moment(scope.get("before")) or at + ERASED_WITHIN
        if "execution" in scope:
            self.executions.append(UUID(body["execution_id"]))
        elif "agent" in scope:
            name = scope["agent"]
            self.agents[name] = max(until, self.agents.get(name, _NEVER))
        else:
            self.before = max(until, self.before)


def gone(ask: Ask, name: str, mac: Mac | None) -> Iterator[Gone]:
    """Without the key of macs erasures cannot be checked, and only missing rows are reported."""
    for index, record_id in ask(_LOST, name):
        yield index, f"the payload of the record {record_id} is gone"
    if mac is None:
        return
    told = _told(ask(_TOLD, name), mac)
    agents, until = [*told.agents], [*told.agents.values()]
    emptied = ask(_EMPTIED, name, told.before, told.executions, agents, until)
    for index, record_id in emptied:
        yield index, f"the payload of the record {record_id} was erased, and nobody said so"
    for index, record_id in ask(_OLDEST, name, told.before):
        yield from _unopened(index, record_id)


def _unopened(index: int | None, record_id: UUID) -> Iterator[Gone]:
    try:
        payloads.opened(record_id)
    except Erased as error:
        yield index, f"payloads from that of the record {record_id} on do not open: {error}"


def _told(rows: Iterable[tuple[bytes, bytes, datetime]], mac: Mac) -> _ErasedPayloads:
    told = _ErasedPayloads()
    for body, made, at in rows:
        if mac(body) == made:
            told.add(orjson.loads(body), at)
    return told


def _moment(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said else None
