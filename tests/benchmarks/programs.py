"""What a program costs beside the same calls made one by one over REST.

    python -m tests.benchmarks.programs [--calls 0 1 10] [--rounds 5]

Starts a Toolcrib of its own in a new directory and removes it again. The calls read one small file,
one after the other or together; every figure is the median of the rounds, by turns.
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

GROUPS = ["default", "read-only", "composition"]
READ = {"tool_name": "read_file", "parameters": {"path": "note.txt"}}
IN_TURN = "for _ in range(inputs['calls']):\n    read_file(path='note.txt')\n"
TOGETHER = "call_many([('read_file', {'path': 'note.txt'})] * inputs['calls'])\n"
type Post = Callable[[dict[str, Any]], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, nargs="+", default=[0, 1, 10])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running:
        post = _poster(running.url)
        print(f"{'calls':>5}  {'':24} {'median of ' + str(options.rounds):>12} {'each':>10}")
        for calls in options.calls:
            _print_times(_ways(post, calls), calls, options.rounds)
        for connection in connections.all():
            connection.close()
            connection.close_pool()
    crib.remove(data)


def _poster(url: str) -> Post:
    place = factories.organization("programs")
    factories.install(place)
    factories.workspace_file(place, "note.txt", b"a note")
    agent = factories.agent(place, groups=GROUPS)
    token, where = factories.token(agent.service_account), urlsplit(url)
    client = HTTPConnection(where.hostname or "", where.port, timeout=600)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(body: dict[str, Any]) -> None:
        wanted = body | {"group": GROUPS, "options": {"wait_s": 60}}
        client.request("POST", "/api/v1/executions", dumps(wanted), headers)
        answer = loads(client.getresponse().read())
        if answer.get("status") != "Success":
            raise SystemExit(f"{body['tool_name']}: {answer}")

    return post


def _ways(post: Post, calls: int) -> dict[str, Callable[[], object]]:
    def one_by_one() -> None:
        for _ in range(calls):
            post(READ)

    ways: dict[str, Callable[[], object]] = {
        "a program, in turn": partial(post, _program(IN_TURN, calls))
    }
    if calls > 1:
        ways["a program, together"] = partial(post, _program(TOGETHER, calls))
    if calls:
        ways["one by one over REST"] = one_by_one
    return ways


def _program(source: str, calls: int) -> dict[str, Any]:
    parameters = {"source": source, "inputs": {"calls": calls}}
    return {"tool_name": "run_program", "parameters": parameters}


def _print_times(ways: dict[str, Callable[[], object]], calls: int, rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # so that every sandbox is warm
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            took[name].append(time.perf_counter() - began)
    for name, times in took.items():
        median = statistics.median(times) * 1000
        each = f"{median / calls:7.1f} ms" if calls else ""
        print(f"{calls:5}  {name:24} {median:9.1f} ms {each:>10}")


if __name__ == "__main__":
    main()
