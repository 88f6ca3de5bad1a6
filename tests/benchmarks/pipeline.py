"""What one governed call costs, beside the least that Django and PostgreSQL can answer it in.

    make bench [BENCH_SECONDS=4] [ROUNDS=5]
    python -m tests.benchmarks.pipeline [--seconds 4] [--rounds 5] [--clients 1 8 32] [--only http]
    python -m tests.benchmarks.pipeline --rounds 0 --calls 0 --files   # which files a call enters

Starts a Toolcrib of its own in a new directory, the bare view of `tests.benchmarks.floor` on the
same PostgreSQL, and an upstream on loopback; removes all of it again. The kinds take turns within
each round, so that a noisy machine is noisy for all of them. Figures are medians of the rounds, and
ratios are to the floor of the same round. Each tool has a rate limit, which no call reaches.

CPU is read from /proc: of each process and what it started. What a sandboxed run itself took is in
its answer, and is counted as `runs`. Statements, commits, WAL and updates are PostgreSQL's own
counts; what the product does without calls was measured before, and is subtracted. Files are those
of the product that a call enters which this process makes and performs itself.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ["EGRESS_ALLOW_PRIVATE"] = "127.0.0.1/32"  # this process makes calls as well
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

import psycopg  # noqa: E402
from django.db import connection  # noqa: E402

from config.local import embedded, postgres  # noqa: E402
from config.local.child_processes import ProcessSpec, launch_command  # noqa: E402
from config.local.unix_accounts import database_account  # noqa: E402
from tests import crib, factories  # noqa: E402
from tests.entered_files import FilesEntered, enter_files  # noqa: E402
from tests.tools.limits import rate_fixtures  # noqa: E402
from tools.worker import tasks  # noqa: E402

FLOOR = "floor"
# By a word of the command line: the processes that the supervisor starts.
PROCESSES = {
    "web": "config.asgi", "live": "tools.live.app", "worker": "--queues executions",
    "housekeeper": "--queues housekeeping", "beat": " beat --", "sandboxd": "sandbox.daemon",
    "egress": "sandbox.egress", "postgresql": "postgres -D", "valkey": "valkey",
    "oxigraph": "oxigraph", "sealer": "seal",
}  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")
IDLE_S = 5.0
SETTLE_S = 3.0  # the sealer is done then, and each session has sent its statistics
COUNTS = """
    SELECT (SELECT sum(calls) FROM pg_stat_statements) AS statements,
        (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits,
        (SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')) AS wal,
        (SELECT sum(n_tup_upd) FROM pg_stat_user_tables) AS updates,
        (SELECT sum(n_tup_hot_upd) FROM pg_stat_user_tables) AS hot
"""
LIMIT = {"rate_limit_per_minute": 1_000_000}


@dataclass(frozen=True)
class CallKind:
    """One way to make a call: where it is sent, and what an answer in order contains."""

    name: str
    port: int
    request: bytes
    success: bytes


@dataclass
class Load:
    """What the clients of one turn saw."""

    times_ms: list[float] = field(default_factory=list)
    failures: list[bytes] = field(default_factory=list)
    runs_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def calls(self) -> int:
        return len(self.times_ms)


@dataclass
class Turn:
    """The figures of one kind, in one round, by so many clients."""

    kind: str
    load: Load
    cpu_ms: dict[str, float]

    def quantile(self, percent: int) -> float:
        return statistics.quantiles(self.load.times_ms, n=100)[percent - 1]

    @property
    def rate(self) -> float:
        return self.load.calls / self.load.seconds

    @property
    def total_cpu_ms(self) -> float:
        """Of all that answer this call: the floor has a process of its own, and PostgreSQL."""
        if self.kind == FLOOR:
            return self.cpu_ms[FLOOR] + self.cpu_ms["postgresql"]
        return sum(spent for name, spent in self.cpu_ms.items() if name != FLOOR)


def main() -> None:
    options = _options()
    data = Path(os.environ["TOOLCRIB_DATA"])
    token = "floor-token-of-the-benchmark"
    _prepare_cluster(data)
    with _echo_server() as upstream, crib.running(data) as product:
        rate_fixtures.trust()  # PostgreSQL counts calls in the first minute of a Redis
        kinds = _kinds(product, upstream, options.only)
        with _floor(data, upstream, token) as floor:
            kinds = [_floor_kind(floor.port, token), *kinds]
            groups = {"product": product.supervisor, "floor": floor.pid}
            turns = _measure(kinds, groups, options) if options.rounds else {}
            counts = {}
            for kind in kinds if options.calls else ():
                counts[kind.name] = _count(kind, options.calls)
                if options.statements:
                    _print_statements(kind, options.calls)
        files = {kind.name: _enter_files(kind) for kind in kinds if kind.name != FLOOR}
    crib.remove(data)
    if turns:
        _print_times(kinds, turns, options.clients)
        _print_cpu(kinds, turns, options.clients)
    if counts:
        _print_counts(counts)
    _print_files(files, names=options.files)


# The product, the floor and the upstream


def _prepare_cluster(data: Path) -> None:
    """With PostgreSQL's statistics of statements, which the product does not need."""
    with embedded.running_servers(data):
        pass
    cluster = data / "postgres" / postgres.VERSION
    with (cluster / "postgresql.auto.conf").open("a") as file:
        file.write("shared_preload_libraries = 'pg_stat_statements'\n")
        file.write("pg_stat_statements.track_planning = off\n")
    single = ProcessSpec(
        name="postgres --single",
        command=(str(postgres.PROGRAMS / "postgres"), "--single", "-D", str(cluster), "toolcrib"),
        directory=cluster,
        account=database_account(cluster),
        reach=(postgres.PACKAGES, cluster),
    )
    statements = (
        b"CREATE EXTENSION pg_stat_statements\nGRANT pg_read_all_stats TO toolcrib\n"
        b"GRANT EXECUTE ON FUNCTION pg_stat_statements_reset TO toolcrib\n"
    )
    command = launch_command(single)
    subprocess.run(command, input=statements, stdout=subprocess.DEVNULL, env={}, check=True)


@contextmanager
def _echo_server() -> Iterator[int]:
    port = crib.free_port()
    command = [sys.executable, "-m", "tests.benchmarks.echo_server", str(port)]
    process = subprocess.Popen(command, cwd=crib.CHECKOUT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield port
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Floor:
    port: int
    pid: int


@contextmanager
def _floor(data: Path, upstream: int, token: str) -> Iterator[Floor]:
    port = crib.free_port()
    environment = os.environ | {
        "DATABASE_URL": embedded.database_url(data),
        "UPSTREAM_URL": f"http://127.0.0.1:{upstream}/things/7",
        "FLOOR_TOKEN": token,
    }
    command = [sys.executable, "-m", "tests.benchmarks.floor", str(port)]
    process = subprocess.Popen(command, cwd=crib.CHECKOUT, env=environment)
    try:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Floor(port, process.pid)
    finally:
        process.kill()
        process.wait()


def _floor_kind(port: int, token: str) -> CallKind:
    body = b'{"parameters": {"id": "7"}}'
    return CallKind(FLOOR, port, _request("/call", token, body), b'"id"')


def _kinds(product: crib.Crib, upstream: int, only: list[str]) -> list[CallKind]:
    """Calls of one agent, by a token that may do all of them."""
    organization = factories.organization("bench")
    factories.install(organization)
    factories.workspace_file(organization, "x.txt", b"x")
    factories.tool(
        organization, "http_echo", type="http", delivery="pure", **LIMIT,
        parameters=[{"name": "id", "type": "String", "description": "Which.", "required": True}],
        implementation={"method": "GET", "url": f"http://127.0.0.1:{upstream}/things/{{id}}"},
    )  # fmt: skip
    organization.allowed_hosts = [{"host": "127.0.0.1", "ports": [upstream]}]
    organization.save(update_fields=["allowed_hosts"])
    administrator = factories.token(factories.superuser(organization), scopes=["catalog"])
    _import_mcp_tool(product.url, administrator, upstream)
    agent = factories.agent(organization, groups=["*"])
    token = factories.token(agent.service_account)
    port = urlsplit(product.url).port or 80
    parameters = {
        "http": ("http_echo", {"id": "7"}),
        "mcp": ("mcp_echo", {"id": "7"}),
        "sandbox": ("read_file", {"path": "x.txt"}),
    }
    return [
        CallKind(
            name,
            port,
            _request(
                f"/api/v1/tools/{tool}/execute",
                token,
                json.dumps({"parameters": values, "group": ["*"]}).encode(),
            ),
            b'"status":"Success"',
        )
        for name, (tool, values) in parameters.items()
        if not only or name in only
    ]


def _import_mcp_tool(url: str, token: str, upstream: int) -> None:
    wanted = {"tool": "echo", "name": "mcp_echo", "group": ["default"], **LIMIT}
    for path, body in (
        ("/mcp-servers", {"name": "echo", "url": f"http://127.0.0.1:{upstream}/mcp"}),
        ("/mcp-servers/echo/refresh", {}),
        ("/mcp-servers/echo/import", {"tools": [wanted]}),
    ):
        request = urllib.request.Request(
            f"{url}/api/v1{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert b'"errors":[{' not in answer.read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.read()[:500]!r}") from None


# The load


def _request(path: str, token: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _run(kind: CallKind, clients: int, *, seconds: float = 0.0, calls: int = 0) -> Load:
    """For so long, or so many calls of each client."""
    load = Load()
    began = time.monotonic()
    until = began + seconds if seconds else float("inf")
    most = calls or sys.maxsize
    threads = [
        threading.Thread(target=_call_repeatedly, args=(kind, load, until, most))
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds = time.monotonic() - began
    return load


def _call_repeatedly(kind: CallKind, load: Load, until: float, most: int) -> None:
    with socket.create_connection(("127.0.0.1", kind.port), timeout=70) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(most):
            began = time.perf_counter()
            if time.monotonic() > until:
                return
            connection.sendall(kind.request)
            answer = _read_answer(connection)
            load.times_ms.append((time.perf_counter() - began) * 1000)
            if kind.success not in answer:
                load.failures.append(answer)
            elif run := re.search(rb'"cpu_time_ms":([\d.]+)', answer):
                load.runs_ms.append(float(run[1]))


def _read_answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    size = re.search(rb"(?i)content-length: *(\d+)", head)
    assert size, head
    missing = int(size[1]) - len(body)
    while missing > 0:
        more = _receive(connection)
        body, missing = body + more, missing - len(more)
    return body


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


# Measuring


Turns = dict[tuple[str, int], list[Turn]]


def _measure(kinds: list[CallKind], groups: dict[str, int], options: argparse.Namespace) -> Turns:
    turns: Turns = defaultdict(list)
    for kind in kinds:
        _check(_run(kind, 4, seconds=2), kind)
    for _ in range(options.rounds):
        for clients in options.clients:
            for kind in kinds:
                before = _cpu_ms(groups)
                load = _run(kind, clients, seconds=options.seconds)
                after = _cpu_ms(groups)
                _check(load, kind)
                cpu = {name: (after[name] - before[name]) / load.calls for name in after}
                if load.runs_ms:
                    cpu["runs"] = sum(load.runs_ms) / load.calls
                turns[kind.name, clients].append(Turn(kind.name, load, cpu))
    return turns


def _check(load: Load, kind: CallKind) -> None:
    """A refusal is quicker than a call, so a figure with refusals says nothing."""
    if load.failures:
        refused = f"{len(load.failures)} of {load.calls} calls of {kind.name} failed"
        raise SystemExit(f"{refused}: {load.failures[0][:300]!r}")


def _cpu_ms(groups: dict[str, int]) -> dict[str, float]:
    """What each process of the product, with all that it started, has used so far; the floor's."""
    parents, used = {}, {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) * 1000 / TICKS
    found: dict[str, float] = dict.fromkeys([*PROCESSES, FLOOR], 0.0)
    for pid, spent in used.items():
        above = _ancestry(pid, parents)
        if groups["floor"] in above:
            found[FLOOR] += spent
        elif groups["product"] in above[1:]:
            top = above[above.index(groups["product"]) - 1]
            name = _process_name(top)
            found[name] = found.get(name, 0.0) + spent
    return found


def _ancestry(pid: int, parents: dict[int, int]) -> list[int]:
    """The process, its parent, and so on."""
    above = [pid]
    while above[-1] in parents and parents[above[-1]] > 1:
        above.append(parents[above[-1]])
    return above


_names: dict[int, str] = {}


def _process_name(pid: int) -> str:
    if pid not in _names:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return "other"
        _names[pid] = next((name for name, word in PROCESSES.items() if word in line), "other")
    return _names[pid]


def _count(kind: CallKind, calls: int) -> dict[str, float]:
    """PostgreSQL's own counts of one call, made one at a time."""
    time.sleep(SETTLE_S)
    before_idle = _read_counts()
    time.sleep(IDLE_S)
    before = _read_counts()
    load = _run(kind, 1, calls=calls)
    _check(load, kind)
    time.sleep(SETTLE_S)
    after = _read_counts()
    idle = {name: (before[name] - before_idle[name]) / IDLE_S for name in before}
    seconds = load.seconds + SETTLE_S
    return {
        name: max(0.0, after[name] - before[name] - idle[name] * seconds) / calls for name in after
    }


def _read_counts() -> dict[str, float]:
    url = embedded.database_url(Path(os.environ["TOOLCRIB_DATA"]))
    with psycopg.connect(url, autocommit=True) as database:
        cursor = database.execute(COUNTS)
        row = cursor.fetchone()
        assert row is not None and cursor.description is not None
        return {
            column.name: float(value) for column, value in zip(cursor.description, row, strict=True)
        }


def _enter_files(kind: CallKind) -> FilesEntered:
    head, _, body = kind.request.partition(b"\r\n\r\n")
    url = head.split()[1].decode()
    token = re.search(rb"Bearer (\S+)", head)
    assert token
    entered = enter_files(url, token[1].decode(), body, lambda one: tasks.run_execution(str(one)))
    connection.close()
    return entered


STATEMENTS = """
    SELECT calls, total_exec_time, wal_bytes, regexp_replace(left(query, 110), E'\\s+', ' ', 'g')
    FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 12
"""


def _print_statements(kind: CallKind, calls: int) -> None:
    """Those that PostgreSQL spent most time with, of one call."""
    url = embedded.database_url(Path(os.environ["TOOLCRIB_DATA"]))
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SELECT pg_stat_statements_reset()")
        _run(kind, 1, calls=calls)
        print(f"\n{kind.name}: calls, ms and WAL bytes of one call, statement")
        for count, spent_ms, wal, text in database.execute(STATEMENTS).fetchall():
            figures = f"{count / calls:>7.2f}{spent_ms / calls:>8.3f}{float(wal) / calls:>8.0f}"
            print(f"{figures}  {text}")


# The tables


def _print_times(kinds: list[CallKind], turns: Turns, clients: list[int]) -> None:
    heads = ("kind", "clients", "calls", "p50 ms", "p95 ms", "p99 ms", "calls/s", "CPU ms")
    print("".join(f"{head:>10}" for head in (*heads, "p50 ×", "calls/s ×", "CPU ×")))
    for count in clients:
        for kind in kinds:
            rows = turns[kind.name, count]
            floor = turns[FLOOR, count]
            figures = (
                _median([row.quantile(50) for row in rows]),
                _median([row.quantile(95) for row in rows]),
                _median([row.quantile(99) for row in rows]),
                _median([row.rate for row in rows]),
                _median([row.total_cpu_ms for row in rows]),
            )
            pairs = list(zip(rows, floor, strict=True))
            ratios = (
                _median([row.quantile(50) / least.quantile(50) for row, least in pairs]),
                _median([row.rate / least.rate for row, least in pairs]),
                _median([row.total_cpu_ms / least.total_cpu_ms for row, least in pairs]),
            )
            calls = sum(row.load.calls for row in rows)
            print(
                f"{kind.name:>10}{count:>10}{calls:>10}"
                + "".join(f"{value:>10.2f}" for value in (*figures, *ratios))
            )


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _print_cpu(kinds: list[CallKind], turns: Turns, clients: list[int]) -> None:
    used = [
        name
        for name in [FLOOR, *PROCESSES, "runs", "other"]
        if any(row.cpu_ms.get(name, 0) > 0.005 for rows in turns.values() for row in rows)
    ]
    print(f"\nCPU in ms of one call\n{'kind':>10}{'clients':>10}", end="")
    print("".join(f"{name:>11}" for name in used))
    for count in clients:
        for kind in kinds:
            rows = turns[kind.name, count]
            cells = (_median([row.cpu_ms.get(name, 0.0) for row in rows]) for name in used)
            line = "".join(f"{value:>11.2f}" for value in cells)
            print(f"{kind.name:>10}{count:>10}{line}")


def _print_counts(counts: dict[str, dict[str, float]]) -> None:
    heads = ("kind", "statements", "commits", "WAL kB", "updates", "HOT %")
    print("\nOf one call, one at a time\n" + "".join(f"{head:>12}" for head in heads))
    for name, found in counts.items():
        hot = 100 * found["hot"] / found["updates"] if found["updates"] > 0.05 else 100.0
        figures = (
            found["statements"],
            found["commits"],
            found["wal"] / 1000,
            found["updates"],
            hot,
        )
        print(f"{name:>12}" + "".join(f"{value:>12.1f}" for value in figures))


def _print_files(entered: dict[str, FilesEntered], *, names: bool) -> None:
    heads = ("kind", "request", "worker", "together")
    print(
        "\nFiles of the product that one call enters\n" + "".join(f"{head:>12}" for head in heads)
    )
    for kind, files in entered.items():
        figures = (len(files.request), len(files.performance), len(files.together))
        print(f"{kind:>12}" + "".join(f"{figure:>12}" for figure in figures))
    for kind, files in entered.items() if names else ():
        print(f"\n{kind}: request, worker")
        for file in sorted(files.together):
            marks = ("r" if file in files.request else "", "w" if file in files.performance else "")
            print("".join(f"{mark:>3}" for mark in marks) + f"  {file}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="of one turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--calls", type=int, default=300, help="whose statements are counted")
    parser.add_argument("--statements", action="store_true", help="print the dearest statements")
    parser.add_argument("--files", action="store_true", help="name the files that a call enters")
    parser.add_argument("--only", nargs="*", default=[], help="of http, mcp and sandbox")
    return parser.parse_args()


if __name__ == "__main__":
    main()
