"""Each statement of a call is planned with the indexes that it names, and reads no table as a
whole."""

import re
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction

from audit.inserts import numbered, raw_cursor
from audit.partitions import partition_of_month
from tools.models import pipeline_sql
from tools.models.pipeline_sql import Statement

STATEMENTS = {
    name: value for name, value in vars(pipeline_sql).items() if isinstance(value, Statement)
}
# What fills the parts: all that a call may have.
WHOLE = {
    "columns": "w.status",
    "conditions": f"{pipeline_sql.NOT_HALTED} AND {pipeline_sql.NO_HITS}",
    "event": pipeline_sql.UNSTARTED_END_EVENT,
    "evidence": "",
    "most": "32",
    "reached": pipeline_sql.REACHED,
    "refused": pipeline_sql.RESERVATION_REFUSED,
    "reservation": pipeline_sql.RESERVE_PARTS,
    "room": pipeline_sql.ROOM,
    "rows": "row0 AS (SELECT now() AS created_at, now() AS started_at FROM accountable),",
    "settlement": pipeline_sql.SETTLE_PARTS,
}
# The indexes of a plan by their table and columns; a partition's are those of its table.
_COLUMNS = """
    SELECT coalesce(parent.inhparent, i.indrelid)::regclass || ' (' || (
        SELECT string_agg(a.attname, ', ' ORDER BY k.place)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number) || ')'
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
    LEFT JOIN pg_inherits parent ON parent.inhrelid = i.indrelid
    WHERE c.relname = ANY(%s)
"""
# Tables without statistics: autovacuum counts what other tests made, and of a table of one row
# each index costs the same.
_UNCOUNTED = """
    SELECT pg_clear_relation_stats(schemaname, tablename) FROM pg_tables WHERE schemaname = 'public'
"""
_UNKNOWN_COLUMNS = """
    SELECT pg_clear_attribute_stats(schemaname, tablename, attname, inherited)
    FROM pg_stats WHERE schemaname = 'public'
"""
_PLANNER = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")


@pytest.fixture(autouse=True)
def _analyzed(db: None) -> None:
    """The state in which autovacuum may leave the tables of a test database."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tools_execution, tools_pin, tools_executionkey")


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_it_is_planned_with_the_indexes_that_it_names(name: str) -> None:
    plan = plan_of(name)
    assert "Seq Scan" not in plan
    found = indexes_of(plan)
    for named in STATEMENTS[name].reads:
        assert any(one.startswith(named.rstrip(")")) for one in found), (named, plan)


def plan_of(name: str) -> str:
    """For any parameters, where PostgreSQL avoids to read a table as a whole and knows nothing of
    its rows."""
    now = datetime.now(UTC)
    month = partition_of_month("tools_execution", now.year, now.month)
    assert month is not None
    parts = WHOLE | {"table": month.name}
    if name == "TAKE":
        parts["event"] = pipeline_sql.START_EVENT
    text, _ = numbered(STATEMENTS[name].filled(**parts))
    with transaction.atomic(), raw_cursor() as cursor:
        cursor.execute(_UNCOUNTED)
        cursor.execute(_UNKNOWN_COLUMNS)
        for setting in _PLANNER:
            cursor.execute(f"SET LOCAL {setting} = off")
        cursor.execute(f"EXPLAIN (GENERIC_PLAN) {text}")
        return "\n".join(line for (line,) in cursor.fetchall())


def indexes_of(plan: str) -> set[str]:
    named = re.findall(r"(?:using|Index Scan on|Arbiter Indexes:) (\w+)", plan)
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [named])
        return {columns for (columns,) in cursor.fetchall()}
