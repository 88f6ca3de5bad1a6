"""Searches over a million records of one organization: medians and 95th percentiles of each kind.

    python -m tests.benchmarks.audit_search [RECORDS]

Makes a database of its own in a directory of its own, and removes both. Prints first what a record
costs to insert with and without what makes it findable.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from tests import data_directory  # noqa: F401 - before the settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from audit import partitions  # noqa: E402
from audit.records import payloads, record_search  # noqa: E402
from config.local import embedded  # noqa: E402
from tests import crib  # noqa: E402

PLACE = "bench"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
APART_S = 25  # between records: a million of them are most of a year
ROUNDS = 40
# As common as a word gets, and in none of the newest 600,000: all its records have to be sorted.
WORST = "a word of 400,000 long ago"
TARGET_MS = 300
INDEX = "SELECT replace(pg_get_indexdef('audit_by_term'::regclass), ' ON ONLY ', ' ON ')"
SIZE = """
SELECT pg_size_pretty(sum(pg_relation_size(relid))) FROM pg_partition_tree('audit_by_term')
"""
RECORDS = """
INSERT INTO audit_auditrecord (id, organization, occurred_at, code, outcome, reason, actor_kind,
    actor, actor_id, token_id, subject, subject_digest, execution_id, request_id, source_ip,
    details, mac)
SELECT (lpad(to_hex(1767225600000 + n * 25000::bigint), 12, '0')
        || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
    'bench', timestamptz '2026-01-01 00:00Z' + n * interval '25 s',
    (ARRAY['TOOL.START', 'TOOL.END', 'STATE.TRANSITION'])[1 + n %% 3],
    CASE WHEN n %% 3 = 0 THEN 'started' WHEN n %% 997 = 1 THEN 'failure' ELSE 'success' END,
    CASE WHEN n %% 997 = 1 THEN 'TIMEOUT' ELSE '' END,
    'agent', 'agent-' || (n / 3) %% 60, 'a', 't', 'tool-' || (n / 3) %% 200, 'sha256:d',
    md5((n / 3)::text)::uuid, 'req-' || n / 3, '10.0.0.1',
    ('{"attempt":1,"fence":1,"isolation":"Standard","note":"word' || n %% 5000 || ' of ' || n
        || ' or ' || CASE WHEN n < 400000 THEN 'formerly' ELSE 'lately' END
        || '","parameters_commitment":"sha256:' || md5(n::text) || md5((n + 1)::text)
        || '","requested_groups":["default","group-' || n %% 50 || '"],"sandbox_profile":null,'
        || '"state":"undefined","version":"1.0.0","worker":"worker-' || n %% 3 || '"}')::json,
    ''::bytea
FROM generate_series(%s::int, %s::int) n
"""
PAYLOADS = """
INSERT INTO audit_auditpayload (record_id, organization, sealed, words)
SELECT r.id, 'bench', ''::bytea,
    ARRAY(SELECT mark FROM marks WHERE word IN (0, 1 + m.n % 4999, 1 + m.n * 7 % 4999,
        1 + m.n * 13 % 4999, 1 + m.n * 29 % 4999))
FROM audit_auditrecord r
JOIN (SELECT execution_id, row_number() OVER (ORDER BY occurred_at) n FROM audit_auditrecord
      WHERE code = 'TOOL.START') m USING (execution_id)
WHERE r.code <> 'STATE.TRANSITION'
"""


def main(records: int) -> None:
    data = Path(os.environ["TOOLCRIB_DATA"])
    try:
        with embedded.running_servers(data):
            call_command("migrate", "audit", verbosity=0)
            _make_months(records)
            index = str(_query_value(INDEX))
            _inserting()
            _fill(records, index)
            _searching(records)
            connection.close()
            connection.close_pool()
    finally:
        crib.remove(data)


def _make_months(records: int) -> None:
    moment, last = BEGIN, BEGIN + timedelta(seconds=APART_S * records)
    while moment < last:
        for table, key in partitions.partitioned_tables().items():
            partitions.make_partitions(table, key, since=moment)
        moment += timedelta(days=28)


def _inserting() -> None:
    """One by one, as calls do; each in a transaction of its own that does not wait for a disk."""
    _do("SET synchronous_commit = off")
    with_index = _each_ms(2_000_001, 2_003_000)
    _do("DROP INDEX audit_by_term")
    without = _each_ms(2_003_001, 2_006_000)
    for name, found in (("without the index of terms", without), ("with it", with_index)):
        print(f"insert, {name:<28} {_p(found, 50):8.3f} ms p50 {_p(found, 95):8.3f} ms p95")


def _each_ms(first: int, last: int) -> list[float]:
    elsewhere = RECORDS.replace(f"'{PLACE}'", "'elsewhere'")
    return [_ms(lambda n=n: _do(elsewhere, n, n)) for n in range(first, last + 1)]


def _fill(records: int, index: str) -> None:
    began = time.monotonic()
    for first in range(1, records + 1, 100_000):
        _do(RECORDS, first, min(first + 99_999, records))
    _do("CREATE TEMP TABLE marks (word int PRIMARY KEY, mark bytea)")
    marks = [payloads.word_mark(PLACE, f"inner{word}") for word in range(5_000)]
    _do("INSERT INTO marks SELECT ordinality - 1, m FROM unnest(%s::bytea[]) WITH ORDINALITY m(m)",
        marks)  # fmt: skip
    _do("DROP INDEX payload_by_word")
    _do(PAYLOADS)
    _do("CREATE INDEX payload_by_word ON audit_auditpayload USING gin (words) WHERE words <> '{}'")
    _do(index)
    _do("VACUUM ANALYZE audit_auditrecord, audit_auditpayload")
    size = _query_value(SIZE)
    print(f"{records:,} records in {time.monotonic() - began:.0f} s; the index of terms has {size}")


def _searching(records: int) -> None:
    dice = random.Random(5)
    day = timedelta(seconds=APART_S * records) / 40
    last = BEGIN + timedelta(seconds=APART_S * records)

    def random_below(most: int) -> int:
        return dice.randrange(most)

    kinds: dict[str, Callable[[], record_search.RecordSearch]] = {
        "the newest": _search,
        "a range of time": lambda: _search(since=last - day * random_below(40), until=last - day),
        "an actor": lambda: _search(actor=f"agent-{random_below(60)}"),
        "a tool in a range": lambda: _search(
            tool=f"tool-{random_below(200)}", until=last - day * 9
        ),
        "an execution": lambda: _search(execution=_execution(random_below(records // 3))),
        "a request": lambda: _search(request=f"req-{random_below(records // 3)}"),
        "a code": lambda: _search(code="STATE.TRANSITION"),
        "a family": lambda: _search(code="TOOL."),
        "a code that never was": lambda: _search(code="AUDIT.ERASE"),
        "a rare outcome": lambda: _search(outcome="failure"),
        "a reason of an actor": lambda: _search(
            reason="TIMEOUT", actor=f"agent-{random_below(60)}"
        ),
        "what never goes together": lambda: _search(code="TOOL.START", outcome="success"),
        "a rare word": lambda: _search(text=f"word{random_below(5000)}"),
        "a number": lambda: _search(text=str(random_below(records))),
        "a common word": lambda: _search(text="lately"),
        WORST: lambda: _search(text="formerly"),
        "no such word": lambda: _search(text=f"nowhere{random_below(9)}"),
        "words and filters": lambda: _search(
            text=f"word{random_below(5000)}", code="TOOL.END", since=last - day * 20
        ),
        "a rare word of what went in": lambda: _search(
            text=f"inner{1 + random_below(4999)}", opened=True
        ),
        "a common word of what went in": lambda: _search(text="inner0", opened=True),
    }
    print(f"\n{'search, a page of 50':<34}{'p50 ms':>9}{'p95 ms':>9}{'found':>8}")
    everything: list[float] = []
    worst: list[float] = []
    for name, make in kinds.items():
        made = [make() for _ in range(ROUNDS)]
        found = [_timed(one) for one in made]
        times = [ms for ms, _ in found]
        (worst if name == WORST else everything).extend(times)
        _show(name, times, statistics.mean(count for _, count in found))
    everything += _late_pages(records)
    _show("all but the worst", everything)
    _show("all", everything + worst)
    print(f"{'at most, of all':<34}{'':9}{TARGET_MS:9.1f}")


def _late_pages(records: int) -> list[float]:
    """Page 1,000 of all records, and of a word's."""
    times: list[float] = []
    place = record_search.Position(
        BEGIN + timedelta(seconds=APART_S * (records - 50_000)), UUID(int=0)
    )
    for one, name in (
        (_search(), "page 1,000"),
        (_search(code="TOOL.END"), "page 1,000 of a code"),
    ):
        found = [
            _ms(lambda one=one: record_search.search_page(one, 50, place)) for _ in range(ROUNDS)
        ]
        _show(name, found)
        times += found
    return times


def _search(**fields: object) -> record_search.RecordSearch:
    return record_search.RecordSearch(PLACE, **fields)  # type: ignore[arg-type]


def _execution(n: int) -> UUID:
    return UUID(str(_query_value("SELECT md5(%s::text)::uuid", n)))


def _timed(one: record_search.RecordSearch) -> tuple[float, int]:
    began = time.perf_counter()
    found = record_search.search_page(one, 50)
    return (time.perf_counter() - began) * 1000, len(found)


def _show(name: str, found: list[float], rows: float | None = None) -> None:
    count = "" if rows is None else f"{rows:8.0f}"
    print(f"{name:<34}{_p(found, 50):9.1f}{_p(found, 95):9.1f}{count}", flush=True)


def _p(found: list[float], percent: int) -> float:
    return statistics.quantiles(found, n=100)[percent - 1]


def _ms(deed: Callable[[], object]) -> float:
    began = time.perf_counter()
    deed()
    return (time.perf_counter() - began) * 1000


def _do(sql: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)


def _query_value(sql: str, *values: object) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return cursor.fetchone()[0]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
