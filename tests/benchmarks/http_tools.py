"""What a call of an http tool takes beside one of read_file, over HTTP and down the whole road.

    python -m tests.benchmarks.http_tools [--seconds 10]

Starts a Toolcrib of its own in a new directory, and a server on loopback that answers at once;
removes both again. The difference is the request itself: the broker's look at it, a connection,
and an answer that is read inside the sandbox.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from tests import crib, factories  # noqa: E402
from tests.benchmarks.calls import Load, measured  # noqa: E402
from tests.stubs.web import Reply, Web, serving  # noqa: E402
from tools.models import Organization  # noqa: E402

CALLS = {"read_file": {"path": "x.txt"}, "ask": {"id": "7"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running, serving() as web:
        token = _prepared(web)
        print(f"{'tool':>12}{'calls':>10}{'p50 ms':>10}{'p95 ms':>10}{'not 200':>10}")
        for name, parameters in CALLS.items():
            load = Load(
                urlsplit(running.url).netloc,
                token,
                f"/api/v1/tools/{name}/execute",
                json.dumps({"parameters": parameters, "group": ["*"]}).encode(),
            )
            measured(load, clients=1, seconds=options.seconds)
            cuts = statistics.quantiles(load.times_ms, n=20)
            print(
                f"{name:>12}{len(load.times_ms):>10}{cuts[9]:>10.1f}{cuts[18]:>10.1f}"
                f"{load.others:>10}"
            )
    crib.remove(data)


def _prepared(web: Web) -> str:
    """The token of an agent that may call both."""
    web.replies["/things/7"] = Reply(headers=[("Content-Type", "application/json")], body=b"[7]")
    place = factories.organization("asking")
    hosts = [{"host": "127.0.0.1", "ports": [web.port]}]
    Organization.objects.filter(pk=place.pk).update(allowed_hosts=hosts)
    factories.workspace_file(place, "x.txt", b"x")
    factories.tool(
        place, "ask", type="http", delivery="pure",
        parameters=[{"name": "id", "type": "String", "description": "Which.", "required": True}],
        implementation={"method": "GET", "url": web.url("/things/{id}")},
    )  # fmt: skip
    return factories.token(factories.agent(place, groups=["*"]).service_account)


if __name__ == "__main__":
    main()
