"""What evidence costs a call: the same product with it and without, in turns, over HTTP.

    python -m tests.benchmarks.audit_cost [--seconds 15] [--turns 3] [--clients 1 8]

Starts a Toolcrib of its own for each turn. The one without records cannot be switched so by any
setting: it is started with `tests/benchmarks/unaudited` on its path. Targets: at most 2 ms more at
p95, and at least 85 % of the calls a second.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from config.local import embedded
from tests import crib
from tests.benchmarks.calls import Load, measured

MOST_ADDED_MS, LEAST_KEPT = 2.0, 0.85
RECORDS = "SELECT count(*) FROM audit_auditrecord WHERE code LIKE 'TOOL.%'"
SILENT = Path(__file__).resolve().parent / "unaudited"
BODY = b"""{"parameters": {"format": "json", "content": "{}", "schema": {"type": "object"}},
    "group": ["read-only"]}"""
Row = tuple[float, float, float]  # p50 and p95 in milliseconds, calls a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tool", default="validate_content")
    options = parser.parse_args()
    seen: dict[tuple[int, bool], list[Row]] = defaultdict(list)
    for turn in range(options.turns):
        for audited in (True, False) if turn % 2 else (False, True):
            with _product(audited) as (url, token, data):
                for clients in options.clients:
                    row = _measure(url, token, options.tool, clients, options.seconds)
                    seen[clients, audited].append(row)
                _check(data, audited)
    _print(options.clients, seen)


@contextmanager
def _product(audited: bool) -> Iterator[tuple[str, str, Path]]:
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = "" if audited else str(SILENT)
    data = Path(tempfile.mkdtemp(prefix="tc-bench-"))
    with crib.running(data) as running:
        command = [sys.executable, "manage.py", "create_agent", "bench", "--group", "read-only",
                   "--tool", "*"]  # fmt: skip
        environment = os.environ | {"TOOLCRIB_DATA": str(data)}
        made = subprocess.run(
            command, cwd=crib.CHECKOUT, env=environment, capture_output=True, text=True, check=True
        )
        token = next(word for word in made.stdout.split() if word.startswith("tcr_"))
        yield running.url, token, data
    crib.remove(data)


def _check(data: Path, audited: bool) -> None:
    """A comparison with itself would look as if evidence cost nothing."""
    with psycopg.connect(embedded.database_url(data)) as database:
        row = database.execute(RECORDS).fetchone()
    if bool(row and row[0]) != audited:
        raise SystemExit(f"{row and row[0]} records of calls, and it was to write {audited=}")


def _measure(url: str, token: str, tool: str, clients: int, seconds: float) -> Row:
    load = Load(url.removeprefix("http://"), token, f"/api/v1/tools/{tool}/execute", BODY)
    rate = measured(load, clients=clients, seconds=seconds)
    cuts = statistics.quantiles(load.times_ms, n=100)
    if load.others:
        print(f"{load.others} of {len(load.times_ms)} calls did not succeed")
    return cuts[49], cuts[94], rate


def _print(clients: list[int], seen: dict[tuple[int, bool], list[Row]]) -> None:
    heads = ("clients", "p50 ms", "without", "p95 ms", "without", "added", "calls/s", "without")
    print("".join(f"{head:>10}" for head in (*heads, "kept")))
    print(f"{'at most':>50}{MOST_ADDED_MS:>10.1f}{'at least':>20}{LEAST_KEPT:>10.0%}")
    for count in clients:
        audited, silent = (_medians(seen[count, one]) for one in (True, False))
        shown = (audited[0], silent[0], audited[1], silent[1], audited[1] - silent[1])
        print(
            f"{count:>10}{''.join(f'{value:>10.1f}' for value in (*shown, audited[2], silent[2]))}"
            f"{audited[2] / silent[2]:>10.0%}"
        )


def _medians(rows: list[Row]) -> Row:
    p50, p95, rate = (statistics.median(column) for column in zip(*rows, strict=True))
    return p50, p95, rate


if __name__ == "__main__":
    main()
