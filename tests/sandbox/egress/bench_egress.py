"""What the broker costs on this machine. Not a test: `python -m tests.sandbox.egress.bench_egress`.

Prints one table: each request on a connection of its own, with and without the broker between.
"""

import contextlib
import http.client
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy, HostRule
from sandbox.egress.ticket_client import EgressClient, attach
from sandbox.inside import sandbox_http
from tests.sandbox.egress.test_process import LOOPBACK, Process
from tests.stubs.web import Authority, Reply, Web, serving

TIMES = 1000


def timed(what: Callable[[], object], times: int = TIMES) -> list[float]:
    """Milliseconds of each, in order of size."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


def show(name: str, values: list[float]) -> None:
    p50, p95 = values[len(values) // 2], values[int(len(values) * 0.95)]
    print(f"{name:38} {p50:8.3f} p50 {p95:8.3f} p95 ms, n={len(values)}")


def directly(web: Web, context: ssl.SSLContext | None) -> Callable[[], object]:
    def fetch() -> bytes:
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        options = {"context": context} if context else {}
        with contextlib.closing(kind("127.0.0.1", web.port, **options)) as connection:
            connection.request("GET", "/")
            return connection.getresponse().read()

    return fetch


@contextlib.contextmanager
def broker(ca: str) -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        one = Process(f"{directory}/s", *LOOPBACK, "--ca", ca)
        try:
            yield one
        finally:
            one.stop()


def rule(web: Web) -> HostRule:
    return HostRule("127.0.0.1", ports=(web.port,))


def requests(one: Process, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    context.verify_flags = ssl.VerifyFlags.VERIFY_DEFAULT
    with serving() as plain, serving(authority) as secure:
        for name, web, direct in (("http", plain, None), ("https", secure, context)):
            web.replies["/"] = Reply(body=b"x" * 1000)
            with one.run(rule(web), requests=1 << 30, response_bytes=1 << 40):
                show(f"{name}, direct", timed(directly(web, direct)))
                show(
                    f"{name}, through the broker",
                    timed(lambda web=web: sandbox_http.get(web.url())),
                )


def throughput(one: Process) -> None:
    with serving() as web, one.run(rule(web), response_bytes=1 << 40):
        web.replies["/"] = lambda seen: Reply(body=(b"x" * 1_000_000 for _ in range(45)))
        began = time.perf_counter()
        size = sum(len(sandbox_http.get(web.url()).body) for _ in range(10))
        speed = size / (time.perf_counter() - began) / 1e6
    print(f"{'one run, one answer after the other':38} {speed:8.0f} MB/s")


def tickets(one: Process) -> None:
    policy = EgressPolicy((HostRule("api.example.com"), HostRule("*.example.org")))
    show("open a ticket", sorted(_opened(one, policy)))
    show("open and close a ticket", timed(lambda: one.client.open(policy, "acme").close()))
    show("open, attach, end, close", timed(lambda: _open_attach_close(one, policy)))
    rate = _rate(one.path, policy, clients=4, seconds=3)
    print(f"{'tickets opened and closed by 4 threads':38} {rate:8.0f} a second")


def _opened(one: Process, policy: EgressPolicy) -> Iterator[float]:
    for _ in range(TIMES):
        began = time.perf_counter()
        ticket = one.client.open(policy, "acme")
        yield (time.perf_counter() - began) * 1000
        ticket.close()


def _open_attach_close(one: Process, policy: EgressPolicy) -> None:
    near, far = sandbox_http.socket.socketpair()
    with one.client.open(policy, "acme") as ticket, near, far:
        attach(one.path, ticket.name, helper=far, proxy=None).close()


def _rate(path: str, policy: EgressPolicy, *, clients: int, seconds: float) -> float:
    client, counts = EgressClient(path), [0] * clients
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < until:
            client.open(policy, "acme").close()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()
    return sum(counts) / seconds


def fairness(one: Process) -> None:
    """One run takes an endless answer; another one asks for small things meanwhile."""
    stop = threading.Event()
    with serving() as web:
        web.replies["/"] = Reply(body=b"x")
        web.replies["/big"] = lambda seen: Reply(body=iter(lambda: b"x" * 1_000_000, stop))
        policy = EgressPolicy((rule(web),), EgressLimits(response_bytes=1 << 40))
        near, far = sandbox_http.socket.socketpair()
        greedy = sandbox_http._Door(near)
        with (
            one.client.open(policy, "acme") as ticket,
            near,
            far,
            one.run(rule(web), requests=1 << 30),
        ):
            lifeline = attach(one.path, ticket.name, helper=far, proxy=None)
            eating = threading.Thread(target=_eat, args=(greedy, web.url("/big"), stop))
            eating.start()
            show("http, beside a greedy run", timed(lambda: sandbox_http.get(web.url()), 300))
            stop.set()
            eating.join()
            lifeline.close()


def _eat(door: sandbox_http._Door, url: str, stop: threading.Event) -> None:
    request = sandbox_http._Request("GET", url, {}, b"")
    with door.conversation(request, time.monotonic() + 600) as talk:
        talk.head()
        for _ in talk.pieces():
            if stop.is_set():
                return


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        authority = Authority(Path(directory), "127.0.0.1")
        with broker(authority.file) as one:
            print(f"broker when it is ready: {one.status('VmRSS') / 1024:.1f} MB")
            requests(one, authority)
            throughput(one)
            tickets(one)
            fairness(one)
            print(f"broker afterwards: {one.status('VmRSS') / 1024:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
