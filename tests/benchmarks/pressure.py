"""What overload does: how quickly calls are turned away, and what another organization notices.

    python -m tests.benchmarks.pressure [--seconds 20] [--flood 40]

Starts a Toolcrib of its own in a new directory and removes it again. One organization sends calls
from many clients and takes no rest, far more than its queue holds; another sends one at a time,
first alone and then beside it. Prints a table, and the memory of the web process.
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.models import Organization  # noqa: E402

SLEEPS = "import time\ndef main(parameters):\n    time.sleep(0.05)\n    return 1\n"
DEPTH = 100


@dataclass
class Seen:
    """Answers by status, each with its times in milliseconds."""

    times: dict[int, list[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, status: int, ms: float) -> None:
        with self.lock:
            self.times.setdefault(status, []).append(ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--flood", type=int, default=40, help="clients without rest")
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data) as running:
        flooding, quiet = _organization("flood"), _organization("quiet")
        connection.close()
        _send(running.url, quiet, wait_s=30, clients=1, seconds=3)  # warm
        alone = _send(running.url, quiet, wait_s=30, clients=1, seconds=options.seconds)
        before = _memory(data)
        seen: dict[str, Seen] = {}
        flood = threading.Thread(
            target=lambda: seen.update(
                flood=_send(running.url, flooding, wait_s=0, clients=options.flood,
                            seconds=options.seconds + 4)
            )
        )  # fmt: skip
        flood.start()
        time.sleep(4)
        beside = _send(running.url, quiet, wait_s=30, clients=1, seconds=options.seconds)
        flood.join()
        _print(alone, beside, seen["flood"])
        print(f"web: {before / 2**20:.0f} MiB before, {_memory(data) / 2**20:.0f} MiB after")
    crib.remove(data)


def _organization(slug: str) -> str:
    """The token of an agent with a tool that takes 50 ms."""
    place = factories.organization(slug)
    factories.tool(place, implementation={"source": SLEEPS})
    Organization.objects.filter(pk=place.pk).update(max_queue_depth=DEPTH)
    return factories.token(factories.agent(place).service_account)


def _send(url: str, token: str, *, wait_s: float, clients: int, seconds: float) -> Seen:
    seen, end = Seen(), time.monotonic() + seconds
    body = json.dumps({"parameters": {"text": "x"}, "options": {"wait_s": wait_s}}).encode()
    threads = [
        threading.Thread(target=_client, args=(url, token, body, end, seen)) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _client(url: str, token: str, body: bytes, end: float, seen: Seen) -> None:
    calls = http.client.HTTPConnection(urlsplit(url).netloc, timeout=70)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    while time.monotonic() < end:
        began = time.perf_counter()
        calls.request("POST", "/api/v1/tools/echo/execute", body, headers)
        response = calls.getresponse()
        response.read()
        seen.add(response.status, (time.perf_counter() - began) * 1000)


def _print(alone: Seen, beside: Seen, flood: Seen) -> None:
    print(f"{'':<34}{'status':>8}{'calls':>8}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}")
    rows = (("another organization, alone", alone), ("the same, beside the flood", beside))
    for what, seen in (*rows, ("the flood", flood)):
        for status, times in sorted(seen.times.items()):
            cuts = statistics.quantiles(times, n=100) if len(times) > 1 else [times[0]] * 99
            figures = "".join(f"{cuts[at]:>9.1f}" for at in (49, 94, 98))
            print(f"{what:<34}{status:>8}{len(times):>8}{figures}")
    counts = Counter({status: len(times) for status, times in flood.times.items()})
    print(f"turned away: {counts[429] + counts[503]} of {counts.total()}")


def _memory(data: Path) -> int:
    """Resident bytes of the web processes below this data directory."""
    pages = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            ours = str(data).encode() in (place / "environ").read_bytes()
            if ours and b"config.asgi" in (place / "cmdline").read_bytes():
                pages += int((place / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
