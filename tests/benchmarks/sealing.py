"""How long a record waits for its place, and how quickly places are given.

    python -m tests.benchmarks.sealing [--rate 500] [--seconds 30] [--backlog 20000]

Starts a Toolcrib of its own in a new directory and removes it again. Its sealer is the one that is
measured; records are written at an even rate by this process, five in a transaction.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection, transaction  # noqa: E402

from audit.actions import Actor, record  # noqa: E402
from audit.events import Event, Outcome  # noqa: E402
from audit.log.key_files import log_origin  # noqa: E402
from audit.log.proofs import inclusion_proof, proof_text  # noqa: E402
from audit.models import AuditLeaf, AuditLog, AuditRecord  # noqa: E402
from tests import crib  # noqa: E402
from tests.conditions import until  # noqa: E402

TARGET_S, TARGET_BYTES = 2.0, 2048
AT_ONCE = 5  # as many as a call leaves, more or less
_LOOK = "SELECT clock_timestamp(), (SELECT size FROM audit_auditlog WHERE name = %s)"
_TIMES = """
SELECT r.occurred_at FROM audit_auditrecord r JOIN audit_auditleaf l ON l.record_id = r.id
JOIN audit_auditlog g ON g.id = l.log_id WHERE g.name = %s ORDER BY l.index
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--backlog", type=int, default=20_000)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    try:
        with crib.running(data):
            _measure(options)
    finally:
        crib.remove(data)


def _measure(options: argparse.Namespace) -> None:
    lags, written = _lags(options.rate, options.seconds)
    rate = _rate(options.backlog)
    size = len(_proof_of_a_million().encode())
    real = len(inclusion_proof(AuditLeaf.objects.latest("log_id", "index").record_id).encode())
    print(f"{'':34}{'seen':>12}{'target':>12}")
    print(f"{'records written a second':34}{written:12.0f}{options.rate:12}")
    for name, share in (("seal lag p50, s", 0.5), ("seal lag p99, s", 0.99), ("most, s", 1)):
        print(f"{name:34}{lags[int((len(lags) - 1) * share)]:12.2f}{TARGET_S:12.2f}")
    print(f"{f'a backlog of {options.backlog}, records/s':34}{rate:12.0f}")
    print(f"{'proof in a log of a million, bytes':34}{size:12}{TARGET_BYTES:12}")
    print(f"{'proof of the newest record, bytes':34}{real:12}{TARGET_BYTES:12}")


def _write(name: str) -> None:
    by = Actor("person", "benchmark", name)
    record(Event.LOGIN, by=by, outcome=Outcome.SUCCESS, details={"session": None, "groups": ["a"]})


def _lags(rate: int, seconds: int) -> tuple[list[float], float]:
    """From a record's writing until its place was seen, sorted; and the rate that was kept."""
    looks: list[tuple[float, int]] = []
    over = threading.Event()
    looker = threading.Thread(target=_look, args=("steady", looks, over))
    looker.start()
    began, count = time.monotonic(), rate * seconds
    for number in range(0, count, AT_ONCE):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        with transaction.atomic():
            for _ in range(AT_ONCE):
                _write("steady")
    took = time.monotonic() - began
    until(lambda: looks and looks[-1][1] >= count, 60)
    over.set()
    looker.join()
    return _waits(looks), count / took


def _look(name: str, looks: list[tuple[float, int]], over: threading.Event) -> None:
    with connection.cursor() as cursor:
        while not over.wait(0.02):
            cursor.execute(_LOOK, [name])
            moment, size = cursor.fetchone()
            looks.append((moment.timestamp(), size or 0))
    connection.close()


def _waits(looks: list[tuple[float, int]]) -> list[float]:
    with connection.cursor() as cursor:
        cursor.execute(_TIMES, ["steady"])
        times = [moment.timestamp() for (moment,) in cursor.fetchall()]
    waits, at = [], 0
    for index, moment in enumerate(times):
        while looks[at][1] <= index:
            at += 1
        waits.append(looks[at][0] - moment)
    return sorted(waits)


def _rate(count: int) -> float:
    """Places given a second, from the commit of all of them at once."""
    with transaction.atomic():
        for _ in range(count):
            _write("backlog")
    assert AuditRecord.objects.filter(organization="backlog").count() == count
    began = time.monotonic()
    until(lambda: AuditLog.objects.filter(name="backlog", size=count).exists(), 120)
    return count / (time.monotonic() - began)


def _proof_of_a_million() -> str:
    """With the longest name a log can have, while a key is being replaced: two signatures."""
    name = log_origin("a" * 63)
    note = f"{name}\n1000000\n{'A' * 44}\ntime 2026-01-01T00:00:00.000000Z\n\n"
    return proof_text(999_999, [bytes(32)] * 20, note + 2 * f"\u2014 {name} {'A' * 92}\n")


if __name__ == "__main__":
    main()
