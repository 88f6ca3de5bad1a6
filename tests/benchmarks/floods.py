"""What another organization notices while one holds all that it can: seven floods, one at a time.

    python -m tests.benchmarks.floods [--rounds 5] [--only waits,bodies,…]

Starts a Toolcrib of its own in a new directory and removes it again. While a flood is held, another
organization probes, lists its tools, makes a call that takes 0.15 s, and logs in; the table has the
longest of each in milliseconds. `upstream` is a hundred calls whose callers wait for a server that
answers after 30 s: the web process performs a share of them. `names` needs a server of names that
never answers: this process and what it starts see another /etc/resolv.conf than the machine, which
takes root; others leave it out.
"""

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode, urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.catalog.sandbox import profiles  # noqa: E402
from tools.definitions.results import Status  # noqa: E402
from tools.models import Execution  # noqa: E402

SLEEPS = "import time\ndef main(parameters):\n    time.sleep({})\n    return 1\n"
ASKS = """
import sandbox_http, threading
def ask(name):
    for turn in range(100):
        try:
            sandbox_http.get(f"http://n{turn}.{name}.dead.example/", timeout_s=30)
        except sandbox_http.EgressError:
            pass
def main(parameters):
    names = [f"t{number}.{parameters['text']}" for number in range(4)]
    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""
NAMES = {
    "name": "names", "allow_network": True, "network_when_restricted": True,
    "allowed_hosts": ["*.dead.example"],
}  # fmt: skip
DEAD = "127.0.0.153"
SETTLE_S = 3.0
UPSTREAM_CALLS, UPSTREAM_S = 100, 30.0
LOUD = "127.0.0.9"  # where floods come from: bounds of an address are not what is measured
PASSWORD = "correct horse"  # of tests/factories.py


@dataclass(frozen=True)
class Place:
    """An organization: tokens of its agents, and a person who logs in."""

    slug: str
    tokens: tuple[str, str]
    person: str

    @property
    def token(self) -> str:
        return self.tokens[0]


class Client:
    """One connection."""

    def __init__(self, url: str, token: str = "", source: str = "127.0.0.1") -> None:
        place = urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(place, timeout=120, source_address=(source, 0))
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, method: str, path: str, body: object = None, **headers: str) -> None:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content and not headers else {}
        environ = {name.replace("_", "-"): text for name, text in headers.items()}
        self.connection.request(method, path, content, self._headers | kind | environ)

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> int:
        self.send(method, path, body, **headers)
        response = self.connection.getresponse()
        self.content = response.read()
        self.cookies = [one.partition(";")[0] for one in response.headers.get_all("Set-Cookie", [])]
        return response.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(FLOODS))
    options = parser.parse_args()
    data = Path(os.environ["TOOLCRIB_DATA"])
    chosen = options.only.split(",")
    if "names" in chosen and os.geteuid():
        chosen.remove("names")
        print("names are left out: that takes root")
    if "names" in chosen:
        _see_dead_names()
    print(f"{'held':<12}{'healthz':>10}{'listing':>10}{'call':>10}{'login':>10}   refused")
    settings = {"EXECUTION_TIMEOUT_S": "300", "EGRESS_ALLOW_PRIVATE": "127.0.0.1/32"}
    with _slow_server() as port, crib.running(data, settings) as running:
        wanted = ("nothing", *chosen)
        loud = {name: _place(f"loud-{name}", port) for name in wanted}
        quiet = _place("quiet", port)
        connection.close()
        _measure(running.url, quiet, 1)  # warm
        for name in wanted:
            with FLOODS.get(name, _nothing)(running.url, loud[name]):
                time.sleep(SETTLE_S)
                _print(name, _measure(running.url, quiet, options.rounds))
    crib.remove(data)


@contextmanager
def _slow_server() -> Iterator[int]:
    """The port of an upstream that answers late, or at once when it is to end."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            over.wait(UPSTREAM_S)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = UPSTREAM_CALLS

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            over.set()
            server.shutdown()


def _place(slug: str, port: int) -> Place:
    """The port is of the slow upstream."""
    place = factories.organization(slug)
    place.allowed_hosts = [{"host": "127.0.0.1", "ports": [port]}]
    place.save(update_fields=["allowed_hosts"])
    factories.tool(
        place, "upstream", type="http", constraints={"max_execution_time": "PT50S"},
        parameters=[{"name": "text", "type": "String", "description": "Text.", "required": True}],
        implementation={"method": "GET", "url": f"http://127.0.0.1:{port}/{{text}}"},
    )  # fmt: skip
    longest = {"max_execution_time": "PT120S"}
    for name, seconds in (("short", 0.15), ("long", 60)):
        source = {"source": SLEEPS.format(seconds)}
        factories.tool(place, name, implementation=source, constraints=longest)
    profiles.create_profile(organization=place, profile=NAMES, by=factories.actor(place))
    constraints = longest | {"sandbox_profile": "names"}
    factories.tool(place, "names", implementation={"source": ASKS}, constraints=constraints)
    first, second = (factories.token(factories.agent(place).service_account) for _ in range(2))
    return Place(slug, (first, second), factories.superuser(place).username)


def _measure(url: str, place: Place, rounds: int) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {}
    what: dict[str, Callable[[], int]] = {
        "healthz": lambda: Client(url)("GET", "/healthz"),
        "listing": lambda: Client(url, place.token)("GET", "/api/v1/tools"),
        "call": lambda: _call(Client(url, place.token), "short", 60),
        "login": lambda: _login(Client(url), place.person, PASSWORD),
    }
    for _ in range(rounds):
        for name, ask in what.items():
            began = time.perf_counter()
            try:
                status = ask()
            except OSError:
                status = 0
            found.setdefault(name, []).append(((time.perf_counter() - began) * 1000, status))
    return found


def _call(client: Client, tool: str, wait_s: int, text: str = "x") -> int:
    body = {"parameters": {"text": text}, "options": {"wait_s": wait_s}}
    return client("POST", f"/api/v1/tools/{tool}/execute", body)


def _login(client: Client, name: str, password: str) -> int:
    client("GET", "/login/")
    hidden = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', client.content)
    assert hidden
    form = {"csrfmiddlewaretoken": hidden[1].decode(), "username": name, "password": password}
    kind = "application/x-www-form-urlencoded"
    content = urlencode(form).encode()
    return client("POST", "/login/", content, Cookie=client.cookies[0], Content_Type=kind)


def _print(name: str, found: dict[str, list[tuple[float, int]]]) -> None:
    longest = "".join(f"{max(ms for ms, _ in times):>10.0f}" for times in found.values())
    refused = [f"{what} {status}" for what, times in found.items() for _, status in times
               if status not in {200, 302}]  # fmt: skip
    print(f"{name:<12}{longest}   {', '.join(refused) or 'none'}", flush=True)


@contextmanager
def _nothing(url: str, place: Place) -> Iterator[None]:
    yield


@contextmanager
def _together(count: int, work: Callable[[], object]) -> Iterator[None]:
    """So many clients at once. They end by themselves or with the product."""
    for _ in range(count):
        threading.Thread(target=_quietly, args=(work,), daemon=True).start()
    yield


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except OSError:
        pass  # the product has ended meanwhile


@contextmanager
def _waits(url: str, place: Place) -> Iterator[None]:
    with _together(70, lambda: _call(Client(url, place.token, LOUD), "long", 60)):
        yield
    _cancel_all(url, place)


@contextmanager
def _long(url: str, place: Place) -> Iterator[None]:
    for _ in range(16):
        _call(Client(url, place.token, LOUD), "long", 0)
    yield
    _cancel_all(url, place)


@contextmanager
def _upstream(url: str, place: Place) -> Iterator[None]:
    """Each agent's callers hold places to wait in; those that the web process has no place to
    perform are performed by workers, after one another."""
    tokens = iter(place.tokens * (UPSTREAM_CALLS // 2))
    lock = threading.Lock()

    def call() -> None:
        with lock:
            token = next(tokens)
        _call(Client(url, token, LOUD), "upstream", 60)

    with _together(UPSTREAM_CALLS, call):
        yield
    _print_performers(place)
    _cancel_all(url, place)


def _print_performers(place: Place) -> None:
    calls = Execution.objects.filter(organization__slug=place.slug)
    running = calls.filter(status=Status.RUNNING).values_list("worker", flat=True)
    count = Counter(map(crib.is_web, running))
    waiting = calls.filter(status=Status.PENDING).count()
    connection.close()
    print(f"{'':<12}{count[True]} run in web, {count[False]} in workers, {waiting} wait")


def _see_dead_names() -> None:
    """In a mount namespace of this process's own, which what it starts is in as well."""
    os.unshare(os.CLONE_NEWNS)
    with tempfile.NamedTemporaryFile("w", prefix="tc-bench-", suffix=".conf") as file:
        file.write(f"nameserver {DEAD}\n")
        file.flush()
        os.chmod(file.name, 0o644)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", file.name, "/etc/resolv.conf"], check=True)


@contextmanager
def _names(url: str, place: Place) -> Iterator[None]:
    """Eight runs, of each of which as many lookups are under way as it may have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dead:
        dead.bind((DEAD, 53))
        dead.settimeout(30)
        for run in range(8):
            _call(Client(url, place.token, LOUD), "names", 0, f"r{run}")
        assert b"dead" in dead.recv(512)
        yield
        _cancel_all(url, place)


def _cancel_all(url: str, place: Place) -> None:
    client = Client(url, place.token)
    while True:
        client("GET", "/api/v1/executions?status=Pending&page_size=100")
        pending = json.loads(client.content)["results"]
        client("GET", "/api/v1/executions?status=Running&page_size=100")
        open_ = pending + json.loads(client.content)["results"]
        if not open_:
            return
        for one in open_:
            client("POST", f"/api/v1/executions/{one['execution_id']}/cancel")


@contextmanager
def _bodies(url: str, _: Place) -> Iterator[None]:
    """Kept open: a socket that was closed for being late is opened again."""
    over = threading.Event()

    def hold() -> None:
        where = urlsplit(url)
        place = where.hostname or "", where.port or 0
        while not over.is_set():
            with socket.create_connection(place, timeout=120, source_address=(LOUD, 0)) as held:
                head = "POST /api/v1/tokens HTTP/1.1", "Host: localhost", "Content-Length: 100"
                held.sendall("\r\n".join((*head, "", "")).encode())
                held.recv(1)

    with _together(70, hold):
        yield
    over.set()


@contextmanager
def _streams(url: str, place: Place) -> Iterator[None]:
    client = Client(url, place.token)
    assert _call(client, "long", 0) == 202, client.content
    name = json.loads(client.content)["execution_id"]
    with ExitStack() as held:
        for _ in range(200):
            follower = Client(url, place.token, LOUD)
            follower.send("GET", f"/api/v1/executions/{name}/events")
            held.callback(follower.connection.close)
        yield
    _cancel_all(url, place)


@contextmanager
def _logins(url: str, place: Place) -> Iterator[None]:
    with _together(100, lambda: _login(Client(url, source=LOUD), place.person, "wrong")):
        yield


FLOODS = {
    "waits": _waits,
    "bodies": _bodies,
    "streams": _streams,
    "long": _long,
    "logins": _logins,
    "upstream": _upstream,
    "names": _names,
}

if __name__ == "__main__":
    main()
