"""Every page with 10,000 tools and a million executions: how long it takes and what it asks.

    python -m tests.benchmarks.pages [--data DIRECTORY] [--rounds 30] [--only TEXT]

Starts a Toolcrib. In a directory that is named, it and its rows stay for the next time; else both
are new and are removed. The pages are asked for by a client in this process, as an administrator
who may see everything, in turn, so that no page is asked for twice in a row. Prints milliseconds,
sorted by p95; of them this process's own work and that of PostgreSQL; statements; and bytes. Exits
with 1 where a page misses the target.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

_arguments = argparse.ArgumentParser(description=__doc__)
_arguments.add_argument("--data", type=Path)
_arguments.add_argument("--rounds", type=int, default=30)
_arguments.add_argument("--only", default="", help="pages whose name holds this")
_arguments.add_argument("--executions", type=int, default=1_000_000)
_arguments.add_argument("--tools", type=int, default=10_000)
_options = _arguments.parse_args() if __name__ == "__main__" else _arguments.parse_args([])

for _name in ("DATABASE_URL", "REDIS_URL", "SPARQL_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = str(_options.data or tempfile.mkdtemp(prefix="tc-bench-"))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402
from django.db.models import Count  # noqa: E402
from django.db.models.functions import Now  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from audit.models import Alert, AuditLog, AuditRecord  # noqa: E402
from tests import bulk, crib, factories  # noqa: E402
from tests.conditions import until  # noqa: E402
from tests.tools.api.test_authorization_matrix import Side  # noqa: E402
from tests.ui.addresses import addresses_of  # noqa: E402
from tests.ui.knowledge.test_knowledge import ELEMENTS, turtle_importer  # noqa: E402
from tools.catalog.actions import delete_tool  # noqa: E402
from tools.models import Agent, Execution, Organization, Tool, ToolService, User  # noqa: E402
from tools.models.user import UsedName  # noqa: E402
from tools.usage import usage_rollups  # noqa: E402

_OURS = "benchmark of pages"
_ONCE = ("held", "drifted")  # names that it gives
PLACE, TARGET_MS = "bench", 150.0
AGENTS, GROUPS, CONFIRMATIONS = 200, 100, 1_000
RECORDS, SESSIONS, MESSAGES, ENTITIES = 300_000, 20_000, 20_000, 10_000


@dataclass
class Page:
    name: str
    address: str
    queries: int = 0
    bytes: int = 0
    status: int = 0
    took: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.took, n=20)[-1]


def main() -> int:
    data = Path(os.environ["TOOLCRIB_DATA"])
    data.mkdir(parents=True, exist_ok=True)
    with crib.running(data):
        os.environ["PGAPPNAME"] = _OURS  # of this process alone: it has asked nothing so far
        found = Organization.objects.filter(slug=PLACE).first()
        organization = found or _filled()
        _add_up()
        slow = _measure(organization)
        connection.close()
        connection.close_pool()
    if _options.data is None:
        crib.remove(data)
    return 1 if slow else 0


def _filled() -> Organization:
    """The row of the organization comes first: what was not filled to its end must be removed."""
    began = time.monotonic()
    organization = factories.organization(PLACE)
    tools = bulk.tools(organization, _options.tools, GROUPS)
    agents = bulk.agents(organization, AGENTS)
    of = {"of": tools, "by": agents}
    bulk.executions(organization, _options.executions, **of, events=True)
    bulk.executions(organization, 60, **of, days=1, status="Pending")
    bulk.confirmations(organization, CONFIRMATIONS, **of)
    bulk.sessions(organization, SESSIONS, by=agents)
    bulk.messages(organization, MESSAGES, to=factories.superuser(organization))
    bulk.entities(organization, ENTITIES)
    bulk.audit_records(organization, RECORDS)
    _analyze()
    print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
    until(_all_sealed, 1_200)
    _analyze()
    print(f"sealed after {time.monotonic() - began:.0f} s", flush=True)
    return organization


def _analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _add_up() -> None:
    """As a worker does every ten minutes."""
    began, count = time.monotonic(), usage_rollups.aggregate_days()
    _analyze()
    print(f"{count} days added up in {time.monotonic() - began:.1f} s", flush=True)


def _all_sealed() -> bool:
    log = AuditLog.objects.filter(name=PLACE).first()
    return log is not None and log.size >= AuditRecord.objects.filter(organization=PLACE).count()


def _measure(organization: Organization) -> list[Page]:
    """Those that are slower than they should be."""
    client = Client(raise_request_exception=False, SERVER_NAME="127.0.0.1")
    client.force_login(_reader(organization), backend="tools.accounts.login.login.PeopleBackend")
    side = _side(organization)
    turtle_importer(organization)(ELEMENTS.read_text())
    factories.workspace_file(organization, "notes/read.md", b"# Read\n\nWords.\n")
    busiest = {
        "tool": _most(organization, "tool_name"),
        "agent": _most(organization, "agent__slug"),
    }
    every = addresses_of(side, **busiest)
    pages = [Page(*one) for one in every.items() if _options.only in one[0]]
    load = os.getloadavg()
    for page in pages:
        _count(client, page)
    for _ in range(_options.rounds):
        for page in pages:
            _ask(client, page)
    _show(pages)
    print(f"load of the machine before {load[0]:.1f}, after {os.getloadavg()[0]:.1f}")
    return [page for page in pages if page.p95 > TARGET_MS]


def _side(organization: Organization) -> Side:
    """One of everything, new: what the previous run has left is out of its way."""
    free = f"was-{uuid4().hex[:8]}"
    Agent.objects.filter(organization=organization, slug="twin").update(slug=free)
    User.objects.filter(username=f"agent:{PLACE}:twin").update(username=f"agent:{PLACE}:{free}")
    UsedName.objects.filter(name=f"agent:{PLACE}:twin").delete()
    ToolService.objects.filter(organization=organization).delete()
    Alert.objects.filter(organization=PLACE, rule="r").open().update(acknowledged_at=Now())
    for tool in Tool.objects.present().filter(organization=organization, name__in=_ONCE):
        delete_tool(tool=tool, by=factories.actor(organization))
    return Side(organization, f"side-{uuid4().hex[:6]}")


def _most(organization: Organization, column: str) -> str:
    rows = Execution.objects.filter(organization=organization).exclude(agent=None).order_by()
    return str(rows.values(column).annotate(calls=Count("pk")).latest("calls")[column])


def _reader(organization: Organization) -> User:
    return User.objects.filter(organization=organization, is_superuser=True).earliest("date_joined")


def _count(client: Client, page: Page) -> None:
    """The second time: the first one fills what a process keeps."""
    client.get(page.address)
    with CaptureQueriesContext(connection) as queries:
        response = client.get(page.address)
    page.queries, page.status = len(queries), response.status_code
    page.bytes = len(response.content)
    if page.status != 200:
        print(f"{page.name} at {page.address} answers {page.status}", flush=True)


def _ask(client: Client, page: Page) -> None:
    own, theirs = time.process_time(), _worked()
    began = time.perf_counter()
    client.get(page.address)
    page.took.append((time.perf_counter() - began) * 1_000)
    page.own.append((time.process_time() - own) * 1_000)
    page.theirs.append((_worked() - theirs) * 1_000)


def _worked() -> float:
    """Seconds of the processor that the processes of PostgreSQL for this one have used."""
    return sum(_seconds(pid) for pid in _backends())


def _backends() -> list[int]:
    """A request's connection goes back to the pool, and the next one may get another."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", [_OURS])
        return [pid for (pid,) in cursor.fetchall()]


def _seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _show(pages: list[Page]) -> None:
    print(
        f"\n{'page':<44}{'p50':>8}{'p95':>8}{'own cpu':>9}{'db cpu':>8}{'queries':>9}{'bytes':>10}"
    )
    for page in sorted(pages, key=lambda one: -one.p95):
        middle, own, theirs = map(statistics.median, (page.took, page.own, page.theirs))
        print(
            f"{page.name:<44}{middle:10.1f}{page.p95:10.1f}{own:10.1f}{theirs:10.1f}"
            f"{page.queries:10}{page.bytes:10,}"
        )
    slow = [page.name for page in pages if page.p95 > TARGET_MS]
    print(f"\n{len(pages)} pages, {len(slow)} above {TARGET_MS:g} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
