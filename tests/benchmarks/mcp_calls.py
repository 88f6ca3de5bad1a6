"""What a call of a warm MCP server over HTTP costs more than the server itself.

    python -m tests.benchmarks.mcp_calls [--calls 2000] [--era 2026-07-28]

The server is a process of its own on loopback. `directly` posts the same message over one
connection that is kept; `ours` is the client that calls of tools go through, holding them to a
list that is there; `asking first` reads the list before every call, as it is by default. The three
take turns, so that a noisy machine is noisy for all of them.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from sandbox.egress.dial import Dialer, Resolver, client_context  # noqa: E402
from sandbox.egress.rules.addresses import AddressGate, read_network  # noqa: E402
from sandbox.egress.rules.grammar import Url  # noqa: E402
from tests.stubs.mcp import MODERN, mcp_serving  # noqa: E402
from tools.mcpclient.client_pool import McpClientPool, McpEndpoint  # noqa: E402
from tools.mcpclient.http_transports import StreamableHttpTransport  # noqa: E402

ARGUMENTS = {"a": 1, "b": "two"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--era", default=MODERN)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, options.era))
    server.start()
    url = ours.recv()
    pool = McpClientPool()
    ways = _ways(pool, url)
    try:
        times = _measured(ways, options.calls)
    finally:
        pool.close()
        ours.send("end")
        server.join()
    _print(times)


def _serve(pipe: Connection, era: str) -> None:
    with mcp_serving(era) as stub:
        pipe.send(stub.url)
        while not pipe.poll(0.5):
            stub.messages.clear()  # it notes all that it hears
            stub.web.seen.clear()


def _ways(pool: McpClientPool, url: str) -> dict[str, Callable[[], Any]]:
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80)
    body, headers = _message()

    def directly() -> None:
        connection.request("POST", target.path, body, headers)
        answer = json.loads(connection.getresponse().read())
        assert "result" in answer, answer

    kept, fresh = _endpoint(url, "kept", 3600.0), _endpoint(url, "fresh", 0.0)
    pin = pool.list_tools(kept, 30).tools["echo"].digest
    return {
        "directly": directly,
        "ours": lambda: pool.call_tool(kept, "echo", ARGUMENTS, timeout_s=30, pin=pin),
        "asking first": lambda: pool.call_tool(fresh, "echo", ARGUMENTS, timeout_s=30, pin=pin),
    }


def _message() -> tuple[bytes, dict[str, str]]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": ARGUMENTS, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }
    return json.dumps(message).encode(), headers


def _endpoint(url: str, name: str, list_max_age_s: float) -> McpEndpoint:
    dialer = Dialer(Resolver(), AddressGate([read_network("127.0.0.0/8")]), client_context())
    return McpEndpoint(
        name,
        name,
        lambda: StreamableHttpTransport(Url.parse(url), [], dialer),
        list_max_age_s=list_max_age_s,
    )


def _measured(ways: dict[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(calls + 50):
        for name, call in ways.items():
            began = time.perf_counter()
            call()
            if number >= 50:  # the first ones warm it
                times[name].append((time.perf_counter() - began) * 1000)
    return times


def _print(times: dict[str, list[float]]) -> None:
    base = statistics.median(times["directly"])
    print(f"{'':>14}{'calls':>8}{'p50 ms':>9}{'p95 ms':>9}{'more, p50':>11}")
    for name, found in times.items():
        cuts = statistics.quantiles(found, n=20)
        print(f"{name:>14}{len(found):>8}{cuts[9]:>9.2f}{cuts[18]:>9.2f}{cuts[9] - base:>11.2f}")


if __name__ == "__main__":
    main()
