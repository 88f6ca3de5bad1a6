"""What verifying a log of years takes: time and memory of a whole verification, and of a daily one.

    python -m tests.benchmarks.long_log [--checkpoints 1000000] [--records 3000000] [--processes 2]

Starts a PostgreSQL of its own in a new directory and removes it again. Rows are made by the
thousand and copied, as the sealer would have written them: macs, leaves, tree and signatures are
genuine, and every checkpoint has its anchor; they are a second apart and were never thinned. Then
an hour's records come, and the daily verification goes on. `idle_in_transaction_session_timeout` is
a second. Prints one table.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import batched
from pathlib import Path
from uuid import UUID

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ.setdefault("TOOLCRIB_DATA", tempfile.mkdtemp(prefix="tc-bench-"))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402

from audit.log import anchors, checkpoint_retention, checkpoints, key_files, leaves, merkle  # noqa: E402  # noqa: E402
from audit.log.seal_batches import split_frontier  # noqa: E402
from audit.log.sealer import seal_logs  # noqa: E402
from audit.models import AuditLog  # noqa: E402
from audit.verification import inspection  # noqa: E402
from config.local import embedded  # noqa: E402

LOG = "bench"
_BATCH = 10_000
_FIELDS = {
    "organization": LOG, "code": "TOOL.END", "outcome": "success", "reason": "",
    "actor_kind": "agent", "actor_id": "a1", "token_id": "t1", "subject_digest": "",
    "source_ip": "10.0.0.1",
}  # fmt: skip
Columns = tuple[object, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--processes", type=int, default=os.process_cpu_count())
    parser.add_argument("--verify", choices=["whole", "daily"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.verify:
        _verify(options.verify, options.processes)
        return
    data = Path(os.environ["TOOLCRIB_DATA"])
    try:
        with embedded.running_servers(data):
            _measure(options.checkpoints, options.records, options.processes)
            connection.close()
            connection.close_pool()
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _measure(count: int, records: int, processes: int) -> None:
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT format('ALTER DATABASE %I SET idle_in_transaction_session_timeout"
                       " = %L', current_database(), '1s')")  # fmt: skip
        cursor.execute(cursor.fetchone()[0])
    began = time.perf_counter()
    writer = _Writer(datetime.now(UTC) - timedelta(seconds=count + 3_600), records // count)
    writer.grow(count)
    records = writer.size
    print(
        f"{count:,} checkpoints, {records:,} records made in {time.perf_counter() - began:,.0f} s"
    )
    print(f"{'':28} {'s':>8} {'peak MiB':>9}", flush=True)
    _in_process("whole", "a whole verification", processes)
    inspection.verify_all_logs()  # puts on record how far
    seal_logs(LOG)
    writer.go_on()
    writer.grow(3_600)
    _in_process("daily", "a daily one, an hour later", 1)
    began = time.perf_counter()
    gone = (
        checkpoint_retention.thin_checkpoints(AuditLog.objects.get(name=LOG)),
        anchors.thin_anchors(LOG),
    )
    print(f"thinned by {gone} in {time.perf_counter() - began:,.0f} s", flush=True)
    _in_process("whole", "a whole one afterwards", processes)


def _in_process(which: str, name: str, processes: int) -> None:
    words = ["-m", "tests.benchmarks.long_log", "--verify", which, "--processes", str(processes)]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    peak = int(done.stdout.split()[-1]) / 1024
    print(f"{name:28} {time.perf_counter() - began:8,.1f} {peak:9,.0f}", flush=True)


def _verify(which: str, processes: int) -> None:
    """In a process of its own, whose largest memory, or that of its largest child, is printed."""
    words = ["--resume"] if which == "daily" else []
    call_command("audit_verify", *words, "--log", LOG, "--processes", str(processes))
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    print(max(resource.getrusage(one).ru_maxrss for one in who))


class _Writer:
    """Writes a log as the sealer would have, `step` records under each checkpoint, one a second."""

    def __init__(self, begin: datetime, step: int) -> None:
        self.begin, self.step = begin, step
        self.log = AuditLog.objects.create(name=LOG, anchored=True)
        (self.signer,) = key_files.next_signers(LOG, "")
        self.size, self.frontier = 0, list[bytes]()
        self.nodes: list[Columns] = []
        self.file = anchors._log_directory(LOG) / "00000001.jsonl"
        self.file.parent.mkdir(parents=True, mode=0o700)

    def go_on(self) -> None:
        """From what others have sealed."""
        self.log.refresh_from_db()
        self.size = self.log.size
        self.frontier = split_frontier(bytes(self.log.frontier), self.size)
        self.file = anchors._anchor_files(self.file.parent)[-1]

    def grow(self, count: int) -> None:
        """By so many checkpoints."""
        with self.file.open("ab") as published:
            for numbers in batched(range(count * self.step), _BATCH, strict=False):
                notes = self._add(len(numbers))
                published.writelines(
                    anchors.anchor_line(anchors.Anchor(LOG, note)) for note in notes
                )
        _copy("audit_auditnode (log_id, level, index, hash)", self.nodes)
        self.nodes.clear()
        AuditLog.objects.filter(pk=self.log.pk).update(
            size=self.size, frontier=b"".join(self.frontier), sealed_at=datetime.now(UTC)
        )
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")

    def _add(self, count: int) -> list[str]:
        written: list[Columns] = []
        placed: list[Columns] = []
        noted: list[Columns] = []
        for _ in range(count):
            at = self.begin + timedelta(
                seconds=self.size // self.step, milliseconds=self.size % self.step
            )
            record_id, row, line = _record(self.size, at)
            made = merkle.leaf_hash(line)
            written.append(row)
            mac = leaves.position_mac(LOG, self.size, made)
            placed.append((self.log.pk, self.size, record_id, made, mac))
            self.size = merkle.extend(self.frontier, self.size, [made], self._completed)
            if self.size % self.step == 0:
                root, note = self._signed(signed_at := at + timedelta(milliseconds=500))
                noted.append((self.log.pk, self.size, root, note, signed_at))
        _copy(f"audit_auditrecord ({', '.join(leaves.COLUMNS)}, mac, occurred_at)", written)
        _copy("audit_auditleaf (log_id, index, record_id, hash, mac)", placed)
        _copy("audit_checkpoint (log_id, size, root, note, created_at)", noted)
        return [str(row[3]) for row in noted]

    def _completed(self, level: int, index: int, made: bytes) -> None:
        if level % 8 == 0:
            self.nodes.append((self.log.pk, level, index, made))

    def _signed(self, at: datetime) -> tuple[bytes, str]:
        root = merkle.frontier_root(self.frontier)
        statement = checkpoints.CheckpointStatement(key_files.log_origin(LOG), self.size, root, at)
        return root, checkpoints.sign_statement(statement, self.signer)


def _record(number: int, at: datetime) -> tuple[UUID, Columns, bytes]:
    made = int(at.timestamp() * 1000).to_bytes(6)
    record_id = UUID(bytes=made + b"\x70\x00\x80\x00" + number.to_bytes(6))
    details = leaves.canonical_details({"duration_ms": number % 1000})
    values: dict[str, object] = _FIELDS | {
        "id": str(record_id),
        "actor": f"agent-{number % 100}",
        "subject": f"tool-{number % 50}",
        "request_id": f"req-{number}",
        "execution_id": None,
    }
    body = leaves.record_body(values, details)
    mac = leaves.record_mac(LOG, body)
    line = leaves.leaf_line(body, mac, at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    values["details"] = details.decode()
    return record_id, (*(values[name] for name in leaves.COLUMNS), mac, at), line


def _copy(target: str, rows: list[Columns]) -> None:
    copy = f"COPY {target} FROM STDIN"
    with transaction.atomic(), connection.cursor() as cursor, cursor.copy(copy) as into:
        for row in rows:
            into.write_row(row)


if __name__ == "__main__":
    main()
