"""No list of the API executes more statements for more rows. The routes come from the resolver; a
list is a route that documents a cursor."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditLog, Checkpoint
from tests import agent_runs, factories
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.test_queries import grow
from tools.accounts.grants import grant_actions
from tools.api.urls import urlpatterns
from tools.catalog import actions
from tools.catalog.signatures import keys
from tools.models import (
    Agent,
    Allowance,
    AllowanceUse,
    Execution,
    McpAuthorization,
    McpServer,
    Organization,
    Pin,
    Tool,
)
from tools.web.query_parameters import documented_parameters

FEW = 3


def test_the_list_of_agents_asks_as_much_of_four_as_of_one(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "one", tools=["read_file"])
    few = fewest(admin_client, "/api/v1/agents")
    for slug in ("two", "three", "four"):
        factories.agent(organization, slug, tools=["*"], groups=["default"])
    assert fewest(admin_client, "/api/v1/agents", few) <= few
    assert shown(admin_client, "/api/v1/agents") == 4


@pytest.mark.timeout(300)
@pytest.mark.part("matrices")
def test_a_list_asks_as_much_of_many_rows_as_of_few(organization: Organization) -> None:
    side, reader = Side(organization, "axe"), factories.superuser(organization)
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(reader, backend="tools.accounts.login.login.PeopleBackend")
    lists = addresses(side)
    more(side, reader, FEW)
    few = {name: fewest(client, address) for name, address in lists.items()}
    rows = {name: shown(client, address) for name, address in lists.items()}
    more(side, reader, 3 * FEW)
    many = {name: fewest(client, address, few[name]) for name, address in lists.items()}
    assert {name: (few[name], many[name]) for name in lists if many[name] > few[name]} == {}
    fixed = {"api-tiers"}  # their number is fixed
    grown = {name for name, address in lists.items() if shown(client, address) > rows[name]}
    assert lists.keys() - grown == fixed


def addresses(side: Side) -> dict[str, str]:
    """`Side.session` has the calls of a session, and `Side.tool` the versions."""
    found = {}
    for one in urlpatterns:
        if "cursor" in documented_parameters(one.callback.view_class(), "GET"):
            assert one.name is not None
            address = reverse(one.name, kwargs=side.place(one.name))
            found[one.name] = f"{address}?page_size=200"
    found["api-tools"] += "&group=*"
    return found


def fewest(client: Client, address: str, enough: int = 0) -> int:
    """The fewest statements of up to three requests for a list, so that caches are filled."""
    found: list[int] = []
    while len(found) < 3 and not (found and found[-1] <= enough):
        with CaptureQueriesContext(connection) as asked:
            response = client.get(address)
        assert response.status_code == 200, (address, response.content)
        found.append(len(asked))
    return min(found)


def shown(client: Client, address: str) -> int:
    body = client.get(address).json()
    return len(body["nodes"] if "nodes" in body else body["results"])


def more(side: Side, reader: Any, count: int) -> None:
    """Add rows that the pages show, and rows that they do not."""
    here = side.organization
    grow(side, reader, count)
    log, _ = AuditLog.objects.get_or_create(name=here.slug)
    server = McpServer.objects.get(organization=here, name=f"server-{side.label}")
    called: dict[str, Any] = {"group": [f"desk-{side.label}"], "text": "x"}
    for _ in range(count):
        agent_runs.request_run_by_agent(side.agent)
        call = factories.execution(side.agent, side.tool.name, **called)
        Execution.objects.filter(pk=call.pk).update(session=side.session)
        factories.end_execution(call)
        name = uuid4().hex[:8]
        factories.organization(f"org-{name}")
        keys.rotate_key(organization=here, by=side.by)
        McpAuthorization.objects.create(
            server=server, owner=f"agent:{name}", url=server.url, sealed=b"x"
        )
        size = Checkpoint.objects.filter(log=log).count() + 1_000
        Checkpoint.objects.create(log=log, size=size, root=b"x" * 32, note="n")
        change = {"description": name}
        assert side.tool.version is not None
        side.tool.refresh_from_db()
        actions.update_tool(
            tool=side.tool,
            definition=actions.amended(side.tool.version.definition, change),
            by=side.by,
        )
    for agent in Agent.objects.filter(organization=here):
        _bound(agent, side)


def _bound(agent: Agent, side: Side) -> None:
    """Give the agent grants, pins and quotas."""
    tool = Tool.objects.get(pk=side.tool.pk)
    grant_actions.grant(
        agent=agent, by=side.by, tools=[tool.name], tool_groups=[f"desk-{side.label}"]
    )
    Pin.objects.get_or_create(agent=agent, tool=tool, defaults={"version": tool.version})
    row, _ = Allowance.objects.get_or_create(
        agent=agent,
        tool_name="",
        kind="cost",
        period="day",
        defaults={"amount": 5, "organization": side.organization},
    )
    AllowanceUse.objects.get_or_create(allowance=row, starts_on=timezone.now().date())
