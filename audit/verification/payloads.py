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
from audit.records.payloads import PayloadErased
from audit.verification.chunks import MacFunction

RunQuery = Callable[..., list[Any]]
MissingPayload = tuple[int | None, str]
ERASED_WITHIN = timedelta(hours=1)  # what came in while an erasure was at work
_MOST_PAYLOADS = 1000
_NEVER = datetime(1, 1, 2, tzinfo=UTC)
_COMMITTED = """r.organization = %s AND strpos(r.details::text, '_commitment":"sha256:') > 0"""
_MISSING_SQL = f"""
SELECT l.index, r.id FROM audit_auditrecord r LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE {_COMMITTED} AND NOT EXISTS (SELECT FROM audit_auditpayload p WHERE p.record_id = r.id)
ORDER BY r.id LIMIT {_MOST_PAYLOADS}
"""  # noqa: S608
_ERASURES_SQL = f"""
SELECT convert_to({body_sql("r")}, 'UTF8'), r.mac, r.occurred_at FROM audit_auditrecord r
WHERE r.organization = %s AND r.code IN ('{Event.AUDIT_ERASE}', '{Event.AUDIT_RETENTION}')
    AND r.subject = 'payloads'
"""  # noqa: S608
# As `audit.records.erasure` finds what is an agent's.
_EMPTIED_SQL = f"""
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
ORDER BY r.id LIMIT {_MOST_PAYLOADS}
"""  # noqa: S608
_OLDEST_SQL = """
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
        until = _parse_time(scope.get("before")) or at + ERASED_WITHIN
        if "execution" in scope:
            self.executions.append(UUID(body["execution_id"]))
        elif "agent" in scope:
            name = scope["agent"]
            self.agents[name] = max(until, self.agents.get(name, _NEVER))
        else:
            self.before = max(until, self.before)


def missing_payloads(ask: RunQuery, name: str, mac: MacFunction | None) -> Iterator[MissingPayload]:
    """Without the key of macs erasures cannot be checked, and only missing rows are reported."""
    for index, record_id in ask(_MISSING_SQL, name):
        yield index, f"the payload of the record {record_id} is gone"
    if mac is None:
        return
    told = _read_erasures(ask(_ERASURES_SQL, name), mac)
    agents, until = [*told.agents], [*told.agents.values()]
    emptied = ask(_EMPTIED_SQL, name, told.before, told.executions, agents, until)
    for index, record_id in emptied:
        yield index, f"the payload of the record {record_id} was erased, and nobody said so"
    for index, record_id in ask(_OLDEST_SQL, name, told.before):
        yield from _report_unreadable(index, record_id)


def _report_unreadable(index: int | None, record_id: UUID) -> Iterator[MissingPayload]:
    try:
        payloads.open_payload(record_id)
    except PayloadErased as error:
        yield index, f"payloads from that of the record {record_id} on do not open: {error}"


def _read_erasures(
    rows: Iterable[tuple[bytes, bytes, datetime]], mac: MacFunction
) -> _ErasedPayloads:
    told = _ErasedPayloads()
    for body, made, at in rows:
        if mac(body) == made:
            told.add(orjson.loads(body), at)
    return told


def _parse_time(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said else None
