"""Lists of the API: pagination, filters and order, and the `Location` of created rows."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditLog, Checkpoint
from tests import agent_runs, bulk, factories
from tests.api import Api
from tests.tools.api.document import document
from tests.tools.api.test_authorization_matrix import Side
from tests.tools.shapes import check_error
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
    InboxItem,
    McpAuthorization,
    McpServer,
    Message,
    Organization,
    Pin,
    Session,
    Tool,
)
from tools.web.query_parameters import documented_parameters

BASE = "/api/v1"


def walked(api: Api, path: str, key: str) -> list[list[Any]]:
    """Each page from the first to the last, and backward again."""
    pages, address, back = [], f"{BASE}{path}", []
    seen: set[str] = set()
    while address:
        assert address not in seen
        seen.add(address)
        body = api.get(address.removeprefix(BASE)).json()
        pages.append([row[key] for row in body["results"]])
        last, address = address, body["next"]
    address = last
    while address:
        body = api.get(address.removeprefix(BASE)).json()
        back.append([row[key] for row in body["results"]])
        address = body["previous"]
    assert [one for page in back[::-1] for one in page] == [one for page in pages for one in page]
    return pages


def the(api: Api, path: str, key: str) -> list[Any]:
    response = api.get(path)
    assert response.status_code == 200, response.json()
    return [row[key] for row in response.json()["results"]]


def test_pages_are_referred_to_without_a_scheme_and_a_host(admin_api, organization):
    factories.agent(organization, "a"), factories.agent(organization, "b")
    body = admin_api.get("/agents?page_size=1&active=true").json()
    assert body["next"].startswith("/api/v1/agents?")
    assert "page_size=1" in body["next"] and "active=true" in body["next"]
    admin_api.post("/groups", {"name": "one"}), admin_api.post("/groups", {"name": "two"})
    factories.tool(organization, "one"), factories.tool(organization, "two")
    for path in ("/tools", "/grants", "/audit/records", "/groups"):
        following = admin_api.get(f"{path}?page_size=1").json()["next"]
        assert following.startswith(f"/api/v1{path}?"), path


def test_every_list_of_the_document_is_paged():
    wholes = {"/api/v1/tools/lint"}  # findings, by severity
    shaped = {
        path for path, methods in document()["paths"].items()
        if "list_" in methods.get("get", {}).get("operationId", "")
        and not {"cursor", "page_size"}
        <= {one["name"] for one in methods["get"].get("parameters", [])}
    }  # fmt: skip
    assert shaped - wholes == set()


def test_every_paged_list_of_the_document_can_be_ordered():
    paged = {
        path: {one["name"] for one in methods["get"].get("parameters", [])}
        for path, methods in document()["paths"].items()
        if "get" in methods
    }
    assert {
        path for path, names in paged.items() if "cursor" in names and "ordering" not in names
    } == set()


@pytest.mark.parametrize(
    ("path", "ordering", "key"),
    [("/grants", "subject", "id"), ("/audit/records", "occurred_at", "id"),
     ("/tools/explain", "name", "tool")],
)  # fmt: skip
def test_what_has_no_rows_of_its_own_is_ordered_too(
    admin_api, organization, agent, path, ordering, key
):
    for name in ("one", "two", "three"):
        factories.tool(organization, name)
        grant_actions.set_grants(agent=agent, by=factories.actor(organization), tools=[name])

    def ordered(by: str) -> list[Any]:
        # Reading audit records creates records, so only the existing ones are read.
        until = f"until={before}&" if "records" in path else ""
        pages = walked(admin_api, f"{path}?{until}page_size=2&ordering={by}", key)
        assert len(pages) > 1 and {len(page) for page in pages[:-1]} == {2}
        return [one for page in pages for one in page]

    before = timezone.now().isoformat().replace("+00:00", "Z")
    up, down = ordered(ordering), ordered(f"-{ordering}")
    assert up == down[::-1] and len(up) == len({*up}) > 3
    usual = the(admin_api, f"{path}?page_size=200", key)
    assert [one for one in usual if one in up] == (down if "records" in path else up)
    check_error(admin_api.get(f"{path}?ordering=digest"), 400, "malformed")


def test_groups_come_in_pages(admin_api, organization):
    for name in ("Zoo", "zoo", "a:b", "middle"):
        assert admin_api.post("/groups", {"name": name}).status_code == 201
    pages = walked(admin_api, "/groups?page_size=2", "name")
    assert {len(page) for page in pages[:-1]} == {2}
    names = [name for page in pages for name in page]
    assert names == sorted(names) and {"Zoo", "zoo", "a:b", "middle"} <= {*names}
    down = [name for page in walked(admin_api, "/groups?page_size=3&ordering=-name", "name")
            for name in page]  # fmt: skip
    assert down == names[::-1]


def test_tiers_come_in_pages_by_rank(admin_api):
    names = the(admin_api, "/tiers", "name")
    assert walked(admin_api, "/tiers?page_size=1", "name") == [[name] for name in names]
    assert the(admin_api, "/tiers?ordering=-rank", "name") == names[::-1]


def test_calls_with_a_code_or_of_an_agent_are_found_by_an_index(admin_api, organization, agent):
    quiet = factories.agent(organization, "quiet")
    bulk.executions(organization, 5_000, of=[factories.tool(organization)], by=[agent])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tools_execution")
    for query in ("code=NEVER_SEEN", f"agent={quiet.slug}", "agent=nobody"):
        with CaptureQueriesContext(connection) as asked:
            assert the(admin_api, f"/executions?{query}", "execution_id") == []
        for one in (one["sql"] for one in asked if 'FROM "tools_execution"' in one["sql"]):
            assert looked_at(one) < 10, (query, one)


def looked_at(statement: str) -> int:
    """How many rows of executions PostgreSQL reads for the list."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        plans, rows = [cursor.fetchone()[0][0]["Plan"]], 0
    while plans:
        plan = plans.pop()
        plans += plan.get("Plans", [])
        if plan.get("Relation Name") == "tools_execution":
            rows += int(plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    return rows


def test_versions_of_a_tool_do_not_end_silently(admin_api, organization):
    tool = factories.tool(organization)
    for note in ("one", "two", "three"):
        tool.refresh_from_db()
        changed = actions.amended(tool.version.definition, {"description": note})
        actions.update_tool(tool=tool, definition=changed, by=factories.actor(organization))
    pages = walked(admin_api, "/tools/echo/versions?page_size=3", "number")
    assert pages == [[4, 3, 2], [1]]
    assert the(admin_api, "/tools/echo/versions?ordering=number", "number") == [1, 2, 3, 4]


def test_authorizations_come_in_pages_by_owner(admin_api, organization):
    made = admin_api.post("/mcp-servers", {"name": "far", "url": "https://mcp.example/mcp"})
    assert made.status_code == 201
    server = McpServer.objects.get(organization=organization)
    for owner in ("", "agent:b", "agent:a"):
        McpAuthorization.objects.create(server=server, owner=owner, url=server.url, sealed=b"x")
    pages = walked(admin_api, "/mcp-servers/far/authorizations?page_size=1", "owner")
    assert pages == [[""], ["agent:a"], ["agent:b"]]
    assert admin_api.get("/mcp-servers/far/authorizations").json()["client"] is None


@pytest.mark.parametrize(("path", "size"), [("/agents", 2), ("/organizations", 50)])
def test_a_list_is_ordered_by_name_or_by_when_a_row_was_made(admin_api, organization, path, size):
    """Organizations of other tests are listed with those of this one."""
    for slug in ("m-one", "b-two", "z-three"):
        made = admin_api.post(path, {"slug": slug} | ({"name": slug} if path != "/agents" else {}))
        assert made.status_code == 201, made.json()
    mine = {"m-one", "b-two", "z-three"}

    def ordered(ordering: str) -> list[str]:
        pages = walked(admin_api, f"{path}?page_size={size}{ordering}", "slug")
        return [slug for page in pages for slug in page if slug in mine]

    assert ordered("") == ordered("&ordering=-created_at") == ["z-three", "b-two", "m-one"]
    assert ordered("&ordering=created_at") == ["m-one", "b-two", "z-three"]
    assert ordered("&ordering=slug") == ["b-two", "m-one", "z-three"]
    assert ordered("&ordering=-slug") == ["z-three", "m-one", "b-two"]
    check_error(admin_api.get(f"{path}?ordering=description"), 400, "malformed")


def test_a_page_stays_where_it_is_while_rows_come_and_go(admin_api, organization):
    for slug in ("a", "c", "e"):
        factories.agent(organization, slug)
    first = admin_api.get("/agents?ordering=slug&page_size=2").json()
    factories.agent(organization, "b"), factories.agent(organization, "d")
    assert the(admin_api, first["next"].removeprefix(BASE), "slug") == ["d", "e"]


def test_tools_are_ordered_by_name_also_where_words_are_searched_for(reader_tools):
    assert the(reader_tools, "/tools?group=mine&ordering=-name", "name") == ["gem-b", "gem-a"]
    assert the(reader_tools, "/tools?group=mine&q=gem&ordering=name", "name") == ["gem-a", "gem-b"]


@pytest.fixture
def reader_tools(organization: Organization) -> Api:
    for name in ("gem-b", "gem-a"):
        factories.tool(organization, name, group=["mine"])
    agent = factories.agent(organization, "miner", groups=["mine"])
    return factories.api(agent)


def test_executions_are_filtered(admin_api, organization):
    factories.tool(organization), factories.tool(organization, "other")
    one, two = factories.agent(organization, "one"), factories.agent(organization, "two")
    session = Session.objects.create(
        organization=organization, user=one.service_account, agent=one, groups=[], state="s"
    )
    first, second, third = (
        factories.execution(one), factories.execution(two), factories.execution(two, "other")
    )  # fmt: skip
    type(first).objects.filter(pk=first.pk).update(session=session)
    factories.end_execution(second, status="Failed", error_code="WENT_WRONG")
    third.refresh_from_db()
    since = third.created_at.isoformat().replace("+00:00", "Z")
    found = {
        "agent=one": [first], "agent=nobody": [], "tool=echo": [second, first],
        f"session={session.pk}": [first], "status=Failed": [second],
        "state=undefined&agent=one": [first], "state=elsewhere": [],
        "code=WENT_WRONG&agent=two": [second], "code=OTHER": [],
        f"since={since}&agent=two": [third], f"until={since}": [second, first],
        f"since={since}&until={since}": [],
    }  # fmt: skip
    for query, rows in found.items():
        shown = the(admin_api, f"/executions?{query}", "execution_id")
        assert shown == [str(row.pk) for row in rows], query


def test_a_filter_widens_nothing(organization, api):
    factories.tool(organization)
    theirs = factories.agent(organization, "theirs")
    factories.execution(theirs)
    assert the(api, "/executions?agent=theirs", "execution_id") == []


def test_agents_are_searched(admin_api, organization):
    factories.agent(organization, "seller", description="Sells 100% of it")
    factories.agent(organization, "buyer", description="Buys")
    assert admin_api.post("/agents/buyer/suspend", {}).status_code == 200
    assert the(admin_api, "/agents?q=SELL", "slug") == ["seller"]
    assert the(admin_api, "/agents?q=100%25", "slug") == ["seller"]
    assert the(admin_api, "/agents?active=false", "slug") == ["buyer"]
    assert the(admin_api, "/agents?q=nobody", "slug") == []


def test_sessions_and_requests_are_filtered_by_agent_and_time(admin_api, organization):
    agent = factories.agent(organization, "one")
    made = Session.objects.create(
        organization=organization, user=agent.service_account, agent=agent, groups=[], state="s"
    )
    Session.objects.filter(pk=made.pk).update(created_at=F("created_at") - timedelta(days=2))
    assert the(admin_api, "/sessions?agent=one&open=true", "id") == [str(made.pk)]
    assert the(admin_api, "/sessions?agent=two", "id") == []
    factories.api(agent).get("/tools")
    assert the(admin_api, "/requests?agent=one&kind=list", "kind") == ["list"]
    assert the(admin_api, "/requests?until=2020-01-01T00:00:00Z", "kind") == []
    assert the(admin_api, f"/requests?session={made.pk}", "kind") == []


MORE = {"pins": {"echo": "1.0.0"}, "budget": {"amount": "5", "period": "day"}}


def test_what_agents_were_granted_is_the_same_in_the_list_as_of_each(admin_api, organization):
    factories.tool(organization)
    everything = {"slug": "every", "tools": ["*"], "groups": ["*"]}
    some = {"slug": "some", "tools": ["echo", "read_file"], "tool_groups": ["default"]}
    for body in (everything, some, {"slug": "none", "tools": []}):
        assert admin_api.post("/agents", body).status_code == 201
    assert admin_api.patch("/agents/some", MORE).status_code == 200
    for row in admin_api.get("/agents").json()["results"]:
        assert row == admin_api.get(f"/agents/{row['slug']}").json()
    of_some = admin_api.get("/agents/some").json()
    assert of_some["tools"] == ["echo", "read_file"] and of_some["pins"] == {"echo": "1.0.0"}
    assert of_some["tool_groups"] == ["default"] and of_some["budget"]["amount"] == "5"
    assert admin_api.get("/agents/every").json()["tools"] == ["*"]


def test_channels_are_filtered(admin_api):
    for name, kind in (("way", "inbox"), ("other", "inbox")):
        assert admin_api.post("/channels", {"name": name, "kind": kind}).status_code == 201
    admin_api.patch("/channels/other", {"enabled": False})
    assert the(admin_api, "/channels?kind=inbox&enabled=true", "name") == ["way"]
    assert the(admin_api, "/channels?kind=email", "name") == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/groups", {"name": "my group/é"}, "name"),
        ("/organizations", {"slug": "acme-new", "name": "Acme"}, "slug"),
        ("/signing-keys", None, "key_id"),
    ],
)
def test_what_is_made_says_where_it_is(admin_api, path, body, field):
    made = admin_api.post(path, body)
    assert made.status_code == 201, made.json()
    place = made.headers["Location"].removeprefix(BASE)
    assert admin_api.get(place).json()[field] == made.json()[field]


def test_a_token_says_where_it_is_revoked(admin_api, organization):
    factories.agent(organization, "one")
    made = admin_api.post("/agents/one/tokens", {})
    assert made.headers["Location"] == f"/api/v1/agents/one/tokens/{made.json()['id']}"
    made = admin_api.post(f"{made.headers['Location'].removeprefix(BASE)}/rotate", {})
    assert made.headers["Location"] == f"/api/v1/agents/one/tokens/{made.json()['id']}"
    assert admin_api.delete(made.headers["Location"].removeprefix(BASE)).status_code == 204


def test_a_token_of_ones_own_says_where_it_is_revoked(admin_user):
    api = Api(factories.token(admin_user, scopes=["read", "execute", "manage"]))
    made = api.post("/tokens", {"username": admin_user.username, "password": "correct horse"})
    for _ in range(2):
        assert made.status_code == 201, made.json()
        place = made.headers["Location"].removeprefix(BASE)
        assert (made.status_code, place) == (201, f"/tokens/{made.json()['id']}")
        made = api.post(f"{place}/rotate", {})
    assert api.delete(made.headers["Location"].removeprefix(BASE)).status_code == 204


KEY = {"name": "key", "header": "X-Key", "value": "c4nary"}


@pytest.mark.parametrize("body", [{}, {"header": "X-Other"}, {"value": "c4nary-2"}])
def test_a_credential_is_put_whole(admin_api, body):
    admin_api.post("/egress-credentials", KEY)
    check_error(admin_api.put("/egress-credentials/key", body), 400)
    assert admin_api.get("/egress-credentials/key").json()["header"] == "X-Key"


def test_a_credential_that_is_put_keeps_its_value_by_the_mask_alone(admin_api):
    made = admin_api.post("/egress-credentials", KEY).json()
    whole = {"name": "key", "header": "X-Other", "value": made["value"]}
    assert admin_api.put("/egress-credentials/key", whole).json()["header"] == "X-Other"
    assert admin_api.patch("/egress-credentials/key", {"header": "X-Key"}).status_code == 200


def test_an_inbox_item_is_read_once(admin_api, admin_user, organization):
    message = Message.objects.create(
        organization=organization, channel_name="way", kind="inbox", sender="a", subject="s",
        body="b",
    )  # fmt: skip
    item = InboxItem.objects.create(message=message, user=admin_user)
    assert the(admin_api, "/inbox?unread=true", "id") == [str(item.pk)]
    first = admin_api.post(f"/inbox/{item.pk}/read").json()["read_at"]
    assert first and admin_api.post(f"/inbox/{item.pk}/read").json()["read_at"] == first
    assert the(admin_api, "/inbox?unread=true", "id") == []
    assert the(admin_api, "/inbox?unread=false", "id") == [str(item.pk)]


FEW = 3


def test_the_list_of_agents_asks_as_much_of_four_as_of_one(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "one", tools=["read_file"])
    few = fewest(admin_client, "/api/v1/agents")
    for slug in ("two", "three", "four"):
        factories.agent(organization, slug, tools=["*"], groups=["default"])
    assert fewest(admin_client, "/api/v1/agents", few) <= few
    assert count_rows(admin_client, "/api/v1/agents") == 4


@pytest.mark.timeout(300)
@pytest.mark.part("matrices")
def test_a_list_asks_as_much_of_many_rows_as_of_few(organization: Organization) -> None:
    side, reader = Side(organization, "axe"), factories.superuser(organization)
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(reader, backend="tools.accounts.login.login.PeopleBackend")
    lists = addresses(side)
    more(side, reader, FEW)
    few = {name: fewest(client, address) for name, address in lists.items()}
    rows = {name: count_rows(client, address) for name, address in lists.items()}
    more(side, reader, 3 * FEW)
    many = {name: fewest(client, address, few[name]) for name, address in lists.items()}
    assert {name: (few[name], many[name]) for name in lists if many[name] > few[name]} == {}
    fixed = {"api-tiers"}  # their number is fixed
    grown = {name for name, address in lists.items() if count_rows(client, address) > rows[name]}
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


def count_rows(client: Client, address: str) -> int:
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
    grant_actions.set_grants(
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
