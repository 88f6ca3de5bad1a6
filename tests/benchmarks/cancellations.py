"""How soon a cancelled call is gone: from the request to the end of the last process of its tree.

    python -m tests.benchmarks.cancellations [--calls 20]

Starts a Toolcrib of its own in a new directory and removes it again. Each call leaves grandchildren
in sessions of their own which ignore SIGTERM; it is cancelled over HTTP as its caller would. The
figure holds all there is between: the request, the worker's next look at its leases (250 ms apart),
sandboxd, and the kernel's kill.
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from tests import crib, factories  # noqa: E402
from tests.conditions import until  # noqa: E402
from tests.sandbox.run_observer import all_end, pidfds_of  # noqa: E402

STUBBORN = """
import subprocess, sys, time
STAY = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(86400) # "
BEAR = "import os, sys; a = [sys.executable, '-S', '-c', sys.argv[1]]\\n" + \\
    "for n in range(4):\\n if os.fork() == 0:\\n  os.setsid()\\n  os.execv(sys.executable, a)"
def main(p):
    subprocess.run([sys.executable, "-S", "-c", BEAR, STAY + p["text"]])
    time.sleep(86400)
"""
LONGEST_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running:
        place = factories.organization("cancelling")
        factories.tool(place, implementation={"source": STUBBORN}, delivery="external")
        token = factories.token(factories.agent(place).service_account)
        times_ms = sorted(_cancelled_ms(running.url, token) for _ in range(options.calls))
    crib.remove(data)
    median, worst = statistics.median(times_ms), times_ms[-1]
    print(f"cancelled until gone: median {median:.0f} ms, longest {worst:.0f} ms ({options.calls})")


def _cancelled_ms(url: str, token: str) -> float:
    marker = f"marker-{uuid4().hex}"
    body = {"parameters": {"text": marker}, "options": {"wait_s": 0}}
    called = _post(url, token, "/api/v1/tools/echo/execute", body)
    until(lambda: len(pidfds_of(marker)) >= 4, 30)
    members = pidfds_of(marker)
    began = time.perf_counter()
    _post(url, token, f"/api/v1/executions/{called['execution_id']}/cancel")
    if not all_end(members, LONGEST_S):
        raise SystemExit(f"Something of a cancelled call lived on after {LONGEST_S:g} s.")
    return (time.perf_counter() - began) * 1000


def _post(url: str, token: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    calls = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    calls.request("POST", path, json.dumps(body) if body else None, headers)
    return json.loads(calls.getresponse().read())


if __name__ == "__main__":
    main()
