"""What a thousand open pages cost: memory, processor, connections, and how soon they are notified.

    python -m tests.benchmarks.live_pages [--streams 1000] [--seconds 20] [--rounds 20]

Starts a Toolcrib of its own in a new directory and removes it again. Every stream is a page of one
organization that follows its executions; one more is a page of another. Pages do not ask after
a notification: what their questions cost is in the benchmark of the catalog.
"""

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from json import dumps
from pathlib import Path
from urllib.parse import urlsplit

for _name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # between two looks at the streams

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django.test import Client  # noqa: E402

from config.local import orphans  # noqa: E402
from tests import crib, factories  # noqa: E402
from tools.execution import events  # noqa: E402
from tools.live.live_streams import MOST_PER_SESSION  # noqa: E402
from tools.models import Execution, Organization  # noqa: E402

_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass
class House:
    """The running product, and two organizations in it."""

    running: crib.Crib
    full: Organization = field(default_factory=lambda: factories.organization("full"))
    other: Organization = field(default_factory=lambda: factories.organization("other"))

    def processes(self) -> list[int]:
        """Those of the live side."""
        found = orphans.survivors(self.running.data / "processes.json")
        return [one.pid for one in found if b"tools.live.app" in _read(one.pid, "cmdline")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with crib.running(Path(os.environ["TOOLCRIB_DATA"])) as running:
        asyncio.run(_measure(House(running), options))
        for one in connections.all():
            one.close()
            one.close_pool()
    crib.remove(Path(os.environ["TOOLCRIB_DATA"]))


async def _measure(house: House, options: argparse.Namespace) -> None:
    call = _caller(house)
    _tell_calls("calls, no page open", call, options.rounds * 5)
    before = _resources(house)
    streams = await _open(house, house.full, options.streams)
    lone = await _open(house, house.other, 1)
    await asyncio.sleep(2)
    print(f"{options.streams} streams were opened")
    for name, value in _resources(house).items():
        print(f"  {name:<34}{before[name]:>10.0f} -> {value:>8.0f}")
    began = _cpu_s(house)
    await asyncio.sleep(options.seconds)
    print(
        f"  {'processor while nothing happens':<34}{_share(house, began, options.seconds):>10.2f} %"
    )
    await _tell_latency("one page is told", house.other, lone, options.rounds)
    await _tell_latency(f"{options.streams} pages are told", house.full, streams, options.rounds)
    _tell_calls("calls beside them", call, options.rounds * 5)
    task = asyncio.create_task(_keep_telling(house))
    began, since = _cpu_s(house), time.monotonic()
    await asyncio.to_thread(_tell_calls, "calls while all are told", call, options.rounds * 5)
    print(f"  {'processor while all are notified':<34}"
          f"{_share(house, began, time.monotonic() - since):>10.1f} %")  # fmt: skip
    task.cancel()


class Page:
    """The times of its notifications."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader
        self.notified_at: asyncio.Queue[float] = asyncio.Queue()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self.reader.readline():
            if line.startswith(b"event: changed"):
                self.notified_at.put_nowait(time.perf_counter())


async def _open(house: House, place: Organization, count: int) -> list[Page]:
    pages: list[Page] = []
    for start in range(0, count, MOST_PER_SESSION):
        key = _session(place)
        where = _live_at(house, key)
        some = range(min(MOST_PER_SESSION, count - start))
        pages += await asyncio.gather(*(_page(where, key) for _ in some))
    return pages


async def _page(where: str, key: str) -> Page:
    found = urlsplit(where)
    reader, writer = await asyncio.open_connection(found.hostname, found.port)
    cookie = f"{settings.SESSION_COOKIE_NAME}={key}"
    head = f"GET {found.path}?of=executions HTTP/1.1\r\nHost: {found.netloc}\r\nCookie: {cookie}"
    writer.write(f"{head}\r\n\r\n".encode())
    answer = await reader.readline()
    if b" 200 " not in answer:
        raise SystemExit(f"a stream was not opened: {answer!r}")
    page = Page(reader)
    page.writer = writer  # type: ignore[attr-defined]  # it is open as long as it is referenced
    return page


def _session(place: Organization) -> str:
    client = Client()
    client.force_login(
        factories.superuser(place), backend="tools.accounts.login.login.PeopleBackend"
    )
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def _live_at(house: House, key: str) -> str:
    web = HTTPConnection(urlsplit(house.running.url).netloc, timeout=30)
    web.request("GET", "/inbox/", headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={key}"})
    found = re.search(r'data-live-at="([^"]+)"', web.getresponse().read().decode())
    web.close()
    if found is None:
        raise SystemExit("the pages name no live side")
    return found[1]


async def _tell_latency(title: str, place: Organization, pages: list[Page], rounds: int) -> None:
    execution = _missing(place)
    await asyncio.sleep(3)
    times: list[float] = []
    for _ in range(rounds):
        for page in pages:
            while not page.notified_at.empty():
                page.notified_at.get_nowait()
        began = time.perf_counter()
        events.notify_pages(execution.pk)
        times += [(await page.notified_at.get() - began) * 1000 for page in pages]
        await asyncio.sleep(1.2)
    print(f"  {title:<34}{_cuts(times)}")


async def _keep_telling(house: House) -> None:
    execution = factories.execution(
        factories.agent(house.full, groups=["*"]), "read_file", path="n"
    )
    while True:
        events.notify_pages(execution.pk)
        await asyncio.sleep(0.2)


def _missing(place: Organization) -> Execution:
    """A call that ends at once, of a file that is not there."""
    agent = factories.agent(place, groups=["read-only"])
    return factories.execution(agent, "read_file", path="none", group=["read-only"])


def _caller(house: House) -> "HTTPConnection":
    place = factories.organization("calls")
    factories.install(place)
    for one in (house.full, house.other):
        factories.install(one)
    factories.workspace_file(place, "note.txt", b"a note")
    token = factories.token(factories.agent(place, groups=["read-only"]).service_account)
    client = HTTPConnection(urlsplit(house.running.url).netloc, timeout=60)
    client.default_headers = {  # type: ignore[attr-defined]
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
    }
    return client


def _tell_calls(title: str, client: HTTPConnection, count: int) -> None:
    body = dumps({"parameters": {"path": "note.txt"}, "group": ["read-only"]})
    headers = client.default_headers  # type: ignore[attr-defined]
    times: list[float] = []
    client.close()  # an idle connection may have been ended; the next request makes a new one
    for _ in range(count):
        began = time.perf_counter()
        client.request("POST", "/api/v1/tools/read_file/execute", body, headers)
        answer = client.getresponse()
        status = answer.read()
        if answer.status != 200:
            raise SystemExit(f"a call was not answered: {status!r}")
        times.append((time.perf_counter() - began) * 1000)
    print(f"  {title:<34}{_cuts(times)}")


def _resources(house: House) -> dict[str, float]:
    pids = house.processes()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        database = cursor.fetchone()[0]
    return {
        "memory of the live side, MiB": sum(_status(pid, "VmRSS") for pid in pids) / 1024,
        "threads of the live side": sum(_status(pid, "Threads") for pid in pids),
        "connections to PostgreSQL, of all": database,
        "connections to Valkey, of all": len(events.redis_connection().client_list()),
        "threads of the web process": sum(_status(pid, "Threads") for pid in _web(house)),
    }


def _web(house: House) -> list[int]:
    found = orphans.survivors(house.running.data / "processes.json")
    return [one.pid for one in found if b"config.asgi" in _read(one.pid, "cmdline")]


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", _read(pid, "status").decode(), re.M)
    return int(found[1]) if found else 0


def _cpu_s(house: House) -> float:
    ticks = 0
    for pid in house.processes():
        fields = _read(pid, "stat").decode().rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_S


def _share(house: House, began_s: float, seconds: float) -> float:
    """Percent of one processor."""
    return (_cpu_s(house) - began_s) / seconds * 100


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _cuts(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=20)
    return f"{statistics.median(times):>10.1f} ms p50{cuts[18]:>10.1f} ms p95"


if __name__ == "__main__":
    main()
