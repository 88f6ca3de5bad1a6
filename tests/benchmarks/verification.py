"""How fast a log of a million records is verified, and how large a proof of one of them is.

    python -m tests.benchmarks.verification [--records 1000000] [--processes 2]

Starts a PostgreSQL of its own in a new directory and removes it again. Records are written by one
statement, with macs made here; they are sealed by the sealer. Prints one table.
"""

import argparse
import os
import shutil
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from audit.log import leaves  # noqa: E402
from audit.log.proofs import inclusion_proof  # noqa: E402
from audit.log.sealer import seal_logs  # noqa: E402
from audit.models import AuditLeaf  # noqa: E402
from audit.verification.inspection import VerificationRequest, inspect_logs  # noqa: E402
from config.local import embedded  # noqa: E402

LOG = "bench"
TARGET_PER_S, TARGET_BYTES = 200_000, 2048
_AT_ONCE = 10_000
_MADE = f"""
CREATE TEMPORARY TABLE made AS
SELECT uuidv7() AS id, '{LOG}'::text AS organization, 'TOOL.END'::text AS code,
    'success'::text AS outcome, ''::text AS reason, 'agent'::text AS actor_kind,
    'agent-' || n %% 100 AS actor, 'a1'::text AS actor_id, 't1'::text AS token_id,
    'tool-' || n %% 50 AS subject, 'sha256:' || repeat('a', 64) AS subject_digest,
    uuidv7() AS execution_id, 'req-' || n AS request_id, '10.0.0.1'::text AS source_ip,
    ('{{"duration_ms":' || n %% 1000 || ',"result_digest":"sha256:' || repeat('0', 64)
        || '"}}')::json AS details
FROM generate_series(1, %s) n
"""
_NAMES = ", ".join(leaves.COLUMNS)
_TAKEN = f"SELECT {leaves.body_sql('r')}, r.id FROM made r LIMIT %s OFFSET %s"
_WRITTEN = f"""
INSERT INTO audit_auditrecord ({_NAMES}, mac)
SELECT {", ".join(f"r.{name}" for name in leaves.COLUMNS)}, m.mac
FROM made r JOIN unnest(%s::uuid[], %s::bytea[]) AS m(id, mac) ON m.id = r.id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.process_cpu_count())
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    pool = ProcessPoolExecutor(options.processes, get_context("fork"))
    pool.submit(int).result()  # forked before there are connections
    try:
        with embedded.running_servers(data):
            _measure(options.records, options.processes, pool)
            connection.close()
            connection.close_pool()
            pool.shutdown()
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _measure(records: int, processes: int, pool: Executor) -> None:
    call_command("migrate", verbosity=0)
    _write(records)
    began = time.perf_counter()
    seal_logs(LOG)
    print(f"sealed          {records / (time.perf_counter() - began):12,.0f} records/s")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    for name, workers in (("one process", None), (f"{processes} processes", pool)):
        _verify(records, name, workers)
    middle = AuditLeaf.objects.get(log__name=LOG, index=records // 2)
    size = len(inclusion_proof(middle.record_id).encode())
    print(f"a proof         {size:12,} bytes      (at most {TARGET_BYTES:,})")


def _verify(records: int, name: str, pool: Executor | None) -> None:
    began = time.perf_counter()
    (report,) = inspect_logs(VerificationRequest(LOG), pool)
    taken = time.perf_counter() - began
    if report.damaged or report.size != records:
        raise SystemExit(f"the log is not clean: {report.findings}")
    print(f"{name:15} {records / taken:12,.0f} records/s  (at least {TARGET_PER_S:,})")


def _write(records: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_MADE, [records])
        cursor.execute("CREATE INDEX ON made (id)")
        for first in range(0, records, _AT_ONCE):
            cursor.execute(_TAKEN, [_AT_ONCE, first])
            rows = cursor.fetchall()
            macs = [leaves.record_mac(LOG, body.encode()) for body, _ in rows]
            cursor.execute(_WRITTEN, [[made for _, made in rows], macs])


if __name__ == "__main__":
    main()
