"""What a reference costs beside the value itself, and how fast a large output is streamed.

    python -m tests.benchmarks.results [--calls 200] [--reads 10]

Starts a Toolcrib of its own in a new directory and removes it again. The gates are asked in this
process, and nothing is run; outputs are read over HTTP from the running product.
"""

import argparse
import http.client
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connections  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.definitions.callers import Caller  # noqa: E402
from tools.execution import outputs  # noqa: E402
from tools.execution.admit import ADMISSION  # noqa: E402
from tools.execution.call import Admission  # noqa: E402
from tools.limits import load_shedder  # noqa: E402
from tools.models import Agent  # noqa: E402

MIB = 1024 * 1024
TEXT = "x" * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--reads", type=int, default=10)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running:
        place = factories.organization("results")
        factories.tool(place)
        agent = factories.agent(place)
        _tell_references(agent, options.calls)
        _tell_streams(agent, running.url, options.reads)
        for connection in connections.all():
            connection.close()
            connection.close_pool()
    crib.remove(data)


def _tell_references(agent: Agent, calls: int) -> None:
    caller, small = factories.caller(agent), _gave(agent, {"text": TEXT})
    row = _gave(agent, {"text": TEXT, "rest": "y" * (MIB - 300)})
    apart = _gave(agent, {"text": TEXT, "rest": ["y" * 1000] * 10_000})
    values = {
        "the value itself": TEXT,
        "a reference to a small output": _pointing(small),
        "a reference into 1 MiB in the row": _pointing(row),
        "a reference into 10 MB outside of it": _pointing(apart),
    }
    times: dict[str, list[float]] = {words: [] for words in values}
    for _ in range(calls):  # in turns: what else the machine does meets all alike
        for words, value in values.items():
            times[words].append(_ms(partial(_ask, caller, value)))
    for words, found in times.items():
        print(f"every gate asked, with {words}: {_summary(found)}")


def _tell_streams(agent: Agent, url: str, reads: int) -> None:
    token = factories.token(agent.service_account)
    place = f"/api/v1/executions/{_gave(agent, 'z' * (10 * MIB))}/output"
    whole = [_ms(lambda: _read(url, token, place, 10 * MIB)) for _ in range(reads)]
    print(f"10 MiB streamed: {_summary(whole)}, {10_000 / statistics.median(whole):.0f} MiB/s")
    middle = {"Range": f"bytes={5 * MIB}-{5 * MIB + 65_535}"}
    part = [_ms(lambda: _read(url, token, place, 65_536, middle)) for _ in range(reads)]
    print(f"64 KiB out of its middle: {_summary(part)}")


def _ask(caller: Caller, value: Any) -> None:
    """Up to where the row would be written."""
    admission = Admission(caller, factories.call("echo", {"text": value}))
    for step in ADMISSION:
        step(admission)
    load_shedder.LOAD_SHEDDER.leave(admission.limits.arrival, written=False)


def _gave(agent: Agent, output: Any) -> UUID:
    """An execution that is over, its output where the product puts it."""
    execution = factories.execution(agent)
    stored = outputs.pack_output(output)
    outputs.store_output(execution.organization_id, stored)
    factories.end_execution(
        execution, output=stored.output, output_digest=stored.digest, output_type=stored.type,
        output_bytes=stored.size,
    )  # fmt: skip
    return execution.pk


def _pointing(execution: UUID) -> dict[str, str]:
    return {"$result": str(execution), "path": "/output/text"}


def _read(url: str, token: str, path: str, size: int, more: dict[str, str] | None = None) -> None:
    headers = {"Authorization": f"Bearer {token}", **(more or {})}
    reader = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    reader.request("GET", path, headers=headers)
    answer = reader.getresponse()
    if len(answer.read()) != size:
        raise SystemExit(f"{path} was answered {answer.status}, and not with {size} bytes.")
    reader.close()


def _ms(deed: Callable[[], None]) -> float:
    began = time.perf_counter()
    deed()
    return (time.perf_counter() - began) * 1000


def _summary(times_ms: list[float]) -> str:
    ordered = sorted(times_ms)
    p95 = ordered[int(len(ordered) * 0.95)]
    return f"median {statistics.median(ordered):.1f} ms, p95 {p95:.1f} ms ({len(ordered)})"


if __name__ == "__main__":
    main()
