"""How long a governed, sandboxed call takes over HTTP, and how many fit into a second.

    python -m tests.benchmarks.calls --url http://127.0.0.1:8000 --token tcr_… [--tool read_file]

Starts nothing: give it a running Toolcrib and an agent's token. Prints a table of medians.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Load:
    """What the clients of one row send, and what they saw."""

    netloc: str
    token: str
    path: str
    body: bytes
    times_ms: list[float] = field(default_factory=list)
    others: int = 0


def main() -> None:
    options = _arguments()
    body = {"parameters": json.loads(options.parameters), "group": options.group}
    heads = ("clients", "calls", "p50 ms", "p95 ms", "p99 ms", "calls/s", "not 200")
    print("".join(f"{head:>10}" for head in heads))
    for clients in options.clients:
        load = Load(
            urlsplit(options.url).netloc,
            options.token,
            f"/api/v1/tools/{options.tool}/execute",
            json.dumps(body).encode(),
        )
        rate = measured(load, clients=clients, seconds=options.seconds)
        cuts = statistics.quantiles(load.times_ms, n=100)
        print(
            f"{clients:>10}{len(load.times_ms):>10}{cuts[49]:>10.1f}{cuts[94]:>10.1f}{cuts[98]:>10.1f}"
            f"{rate:>10.1f}{load.others:>10}"
        )


def measured(load: Load, *, clients: int, seconds: float) -> float:
    """Calls a second, when everything is warm; the load holds their times."""
    _measure(load, clients=1, seconds=2)
    load.times_ms.clear()
    return _measure(load, clients=clients, seconds=seconds)


def _measure(load: Load, *, clients: int, seconds: float) -> float:
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=_client, args=(load, end)) for _ in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(load.times_ms) / (time.monotonic() - began)


def _client(load: Load, end: float) -> None:
    connection = http.client.HTTPConnection(load.netloc, timeout=70)
    headers = {"Authorization": f"Bearer {load.token}", "Content-Type": "application/json"}
    while time.monotonic() < end:
        began = time.perf_counter()
        connection.request("POST", load.path, load.body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        load.times_ms.append((time.perf_counter() - began) * 1000)
        load.others += response.status != 200 or answer.get("status") != "Success"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", required=True)
    parser.add_argument("--tool", default="read_file")
    parser.add_argument("--parameters", default='{"path": "notes.txt"}')
    parser.add_argument("--group", nargs="*", default=["read-only"])
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
