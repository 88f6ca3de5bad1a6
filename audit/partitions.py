"""Tables that are partitioned by month, by ranges of their UUIDv7 ids.

Each month has a partition, made ahead; ids of no month, which are no UUIDv7, are in the default
partition. Rows from before a table was partitioned stay where they were, as one partition of
everything up to the month after. Retention drops whole partitions. `docs/decisions/0024` says why.

Statements here wait for locks for a moment only, and then give up: what waits for a lock on a table
keeps everything else that uses the table waiting behind it.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Self
from uuid import UUID

from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import CheckViolation, LockNotAvailable

from audit import metrics

log = logging.getLogger(__name__)
AHEAD = 2  # months
LOCK_TIMEOUT_MS = 100
MOST_MOVED = 10_000  # rows, out of the default partition
_BOUNDS = re.compile(r"FOR VALUES FROM \((MINVALUE|'[^']+')\) TO \((MAXVALUE|'[^']+')\)")
_TABLES_SQL = """
SELECT c.relname, a.attname FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
WHERE p.partstrat = 'r' AND p.partnatts = 1 AND a.atttypid = 'uuid'::regtype
    AND c.relnamespace = current_schema()::regnamespace
ORDER BY c.relname
"""
_PARTITIONS_SQL = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(%s)::oid ORDER BY c.relname
"""
# For statements: the first id of the month after the next day.
_BOUNDARY_SQL = """(
    lpad(to_hex((extract(epoch FROM date_trunc(
        'month', (now() + interval '1 day') AT TIME ZONE 'UTC'
    ) + interval '1 month') * 1000)::bigint), 12, '0') || repeat('0', 20)
)::uuid"""
# Those that an insert gives: not what the database computes.
_COLUMNS_SQL = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_COPY_GRANTS = """
    IF (SELECT relacl IS NOT NULL FROM pg_class WHERE oid = {source}) THEN
        EXECUTE format('REVOKE ALL ON {target} FROM PUBLIC, %I', current_user);
        FOR one IN SELECT (aclexplode(relacl)).* FROM pg_class WHERE oid = {source} LOOP
            EXECUTE format(
                'GRANT %s ON {target} TO %s %s', one.privilege_type,
                CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE one.grantee::regrole::text END,
                CASE WHEN one.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END
            );
        END LOOP;
    END IF;
"""
# Everything is read from the plain table before it is renamed, so that what is executed afterwards
# is about the new one, which has its name.
_SPLIT = """
DO $split$
DECLARE
    plain regclass := '{table}'::regclass;
    suffix text := CASE WHEN EXISTS (SELECT FROM {table}) THEN '_earlier' ELSE '_default' END;
    constraints text[]; indexes text[]; triggers text[]; one record; statement text;
BEGIN
    IF EXISTS (SELECT FROM pg_policy WHERE polrelid = plain)
        OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = plain) THEN
        RAISE EXCEPTION '% has rules or policies, which would not be carried over', plain;
    END IF;
    SELECT array_agg(
        format('ALTER TABLE {table} ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
        ORDER BY contype = 'f'
    ) INTO constraints
    FROM pg_constraint
    WHERE conrelid = plain AND conparentid = 0 AND contype IN ('p', 'u', 'x', 'f');
    SELECT array_agg(pg_get_indexdef(indexrelid)) INTO indexes FROM pg_index
    WHERE indrelid = plain AND NOT EXISTS (
        SELECT FROM pg_constraint
        WHERE conrelid = plain AND conindid = indexrelid AND contype IN ('p', 'u', 'x')
    );
    SELECT array_agg(pg_get_triggerdef(oid) || CASE tgenabled WHEN 'O' THEN '' ELSE format(
        '; ALTER TABLE {table} %s TRIGGER %I', CASE tgenabled
            WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'DISABLE'
        END, tgname
    ) END) INTO triggers FROM pg_trigger WHERE tgrelid = plain AND NOT tgisinternal;

    ALTER TABLE {table} RENAME TO {table}_earlier;
    FOR one IN SELECT indexrelid::regclass AS name, relname FROM pg_index
        JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = plain LOOP
        EXECUTE format(
            'ALTER INDEX %s RENAME TO %I', one.name, left(one.relname, 55) || suffix
        );
    END LOOP;
    FOR one IN SELECT tgname FROM pg_trigger
        WHERE tgrelid = plain AND NOT tgisinternal AND tgtype & 1 = 1 LOOP
        EXECUTE format('DROP TRIGGER %I ON {table}_earlier', one.tgname);
    END LOOP;

    CREATE TABLE {table} (LIKE {table}_earlier INCLUDING ALL EXCLUDING INDEXES)
        PARTITION BY RANGE ({key});
    FOREACH statement IN ARRAY constraints || indexes || triggers LOOP
        EXECUTE statement;
    END LOOP;
    {grants}
END $split$;
"""
# Row triggers, constraints and indexes come from the partitioned table by themselves. Triggers of
# statements, grants and options of storage do not.
_NEW_PARTITION = """
DO $new$
DECLARE
    one record; options text;
BEGIN
    IF {needless} THEN
        RETURN;
    END IF;
    SELECT array_to_string(reloptions, ', ') INTO options FROM pg_class
    WHERE oid = coalesce(to_regclass('{table}_default'), to_regclass('{table}_earlier'));
    EXECUTE format('CREATE TABLE {name} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES) %s',
        'WITH (' || options || ')');
    ALTER TABLE {table} ATTACH PARTITION {name} {bounds};
    FOR one IN SELECT tgname, tgenabled, pg_get_triggerdef(oid, true) AS definition
        FROM pg_trigger
        WHERE tgrelid = '{table}'::regclass AND NOT tgisinternal AND tgtype & 1 = 0 LOOP
        EXECUTE replace(one.definition, ' ON {table} ', ' ON {name} ');
        IF one.tgenabled = 'A' THEN
            EXECUTE format('ALTER TABLE {name} ENABLE ALWAYS TRIGGER %I', one.tgname);
        END IF;
    END LOOP;
    {grants}
END $new$;
"""
# Foreign keys followed the plain table when it was renamed. One of its own rows to others of them
# is the partitioned table's already, and comes back with attaching.
_ATTACH_EARLIER = """
DO $attach$
DECLARE
    boundary uuid := {boundary};
    columns text := ({columns});
    one record; references_to_it text[]; statement text;
BEGIN
    SET CONSTRAINTS ALL IMMEDIATE;
    FOR one IN SELECT conrelid::regclass AS place, conname,
            replace(pg_get_constraintdef(oid, true), ' {table}_earlier(', ' {table}(') AS definition
        FROM pg_constraint
        WHERE confrelid = '{table}_earlier'::regclass AND contype = 'f' AND conparentid = 0 LOOP
        IF one.place <> '{table}_earlier'::regclass THEN
            references_to_it := references_to_it || format(
                'ALTER TABLE %s ADD CONSTRAINT %I %s', one.place, one.conname, one.definition
            );
        END IF;
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.place, one.conname);
    END LOOP;
    IF EXISTS (SELECT FROM {table}_earlier) THEN
        EXECUTE format('INSERT INTO {table}_default (%1$s)'
            ' SELECT %1$s FROM {table}_earlier WHERE {key} >= %2$L', columns, boundary);
        DELETE FROM {table}_earlier WHERE {key} >= boundary;
        EXECUTE format('ALTER TABLE {table} ATTACH PARTITION {table}_earlier'
            ' FOR VALUES FROM (MINVALUE) TO (%L)', boundary);
    ELSE
        ALTER TABLE {table}_earlier RENAME TO {table}_default;
        ALTER TABLE {table} ATTACH PARTITION {table}_default DEFAULT;
    END IF;
    FOREACH statement IN ARRAY coalesce(references_to_it, '{{}}') LOOP
        EXECUTE statement;
    END LOOP;
END $attach$;
"""

# The way back: the rows are copied, and what names the table is read before it is renamed.
_JOIN = """
DO $join$
DECLARE
    months regclass := '{table}'::regclass;
    columns text := ({columns});
    statements text[]; triggers text[]; one record; statement text;
BEGIN
    SELECT array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s',
            conrelid::regclass, conname, pg_get_constraintdef(oid)) ORDER BY contype = 'f')
        INTO statements FROM pg_constraint
    WHERE conparentid = 0 AND (conrelid = months AND contype IN ('p', 'u', 'x', 'f')
        OR confrelid = months AND conrelid <> months);
    SELECT statements || array_agg(replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON '))
        INTO statements FROM pg_index
    WHERE indrelid = months AND NOT EXISTS (
        SELECT FROM pg_constraint
        WHERE conrelid = months AND conindid = indexrelid AND contype IN ('p', 'u', 'x')
    );
    SELECT array_agg(pg_get_triggerdef(oid) || CASE tgenabled WHEN 'A' THEN format(
        '; ALTER TABLE {table} ENABLE ALWAYS TRIGGER %I', tgname) ELSE '' END)
        INTO triggers FROM pg_trigger WHERE tgrelid = months AND NOT tgisinternal;

    SET CONSTRAINTS ALL IMMEDIATE;
    ALTER TABLE {table} RENAME TO {table}_months;
    CREATE TABLE {table} (LIKE {table}_months INCLUDING ALL EXCLUDING INDEXES);
    EXECUTE format('INSERT INTO {table} (%1$s) SELECT %1$s FROM {table}_months', columns);
    {grants}
    DROP TABLE {table}_months CASCADE;
    FOREACH statement IN ARRAY statements || triggers LOOP
        EXECUTE statement;
    END LOOP;
END $join$;
"""


class PartitionBusy(Exception):
    """Something uses the table for longer than may be waited for. It succeeds later."""


@dataclass(frozen=True, slots=True)
class Month:
    """A calendar month, in UTC."""

    year: int
    number: int

    @classmethod
    def from_moment(cls, moment: datetime) -> Self:
        moment = moment.astimezone(UTC)
        return cls(moment.year, moment.month)

    @property
    def following(self) -> "Month":
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    @property
    def first_id(self) -> UUID:
        return first_id(datetime(self.year, self.number, 1, tzinfo=UTC))

    def __str__(self) -> str:
        return f"{self.year:04}_{self.number:02}"


@dataclass(frozen=True, slots=True)
class Partition:
    """Of the ids from `first` up to `end`; without either where it has no such bound."""

    table: str
    name: str
    first: UUID | None
    end: UUID | None
    is_default: bool = False

    def contains(self, identifier: UUID) -> bool:
        if self.is_default:
            return False
        above = self.first is None or self.first <= identifier
        return above and (self.end is None or identifier < self.end)


def first_id(moment: datetime) -> UUID:
    """The least UUIDv7 that is made at that moment or later."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


@lru_cache(maxsize=8)
def partition_of_month(table: str, year: int, number: int) -> Partition | None:
    """The ids of that month, and the partition that has them. None where the month had no partition
    of its own when it was first asked for: ids of the default partition may move.

    For the present month, and statements about one id that each call makes: what is asked of its
    partition is planned like what is asked of a plain table, once for a connection, where a
    statement about all partitions is planned each time.
    """
    month = Month(year, number)
    for one in partitions_of(table):
        if one.contains(month.first_id):
            return Partition(table, one.name, month.first_id, month.following.first_id)
    return None


def join_partitions_sql(table: str) -> str:
    """The statement that makes a plain table of a partitioned one, with the same rows, constraints,
    foreign keys in both directions, indexes, triggers, defaults and grants."""
    grants = _COPY_GRANTS.format(source="months", target=table)
    return _JOIN.format(table=table, grants=grants, columns=_COLUMNS_SQL.format(table=table))


def partition_table_sql(table: str, key: str) -> list[str]:
    """Statements of a migration that partition a plain table by its key, a UUIDv7.

    The table becomes a partition as it is, with one scan of it; an empty one is the default.
    Constraints, foreign keys in both directions, indexes, triggers, defaults and grants are those
    of the partitioned table then, and of each partition.
    """
    grants = _COPY_GRANTS.format(source="plain", target=table)
    return [
        _SPLIT.format(table=table, key=key, grants=grants),
        _new_partition_sql(
            table,
            f"{table}_default",
            "DEFAULT",
            needless=f"NOT EXISTS (SELECT FROM {table}_earlier)",
        ),
        _ATTACH_EARLIER.format(
            table=table, key=key, boundary=_BOUNDARY_SQL, columns=_COLUMNS_SQL.format(table=table)
        ),
    ]


def partitioned_tables() -> dict[str, str]:
    """The key of each table that is partitioned by ids."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES_SQL)
        return dict(cursor.fetchall())


def partitions_of(table: str) -> list[Partition]:
    """In the order of their ids; the default partition is the last."""
    with connection.cursor() as cursor:
        cursor.execute(_PARTITIONS_SQL, [table])
        found = [_read_partition(table, *row) for row in cursor.fetchall()]
    return sorted(found, key=lambda one: (one.is_default, one.first or UUID(int=0)))


def make_all_partitions() -> list[str]:
    """Make what is missing of every partitioned table, for this month and the next ones; the new
    partitions. What cannot be made now is logged, and shows as `toolcrib_partitions_ahead`."""
    made = []
    for table, key in partitioned_tables().items():
        try:
            new = make_partitions(table, key)
            if new:
                _analyze(table)
            made += new
        except (PartitionBusy, DatabaseError) as problem:
            log.warning("no partitions were made of %s: %s", table, problem)
        metrics.partitions_ahead.labels(table).set(months_ahead(table))
    return made


def make_partitions(table: str, key: str, *, since: datetime | None = None) -> list[str]:
    """Make what is missing for the month of `since`, which is now by default, and the next `AHEAD`
    ones; the new partitions. Safe to run twice, and at once.

    A month whose rows are in the default partition already, because it had none, takes them over
    if they are few. Raises `PartitionBusy`, and `IntegrityError` if they are too many.
    """
    month, made = Month.from_moment(since or datetime.now(UTC)), []
    for _ in range(AHEAD + 1):
        if _make_month(table, key, month):
            made.append(f"{table}_{month}")
        month = month.following
    return made


def months_ahead(table: str, *, since: datetime | None = None) -> int:
    """How many months after this one have partitions already, one after the other; -1 if not even
    this one has."""
    known, month, count = partitions_of(table), Month.from_moment(since or datetime.now(UTC)), -1
    while _covered(known, month):
        month, count = month.following, count + 1
    return count


def drop_partitions(partitions: Sequence[Partition], *, keep: Callable[[], bool]) -> bool:
    """Drop them in this order, all or none; whether they were dropped. Rows of one may refer to
    rows of a later one.

    `keep` decides, while nothing can be written to them: rows it has seen are all there are, and
    what it writes is written if they are dropped. Raises `PartitionBusy`, and `IntegrityError` if
    rows of other tables refer to theirs.
    """
    names = ", ".join(one.name for one in partitions)
    with _short_locks() as cursor:
        cursor.execute(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
        if keep():
            return False
        # Where others refer to the table, it is looked whether they refer to this partition.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_hashjoin = off")
        for one in partitions:
            cursor.execute(f"ALTER TABLE {one.table} DETACH PARTITION {one.name}")
            cursor.execute(f"DROP TABLE {one.name}")
    log.info("partitions were dropped: %s", names)
    return True


def _analyze(table: str) -> None:
    """What is known of all partitions together: autovacuum looks at each alone. Before PostgreSQL
    18 that reads samples of each once more."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        only = "ONLY" if int(cursor.fetchone()[0]) >= 180_000 else ""
        cursor.execute(f"ANALYZE {only} {table}")


def _make_month(table: str, key: str, month: Month) -> bool:
    if _covered(partitions_of(table), month):
        return False
    try:
        return _add_partition(table, month)
    except IntegrityError as problem:
        if not isinstance(problem.__cause__, CheckViolation):
            raise
        return _add_partition(table, month, moving=key)


def _add_partition(table: str, month: Month, *, moving: str = "") -> bool:
    """False where another process was faster. `moving` is the key by which rows of the month are
    moved from the default partition."""
    default, name = f"{table}_default", f"{table}_{month}"
    first, end = month.first_id, month.following.first_id
    with _short_locks() as cursor:
        lock = f"toolcrib:partitions:{table}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [lock])
        if _covered(partitions_of(table), month):
            return False
        if moving:
            _raise_for_many(cursor, default)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            # Refusals of changes are the partitioned table's, and leave with it.
            cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {default}")
        bounds = f"FOR VALUES FROM ('{first}') TO ('{end}')"
        cursor.execute(_new_partition_sql(table, name, bounds))
        if moving:
            rows = f"FROM {default} WHERE {moving} >= %s AND {moving} < %s"
            cursor.execute(_COLUMNS_SQL.format(table=table))
            columns = cursor.fetchone()[0]
            cursor.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} {rows}", [first, end])
            cursor.execute(f"DELETE {rows}", [first, end])
            cursor.execute(f"ALTER TABLE {table} ATTACH PARTITION {default} DEFAULT")
    return True


def _raise_for_many(cursor: CursorWrapper, default: str) -> None:
    """Everything that uses the table waits while they are moved."""
    cursor.execute(f"SELECT FROM {default} OFFSET %s LIMIT 1", [MOST_MOVED])
    if cursor.fetchone() is not None:
        raise IntegrityError(f"{default} has more than {MOST_MOVED} rows, too many to be moved")


@contextmanager
def _short_locks() -> Iterator[CursorWrapper]:
    """A transaction that waits for a lock for a moment only. Raises `PartitionBusy`."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            yield cursor
    except OperationalError as problem:
        if isinstance(problem.__cause__, LockNotAvailable):
            raise PartitionBusy(str(problem).partition("\n")[0]) from problem
        raise


def _covered(known: Sequence[Partition], month: Month) -> bool:
    return any(one.contains(month.first_id) for one in known)


def _new_partition_sql(table: str, name: str, bounds: str, needless: str = "false") -> str:
    grants = _COPY_GRANTS.format(source=f"'{table}'::regclass", target=name)
    return _NEW_PARTITION.format(
        table=table, name=name, bounds=bounds, grants=grants, needless=needless
    )


def _read_partition(table: str, name: str, bounds: str) -> Partition:
    found = _BOUNDS.fullmatch(bounds)
    if found is None:
        return Partition(table, name, None, None, is_default=True)
    first, end = (UUID(text.strip("'")) if text[0] == "'" else None for text in found.groups())
    return Partition(table, name, first, end)
