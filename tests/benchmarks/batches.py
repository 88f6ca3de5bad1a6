"""What a batch and a chain cost beside the same calls made one by one over REST.

    python -m tests.benchmarks.batches [--calls 100] [--rounds 5]

Starts a Toolcrib of its own in a new directory and removes it again. The calls read one small file;
every figure is the median of the rounds, by turns.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection
from json import dumps, loads
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connections  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.definitions.chains.chain_document import chain_definition  # noqa: E402

GROUPS = ["default", "read-only", "composition"]
READ = {"tool_name": "read_file", "parameters": {"path": "note.txt"}}
MOST_STEPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running:
        post = _poster(running.url, options.calls)
        _print_times(_ways(post, options.calls), options.calls, options.rounds)
        for connection in connections.all():
            connection.close()
            connection.close_pool()
    crib.remove(data)


def _poster(url: str, calls: int) -> Callable[[str, dict[str, Any]], Any]:
    place = factories.organization("batches")
    factories.install(place)
    factories.workspace_file(place, "note.txt", b"a note")
    steps = [{"id": f"s{number}", **READ} for number in range(min(calls, MOST_STEPS))]
    chain = {"name": "reads", "description": "Reads.", "group": ["default"], "steps": steps}
    factories.register(place, chain_definition(chain))
    agent = factories.agent(place, groups=GROUPS)
    token, where = factories.token(agent.service_account), urlsplit(url)
    client = HTTPConnection(where.hostname or "", where.port, timeout=600)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(path: str, body: dict[str, Any]) -> Any:
        wanted = body | {"group": GROUPS, "options": {"wait_s": 60}}
        client.request("POST", f"/api/v1{path}", dumps(wanted), headers)
        answer = loads(client.getresponse().read())
        if answer.get("status") != "Success":
            raise SystemExit(f"{path}: {answer}")
        return answer

    return post


def _ways(
    post: Callable[[str, dict[str, Any]], Any], calls: int
) -> dict[str, Callable[[], object]]:
    batch: dict[str, Any] = {"inputs": [READ] * calls}

    def one_by_one() -> None:
        for _ in range(calls):
            post("/executions", dict(READ))

    return {
        "one by one over REST": one_by_one,
        "a batch, sequential": partial(post, "/batches", batch),
        "a batch, 2 at once": partial(
            post, "/batches", batch | {"mode": "parallel", "max_parallel": 2}
        ),
        "a batch, 8 at once": partial(
            post, "/batches", batch | {"mode": "parallel", "max_parallel": 8}
        ),
        "a chain of as many steps": partial(post, "/chains/reads/execute", {"parameters": {}}),
    }


def _print_times(ways: dict[str, Callable[[], object]], calls: int, rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # so that every sandbox is warm
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            took[name].append(time.perf_counter() - began)
    print(f"{calls} calls, median of {rounds}:")
    first = statistics.median(took["one by one over REST"])
    for name, times in took.items():
        median = statistics.median(times)
        print(f"  {name:28} {median:7.2f} s {median / calls * 1000:7.1f} ms each "
              f"{median / first:6.2f} of one by one")  # fmt: skip


if __name__ == "__main__":
    main()
