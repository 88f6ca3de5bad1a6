"""`/agents/`: the list, an agent's page, and what is done to it there."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from audit.events import Event
from audit.models import AuditRecord
from tests import bulk, factories
from tests.api import Api
from tests.ui.pages import codes, htmx, notes, text
from tools.accounts.grants.grant_queries import granted_tools
from tools.limits import allowances
from tools.models import Agent, Allowance, Execution, Organization, Token, User


@pytest.fixture
def bot(organization: Organization) -> Agent:
    return factories.agent(organization, "bot", description="Sorts mail.", groups=["default"])


@pytest.fixture
def administrator(client_of, person: User) -> Client:
    person.groups.add(Group.objects.get(name="role:administrator"))
    return client_of()


def record(code: str, bot: Agent) -> AuditRecord:
    """The newest of the agent's organization."""
    return AuditRecord.objects.filter(organization=bot.organization.slug, code=code).latest("pk")


def test_the_list_tells_how_each_agent_stands(admin_client: Client, bot: Agent) -> None:
    factories.token(bot.service_account)
    page = text(admin_client.get("/agents/"))
    assert "Sorts mail." in page and 'href="/agents/bot/"' in page
    assert "never-called" in notes(page) and notes(page)["tier"] == ["Enterprise"]
    assert {"tokens", "spent-today"} <= set(notes(page))


def test_who_may_not_see_tokens_or_calls_is_shown_none(client_of, bot: Agent) -> None:
    page = text(client_of("tools.view_agent").get("/agents/"))
    assert "bot" in page and not {"tokens", "spent-today"} & set(notes(page))


@pytest.mark.parametrize(
    ("query", "there"),
    [("q=bo", True), ("q=mail", True), ("q=else", False),
     ("state=active", True), ("state=suspended", False), ("page=x", True)],
)  # fmt: skip
def test_the_list_is_searched(admin_client: Client, bot: Agent, query: str, there: bool) -> None:
    page = text(admin_client.get(f"/agents/?{query}", headers=htmx("results", "filters")))
    assert ("Sorts mail." in page) is there and "<html" not in page


def test_the_list_asks_no_more_for_more_agents(
    admin_client: Client, organization: Organization, django_assert_max_num_queries
) -> None:
    for at in range(30):
        factories.agent(organization, f"bot-{at}")
    admin_client.get("/agents/")  # the catalog is known from then on
    with django_assert_max_num_queries(18):
        page = text(admin_client.get("/agents/"))
    assert re.findall(r"\d+", notes(page)["range"][0]) == ["1", "25", "30"]


def test_the_page_shows_what_it_holds_and_uses(
    admin_client: Client, organization: Organization, bot: Agent, django_assert_max_num_queries
) -> None:
    factories.tool(organization)
    execution = factories.execution(bot)
    quota = {"tool": None, "kind": "calls", "period": "day", "amount": 10}
    by = factories.actor(organization)
    allowances.set_allowances(agent=bot, by=by, changes={"quotas": [quota]})
    with django_assert_max_num_queries(40):
        page = text(admin_client.get("/agents/bot/"))
    (bound,) = notes(page)["bound"]
    assert re.findall(r"\d+", bound) == ["0", "10", "10"] and "bound-of-calls-a-day" in notes(page)
    assert f"/executions/{execution.pk}/" in page and "none-refused" in notes(page)


def test_a_refusal_is_found_behind_however_many_calls(
    admin_client: Client, organization: Organization, bot: Agent
) -> None:
    of: dict[str, list[Any]] = {"of": [factories.tool(organization)], "by": [bot]}
    bulk.executions(organization, 1, **of, days=20, status="PermissionDenied")
    bulk.executions(organization, 501, **of, days=1)
    assert "some-refused" in notes(admin_client.get("/agents/bot/"))


def test_many_grants_stand_on_pages(admin_client: Client, organization: Organization) -> None:
    factories.agent(organization, "rich", permissions=[f"p.{at:03}" for at in range(80)])
    page = text(admin_client.get("/agents/rich/"))
    assert "p.050" in page and "p.079" not in page
    more = re.search(r'href="\?after=([^"#]+)#grants"', page)
    assert more and "p.079" in text(admin_client.get(f"/agents/rich/?after={more[1]}"))
    assert admin_client.get("/agents/rich/?after=nonsense").status_code == 200


# --- made and changed -------------------------------------------------------------------------


def test_an_agent_is_made_by_a_form(
    administrator: Client, organization: Organization, person: User
) -> None:
    data = {"slug": "fresh", "description": "New.", "groups": "default", "strict": "yes"}
    assert administrator.post("/agents/new/", data)["Location"] == "/agents/fresh/"
    made = Agent.objects.get(organization=organization, slug="fresh")
    assert (made.strict, granted_tools(made)) == (True, ["*"])
    assert record(Event.AGENT_CREATE, made).actor == person.username


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("wrong", "status", "noted", "expected"),
    [
        ({"slug": "No Good"}, 400, "refused", "No Good"),
        ({"slug": ""}, 400, "flaw-slug", ""),
        ({"slug": "a" * 64}, 400, "flaw-slug", "63"),
        ({"slug": "bot"}, 409, "refused", "bot"),
        ({"slug": "a\x00b"}, 400, "refused", "a"),
        ({"groups": "*"}, 403, "refused", "*"),
        ({"tools": "nowhere"}, 404, "refused", "nowhere"),
        ({"groups": ",".join(f"g{at}" for at in range(201))}, 400, "flaw-groups", "200"),
    ],
)
def test_an_agent_that_cannot_be_made_is_explained(
    administrator: Client, bot: Agent, wrong: dict[str, str], status: int, noted: str, expected: str
) -> None:
    page = administrator.post("/agents/new/", {"slug": "fresh", "groups": "default"} | wrong)
    assert page.status_code == status and expected in notes(page)[noted][0]
    assert Agent.objects.filter(organization=bot.organization).count() == 1


def test_an_agent_is_changed(admin_client: Client, bot: Agent) -> None:
    data = {"description": "Else.", "max_in_flight": "4"}
    assert admin_client.post("/agents/bot/edit/", data).status_code == 302
    bot.refresh_from_db()
    assert (bot.description, bot.max_in_flight, bot.strict) == ("Else.", 4, False)
    page = admin_client.post("/agents/bot/edit/", {"max_in_flight": "9" * 30})
    assert page.status_code == 400 and "flaw-max_in_flight" in notes(page)


# --- suspended --------------------------------------------------------------------------------


def test_a_suspended_agent_is_refused_at_once(admin_client: Client, bot: Agent) -> None:
    key = factories.token(bot.service_account)
    admin_client.post("/agents/bot/suspend", {"reason": "It loops."})
    assert Api(key).get("/tools").status_code == 401
    assert record(Event.AGENT_SUSPEND, bot).details["reason"].startswith("It loops.")
    assert 'action="/agents/bot/resume"' in text(admin_client.get("/agents/bot/"))
    admin_client.post("/agents/bot/resume")
    assert Api(key).get("/tools").status_code == 200


def test_what_changes_nothing_says_so_and_leaves_no_record(
    admin_client: Client, organization: Organization, bot: Agent
) -> None:
    grant = {"kind": "permission", "names": "mail.send"}
    records = AuditRecord.objects.filter(organization=organization.slug, subject="bot")
    for address, sent in (
        ("/agents/bot/suspend", {"reason": "It loops."}),
        ("/agents/bot/give", grant),
        ("/agents/bot/bounds/", bounds(("", "cost", "day", "1"))),
    ):
        done = notes(admin_client.post(address, sent, follow=True))
        before = records.count()
        again = notes(admin_client.post(address, sent, follow=True))
        assert "message-success" in done and "message-info" in again
        assert "message-success" not in again and records.count() == before


def test_over_the_api_a_reason_may_be_given(organization: Organization, bot: Agent) -> None:
    chief = factories.superuser(organization)
    api = Api(factories.token(chief, scopes=["read", "manage"]))
    assert api.post("/agents/bot/suspend").status_code == 200
    assert "reason" not in record(Event.AGENT_SUSPEND, bot).details
    assert api.patch("/agents/bot", {"active": True}).status_code == 200
    assert api.post("/agents/bot/suspend", {"reason": "It loops."}).status_code == 200
    assert record(Event.AGENT_SUSPEND, bot).details["reason"] == "It loops."
    assert api.post("/agents/bot/suspend", {"else": 1}).status_code == 400


def test_its_open_calls_are_ended_where_asked_for(
    admin_client: Client, organization: Organization, bot: Agent
) -> None:
    factories.tool(organization)
    kept = factories.execution(factories.agent(organization, "other"))
    execution = factories.execution(bot)
    admin_client.post("/agents/bot/suspend", {"stop": "yes"})
    assert Execution.objects.get(pk=execution.pk).status == "Cancelled"
    assert Execution.objects.get(pk=kept.pk).status == "Pending"
    assert record(Event.TOOL_CANCEL, bot).execution_id == execution.pk


def test_who_may_not_change_executions_ends_none(
    client_of, organization: Organization, bot: Agent
) -> None:
    factories.tool(organization)
    factories.execution(bot)
    client = client_of("tools.view_agent", "tools.change_agent")
    assert client.post("/agents/bot/suspend", {"stop": "yes"}).status_code == 403
    bot.refresh_from_db()
    assert bot.active
    assert client.post("/agents/bot/suspend").status_code == 302


# --- grants -----------------------------------------------------------------------------------


def test_a_grant_is_given_and_taken_away(admin_client: Client, bot: Agent) -> None:
    data = {"kind": "permission", "names": "mail.send, mail.read"}
    admin_client.post("/agents/bot/give", data)
    assert "mail.read" in text(admin_client.get("/agents/bot/"))
    admin_client.post("/agents/bot/take", {"kind": "permission", "name": "mail.read"})
    bot.service_account.refresh_from_db()
    assert bot.service_account.granted_permissions == ["mail.send"]
    assert record(Event.GRANT_CHANGE, bot).details["removed"] == {"permissions": ["mail.read"]}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("grant", "status", "expected"),
    [
        ({"kind": "permission", "names": "mail.send"}, 403, "mail.send"),
        ({"kind": "else", "names": "x"}, 400, ""),
        ({"kind": "tool", "names": " , "}, 400, ""),
        ({"kind": "tool", "names": "nowhere"}, 404, "nowhere"),
        ({"kind": "permission", "names": "x" * 101}, 400, "100"),
        ({}, 400, ""),
    ],
)
def test_a_grant_that_cannot_be_given_is_explained(
    administrator: Client, bot: Agent, grant: dict[str, str], status: int, expected: str
) -> None:
    page = administrator.post("/agents/bot/give", grant)
    assert page.status_code == status and expected in notes(page)["refused"][0]
    bot.service_account.refresh_from_db()
    assert bot.service_account.granted_permissions == []


@pytest.mark.parametrize("grant", [{}, {"kind": "tool", "name": "x\x00"}, {"kind": "permission"}])
def test_what_is_not_held_is_not_taken(admin_client: Client, bot: Agent, grant: dict) -> None:
    assert admin_client.post("/agents/bot/take", grant).status_code in (400, 404)


# --- budgets ----------------------------------------------------------------------------------


def bounds(*rows: tuple[str, str, str, str]) -> dict[str, str]:
    names = ("tool", "kind", "period", "amount")
    return {
        f"allowances-{at}-{name}": value
        for at, row in enumerate(rows)
        for name, value in zip(names, row, strict=True)
    }


def test_bounds_are_set_and_taken_away(admin_client: Client, bot: Agent) -> None:
    both = bounds(("", "cost", "month", "2.50"), ("", "calls", "day", "7"), ("", "x", "", ""))
    assert admin_client.post("/agents/bot/bounds/", both).status_code == 302
    found = Allowance.objects.filter(agent=bot).values_list("kind", "period", "amount")
    assert {(kind, period, f"{amount:f}") for kind, period, amount in found} == {
        ("cost", "month", "2.500000"), ("calls", "day", "7.000000"),
    }  # fmt: skip
    assert 'value="2.5"' in text(admin_client.get("/agents/bot/bounds/"))
    admin_client.post("/agents/bot/bounds/", bounds(("", "cost", "month", "")))
    assert not Allowance.objects.filter(agent=bot).exists()
    assert record(Event.ALLOWANCE_CHANGE, bot).subject == "bot"


@pytest.mark.parametrize(
    ("row", "noted", "expected"),
    [
        (("", "cost", "day", "much"), "flaw-allowances", "2.50"),
        (("", "cost", "day", "²"), "flaw-allowances", "2.50"),
        (("", "cost", "day", "9" * 30), "flaw-allowances", "2.50"),
        (("", "calls", "day", "1.5"), "flaw-allowances", ""),
        (("", "coins", "day", "1"), "flaw-allowances", ""),
        (("nowhere", "calls", "day", "1"), "refused", "nowhere"),
    ],
)
def test_a_bound_that_cannot_be_is_explained(
    admin_client: Client, bot: Agent, row: tuple[str, str, str, str], noted: str, expected: str
) -> None:
    page = admin_client.post("/agents/bot/bounds/", bounds(row))
    assert page.status_code in (400, 404) and expected in notes(page)[noted][0]
    assert not Allowance.objects.filter(agent=bot).exists()


# --- tokens -----------------------------------------------------------------------------------

TOKEN = {"label": "mail server", "days": "7", "scope": ["read", "execute"]}


def test_a_token_is_shown_once_and_works(admin_client: Client, bot: Agent) -> None:
    page = admin_client.post("/agents/bot/tokens", TOKEN | {"groups": "default"}, follow=True)
    shown = re.search(r"tcr_\w{8}_\w{49}", text(page))
    assert shown and "no-store" in page["Cache-Control"]
    token = Token.objects.get(user=bot.service_account)
    assert (token.label, token.groups, token.tools) == ("mail server", ["default"], None)
    assert Api(shown[0]).get("/tools").status_code == 200
    assert shown[0] not in text(admin_client.get("/agents/bot/"))
    assert record(Event.TOKEN_CREATE, bot).details["token_id"] == str(token.pk)


@pytest.mark.parametrize(
    ("wrong", "noted", "expected"),
    [
        ({"label": ""}, "flaw-label", "100"),
        ({"days": "400"}, "flaw-days", "365"),
        ({"scope": ["manage"]}, "flaw-scope", ""),
        ({"groups": "beyond"}, "refused", "beyond"),
        ({"tools": "x" * 101}, "flaw-tools", "100"),
    ],
)
def test_a_token_that_cannot_be_made_is_explained(
    admin_client: Client, bot: Agent, wrong: dict, noted: str, expected: str
) -> None:
    page = admin_client.post("/agents/bot/tokens", TOKEN | wrong)
    assert page.status_code == 400 and expected in notes(page)[noted][0]
    assert not Token.objects.filter(user=bot.service_account).exists()


def test_an_administrator_issues_none_that_may_more_than_they(
    administrator: Client, organization: Organization
) -> None:
    rich = factories.agent(organization, "rich", groups=["*"])
    page = administrator.post("/agents/rich/tokens", TOKEN)
    assert page.status_code == 403 and codes(page) == ["grant_beyond_own"]
    assert "*" in notes(page)["refused"][0]
    assert not Token.objects.filter(user=rich.service_account).exists()
    page = administrator.post("/agents/rich/tokens", TOKEN | {"groups": "default"}, follow=True)
    assert "token-shown-once" in notes(page)


def test_over_the_api_neither(organization: Organization, person: User) -> None:
    person.groups.add(Group.objects.get(name="role:administrator"))
    rich = factories.agent(organization, "rich", permissions=["mail.send"])
    api = Api(factories.token(person, scopes=["read", "manage"]))
    answer = api.post("/agents/rich/tokens", {"label": "x"})
    assert (answer.status_code, answer.json()["code"]) == (403, "grant_beyond_own")
    assert not Token.objects.filter(user=rich.service_account).exists()


def test_a_token_is_revoked(admin_client: Client, bot: Agent, organization: Organization) -> None:
    key = factories.token(bot.service_account)
    factories.token(factories.agent(organization, "other").service_account)
    ours = Token.objects.filter(user__organization=organization)
    for token in ours.exclude(user=bot.service_account):
        assert admin_client.post(f"/agents/bot/tokens/{token.pk}/revoke").status_code == 404
    own = Token.objects.get(user=bot.service_account)
    assert admin_client.post(f"/agents/bot/tokens/{own.pk}/revoke").status_code == 302
    assert Api(key).get("/tools").status_code == 401
