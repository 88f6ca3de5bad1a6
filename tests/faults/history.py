"""What a crib's database, its ledger and its clients tell, as one history for the checker."""

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg.rows import class_row

from tests.faults.checker import Acknowledged, AuditedEvent, History, Move, Row
from tests.faults.ledger import Effect
from tools.definitions.results import FINAL, OPEN

# What a trigger of ours writes down of every move of every row, whatever the product says of it.
WATCH = """
CREATE SCHEMA faults;
CREATE TABLE faults.move (
    number bigserial PRIMARY KEY, transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    execution_id uuid NOT NULL, was text, became text NOT NULL,
    old_fence int, fence int NOT NULL, worker text NOT NULL,
    old_lease_until timestamptz, at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION faults.watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.status = NEW.status AND OLD.fence = NEW.fence THEN
        RETURN NULL;
    END IF;
    INSERT INTO faults.move (execution_id, was, became, old_fence, fence, worker,
        old_lease_until)
    VALUES (NEW.id, CASE TG_OP WHEN 'UPDATE' THEN OLD.status END, NEW.status,
        CASE TG_OP WHEN 'UPDATE' THEN OLD.fence END, NEW.fence, NEW.worker,
        CASE TG_OP WHEN 'UPDATE' THEN OLD.lease_until END);
    RETURN NULL;
END $$;
CREATE TRIGGER watched_by_the_fault_suite AFTER INSERT OR UPDATE ON tools_execution
    FOR EACH ROW EXECUTE FUNCTION faults.watch();
"""


_ROWS = """
    SELECT e.id::text AS id, coalesce(e.parameters->>'key', '') AS key,
        coalesce(v.definition->>'delivery', '') AS delivery, e.status, e.error_code, e.fence,
        coalesce(e.output->>'run', e.output->'body'->>'run') AS run,
        v.definition->>'type' = 'http' AS goes_out,
        coalesce((e.error_details->>'effect_possible')::boolean, false) AS effect_possible
    FROM tools_execution e JOIN tools_toolversion v ON v.id = e.tool_version_id
"""
_MOVES = """
    SELECT m.execution_id::text AS execution, m.was, m.became, m.old_fence, m.fence, m.worker,
        extract(epoch FROM m.at)::float8 AS at,
        extract(epoch FROM m.old_lease_until)::float8 AS lease_until,
        EXISTS (
            SELECT FROM audit_auditrecord r WHERE r.transaction = m.transaction
                AND r.execution_id = m.execution_id AND r.code = 'TOOL.LOST' AND r.actor = 'reaper'
        ) AS reaped
    FROM faults.move m ORDER BY m.number
"""
_AUDITED = """
    SELECT r.execution_id::text AS execution, r.code, (r.details::jsonb->>'fence')::int AS fence,
        extract(epoch FROM r.occurred_at)::float8 AS at,
        r.code = ANY (%(ending)s) AND EXISTS (
            SELECT FROM faults.move m WHERE m.transaction = r.transaction
                AND m.execution_id = r.execution_id AND m.became = ANY (%(over)s)
        ) AS ends
    FROM audit_auditrecord r WHERE r.execution_id IS NOT NULL ORDER BY r.occurred_at, r.id
"""
_EVENTS = "SELECT execution_id::text, type FROM tools_event"
_RESERVATIONS = "SELECT execution_id::text FROM tools_reservation"
_ALLOWANCES = "SELECT coalesce(sum(held), 0)::float8, sum(used)::float8 FROM tools_allowanceuse"
_WAITING = "SELECT count(*) FROM tools_execution WHERE status = ANY (%s)"
_PERFORMED = """
    SELECT count(*) FROM tools_execution WHERE status = 'Running' AND position(%s IN worker) > 0
"""
_ENDING = ["TOOL.END", "TOOL.LOST", "TOOL.CANCEL", "TOOL.DENY", "TOOL.INVALID", "TOOL.EXPIRE"]


def watch(database: psycopg.Connection) -> None:
    database.execute(WATCH)


def unfinished(database: psycopg.Connection) -> int:
    row = database.execute(_WAITING, [sorted(OPEN)]).fetchone()
    return row[0] if row else 0


def performed_by(database: psycopg.Connection, pid: int) -> int:
    """How many calls this process performs."""
    row = database.execute(_PERFORMED, [f":{pid}:"]).fetchone()
    return row[0] if row else 0


def read(
    database: psycopg.Connection, effects: Iterable[Effect], acknowledged: Iterable[Acknowledged]
) -> History:
    """All of it at one moment."""
    with database.transaction():
        database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        held, used = database.execute(_ALLOWANCES).fetchone() or (0, None)
        ending = {"ending": _ENDING, "over": sorted(FINAL)}
        return History(
            rows=tuple(_read(database, Row, _ROWS)),
            moves=tuple(_read(database, Move, _MOVES)),
            events=tuple(database.execute(_EVENTS)),
            audited=tuple(_read(database, AuditedEvent, _AUDITED, ending)),
            effects=tuple(effects),
            acknowledged=tuple(acknowledged),
            reservations=tuple(row[0] for row in database.execute(_RESERVATIONS)),
            held=held,
            used=used,
        )


def _read[Shape](
    database: psycopg.Connection, shape: type[Shape], query: str, values: Any = None
) -> Iterator[Shape]:
    return iter(database.cursor(row_factory=class_row(shape)).execute(query, values))
