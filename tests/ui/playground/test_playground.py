"""The playground and the tab *Call* of a tool: who may call what as whom, what is sent, what is
shown, what is loaded again."""

import html
import json
import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from guardian.shortcuts import assign_perm

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, notes, text
from tools.execution.admit import admit
from tools.models import Agent, Execution, Organization, User
from tools.ui.playground import playground
from tools.ui.playground.replay import remove_redactions

IMPERSONATES = ("tools.impersonate_agent", "tools.view_execution")
FAILS = "def main(parameters):\n    raise ValueError('broken ' + parameters['text'])\n"


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls that are taken back: no worker sees them."""
    monkeypatch.setattr(playground, "WAIT_S", 0.0)
    monkeypatch.setattr(playground, "LIVE_WAIT_S", 0.0)


def posted_form(**fields: Any) -> dict[str, Any]:
    usual = {"do": "run", "sends": "form", "state": "initial", "group": "default"}
    return usual | fields


def made_calls(user: User) -> Execution:
    return Execution.objects.filter(made_by=user).latest("id")


def sent_json(page: str) -> Any:
    """What stands in the area for JSON."""
    found = re.search(r'<textarea name="raw"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    assert found
    return json.loads(html.unescape(found[1]))


# --- who ----------------------------------------------------------------------


def test_users_who_may_impersonate_no_agent_are_offered_none(
    client_of: Grant, agent: Agent
) -> None:
    page = text(client_of("tools.view_agent", IMPERSONATES[0]).get("/playground/"))
    assert agent.slug not in page
    assert 'name="as"' not in page


def test_the_agents_one_may_act_as_are_offered(client_of: Grant, agent: Agent) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    theirs = factories.agent(other, f"theirs-{uuid4().hex[:6]}")
    page = text(client_of(*IMPERSONATES).get("/playground/"))
    assert f'<option value="{agent.slug}">' in page
    assert theirs.slug not in page


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_agent_that_is_not_ones_is_not_there(
    client_of: Grant, agent: Agent, organization: Organization, method: str
) -> None:
    factories.tool(organization)
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    theirs = factories.agent(other, f"theirs-{uuid4().hex[:6]}")
    everything = client_of(*IMPERSONATES, "tools.view_tool")
    nothing = Client()
    nothing.force_login(
        factories.person(organization), backend="tools.accounts.login.login.PeopleBackend"
    )
    for client, slug in ((everything, theirs.slug), (everything, "nobody"), (nothing, agent.slug)):
        asked = posted_form(**{"as": slug, "p.text": "x"})
        answer = getattr(client, method)("/tools/echo/call/", asked)
        assert answer.status_code == 404
    assert not organization.executions.exists()


@pytest.mark.usefixtures("_no_waiting")
def test_a_call_as_an_agent_is_the_agents(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    client_of(*IMPERSONATES, "tools.view_tool").post(
        "/tools/echo/call/", posted_form(**{"as": agent.slug, "p.text": "x"})
    )
    execution = made_calls(person)
    assert execution.agent == agent
    assert execution.user == agent.service_account
    assert execution.parameters == {"text": "x"}
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    assert record.actor == agent.slug
    assert record.details["made_by"] == f"person:{person.username}"


def test_an_agents_gates_hold_for_a_superuser(
    admin_client: Client, admin_user: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization, group=["hidden"])
    asked = posted_form(**{"as": agent.slug, "p.text": "x", "group": "hidden"})
    page = text(admin_client.post("/tools/echo/call/", asked))
    assert "HTTP 403 Forbidden" in page
    assert "group_not_granted" in page or "groups_not_granted" in page
    assert made_calls(admin_user).status == "PermissionDenied"


def test_a_tool_that_is_neither_theirs_nor_the_agents_is_not_there(
    client_of: Grant, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization, group=["hidden"])
    client = client_of(*IMPERSONATES)
    for name in ("echo", "nothing"):
        assert client.get(f"/tools/{name}/call/?as={agent.slug}").status_code == 404
        asked = posted_form(**{"as": agent.slug, "p.text": "x"})
        assert client.post(f"/tools/{name}/call/", asked).status_code == 404
    found = client.get(f"/playground/?q=echo&as={agent.slug}", headers=htmx("found"))
    assert found.status_code == 200 and "/tools/echo/" not in text(found)


def test_the_tools_of_the_agent_are_offered(
    client_of: Grant, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization, "plain_joke")
    client = client_of(*IMPERSONATES)
    assert "plain_joke" not in text(client.get("/playground/?q=plain_joke", headers=htmx("found")))
    theirs = client.get(f"/playground/?q=plain_joke&as={agent.slug}", headers=htmx("found"))
    assert "/tools/plain_joke/call/?as=" in text(theirs)


def test_another_caller_keeps_what_was_filled_in(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    asked = posted_form(**{"as": agent.slug, "p.text": "kept", "do": "as"})
    page = text(admin_client.post("/tools/echo/call/", asked, headers=htmx("play")))
    assert "kept" in page
    assert agent.slug in notes(page)["as-agent"][0]
    assert not organization.executions.exists()


# --- what is sent ---------------------------------------------------------------


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize(
    ("sends", "text_sent"), [("form", "of the form"), ("json", "of the JSON"), ("x", "of the form")]
)
def test_the_one_that_is_marked_is_sent(
    admin_client: Client, admin_user: User, organization: Organization, sends: str, text_sent: str
) -> None:
    factories.tool(organization)
    raw = '{"text": "of the JSON"}'
    asked = posted_form(**{"p.text": "of the form", "raw": raw, "sends": sends})
    page = text(admin_client.post("/tools/echo/call/", asked))
    assert made_calls(admin_user).parameters == {"text": text_sent}
    assert sent_json(page) == {"text": text_sent}
    assert f'name="p.text" value="{text_sent}"' in page or text_sent in page


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "raw", ["", "{", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', '"x"', "[" * 900]
)
def test_json_that_cannot_be_sent_is_said_at_its_field(
    admin_client: Client, organization: Organization, raw: str
) -> None:
    factories.tool(organization)
    page = text(admin_client.post("/tools/echo/call/", posted_form(raw=raw, sends="json")))
    assert "not-called" in notes(page)
    assert "flaw-raw" in notes(page)
    assert 'aria-describedby="i-raw_error"' in page and 'aria-invalid="true"' in page
    assert not organization.executions.exists()


def test_what_does_not_fit_the_tool_is_said_at_its_field(
    admin_client: Client, organization: Organization
) -> None:
    number = {"name": "n", "type": "Integer", "description": "d", "required": True}
    factories.tool(organization, parameters=[number])
    for sends in ("form", "json"):
        asked = posted_form(raw='{"n": "many"}', sends=sends)
        page = text(admin_client.post("/tools/echo/call/", asked))
        assert "HTTP 400 Bad Request" in page
        assert "see-fields" in notes(page)
        assert 'name="p.n"' in page


def test_json_the_form_cannot_hold_is_sent_as_it_stands(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    raw = '{"text": 7, "more": {"a": [1]}}'
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(raw=raw, sends="json", do="write"))
    )
    assert "form-cannot-hold" in notes(page)
    assert sent_json(page) == {"text": 7, "more": {"a": [1]}}


# --- what is shown ----------------------------------------------------------------


@pytest.mark.usefixtures("committed", "crib")
def test_the_answer_is_the_body_the_agent_gets(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(**{"as": agent.slug, "p.text": "hé\n"}))
    )
    assert "HTTP 200 OK" in page
    body = json.loads(notes(page)["body"][0])
    same = factories.api(agent).get(f"/executions/{body['execution_id']}").json()
    body.pop("rate", None)
    assert body == same
    assert body["output"] == {"echo": {"text": "hé\n"}}
    assert 'data-event="Completed"' in page


def test_a_refusal_is_the_body_the_agent_gets(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    sent = posted_form(**{"as": agent.slug, "raw": "{}"}, sends="json")
    page = text(admin_client.post("/tools/echo/call/", sent))
    body = json.loads(notes(page)["body"][0])
    asked = {"parameters": {}, "group": ["default"], "state": "initial"}
    same = factories.api(agent).post("/tools/echo/execute", asked).json()
    for one in (body, same):
        one.pop("request_id")
        one.pop("execution_id")
    assert body == same


@pytest.mark.usefixtures("_no_waiting")
def test_an_open_call_is_followed_only_by_the_user_who_made_it(
    admin_client: Client, client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization)
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(**{"p.text": "x"}), headers=htmx("play"))
    )
    assert "HTTP 202 Accepted" in page
    live = page.split('data-every="1" hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert admin_client.get(live, headers=htmx("answer")).status_code == 204
    unseen = live.split("&seen")[0]
    assert "HTTP 202" in text(admin_client.get(unseen, headers=htmx("answer")))
    other = client_of("tools.view_execution")
    assert other.get(unseen, headers=htmx("answer")).status_code == 404
    assert admin_client.get("/tools/echo/call/?follow=x").status_code == 404


@pytest.mark.usefixtures("_no_waiting")
def test_an_agents_call_is_followed_only_as_long_as_one_may_read_it(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    client = client_of(*IMPERSONATES, "tools.view_tool")
    client.post("/tools/echo/call/", posted_form(**{"as": agent.slug, "p.text": "x"}))
    address = f"/tools/echo/call/?follow={made_calls(person).pk}"
    assert client.get(address).status_code == 200
    person.user_permissions.clear()
    assert client.get(address).status_code == 404
    assert "?from=" not in text(client.get("/playground/"))


@pytest.mark.usefixtures("_no_waiting")
def test_the_call_stands_there_as_code_without_being_made(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(**{"p.text": "it's $HOME"}, do="write"))
    )
    assert not organization.executions.exists()
    assert "http://testserver/api/v1/tools/echo/execute" in page
    assert "$TOOLCRIB_TOKEN" in page
    assert "tcr_" not in page
    assert "tools/call" in page


# --- once ---


def sent_twice(client: Client, address: str, form: dict[str, Any], **options: Any) -> list[Any]:
    return [client.post(address, form | {"one_time_key": "a" * 22}, **options) for _ in range(2)]


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("address", ["/tools/echo/call/", "/tools/echo/try", "/playground/"])
def test_a_call_that_is_sent_twice_is_made_once(
    admin_client: Client, admin_user: User, organization: Organization, address: str
) -> None:
    factories.tool(organization)
    asked = posted_form(**{"tool": "echo", "p.text": "x"})
    first, second = sent_twice(admin_client, address, asked, follow=True)
    execution = organization.executions.get()
    assert "HTTP 202 Accepted" in text(first)
    if address == "/tools/echo/call/":
        assert second.redirect_chain[-1][0] == f"{address}?follow={execution.pk}"
        assert "HTTP 202 Accepted" in text(second)
        assert sent_json(text(second)) == {"text": "x"}
    assert "done once" in notes(second)["message-info"][0]


@pytest.mark.usefixtures("_no_waiting")
def test_a_call_that_htmx_sends_twice_is_made_once(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    asked = posted_form(**{"p.text": "x"})
    first, second = sent_twice(admin_client, "/tools/echo/call/", asked, headers=htmx("play"))
    address = f"/tools/echo/call/?follow={organization.executions.get().pk}"
    assert first["HX-Replace-Url"] == second["HX-Redirect"] == address
    page = text(admin_client.get(address))
    assert "HTTP 202 Accepted" in page and 'id="answer"' in page


def test_a_refused_call_that_is_sent_twice_is_refused_once(
    admin_client: Client, organization: Organization
) -> None:
    number = {"name": "n", "type": "Integer", "description": "d", "required": True}
    factories.tool(organization, parameters=[number])
    asked = posted_form(raw='{"n": "many"}', sends="json")
    first, second = sent_twice(admin_client, "/tools/echo/call/", asked, follow=True)
    assert organization.executions.get().status == "ValidationError"
    for answer in (first, second):
        assert "HTTP 400 Bad Request" in text(answer)
        assert {"see-fields", "flaw-n"} <= set(notes(answer))
    assert sent_json(text(second)) == {"n": "many"}


def test_a_call_that_was_not_made_can_be_sent_again(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    for answer in sent_twice(admin_client, "/tools/echo/call/", posted_form(raw="{", sends="json")):
        assert answer.status_code == 200 and "not-called" in notes(answer)


# --- where it was ---


def test_the_former_addresses_lead_to_the_tab_of_the_tool(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    call = "/tools/echo/call/"
    for former, now in {
        "/tools/echo/try": call,
        "/playground/?tool=echo": call,
        f"/playground/?tool=echo&as={agent.slug}": f"{call}?as={agent.slug}",
        f"/playground/?from={execution.pk}": f"{call}?from={execution.pk}",
        f"/playground/?record={record.pk}": f"{call}?record={record.pk}",
    }.items():
        assert admin_client.get(former)["Location"] == now
    for former in (
        "/playground/?tool=a%2Fb",
        f"/playground/?from={uuid4()}",
        "/playground/?from=x",
    ):
        assert admin_client.get(former).status_code == 404


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("former", ["/playground/", "/tools/echo/try"])
def test_a_form_of_a_former_address_is_sent_on(
    admin_client: Client, admin_user: User, organization: Organization, former: str
) -> None:
    factories.tool(organization)
    sent = posted_form(**{"tool": "echo", "p.text": "x"})
    answer = admin_client.post(former, sent)
    assert (answer.status_code, answer["Location"]) == (307, "/tools/echo/call/")
    admin_client.post(former, sent, follow=True)
    assert made_calls(admin_user).parameters == {"text": "x"}
    assert admin_client.post("/playground/", {"do": "run"}).status_code == 400


# --- what was called ----------------------------------------------------------------


@pytest.mark.usefixtures("_no_waiting")
def test_ones_last_calls_stand_there_and_load_again(
    admin_client: Client, admin_user: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    asked = posted_form(
        **{"as": agent.slug, "p.text": "again", "group": "write", "other_group": "default"}
    )
    admin_client.post("/tools/echo/call/", asked | {"state": "drafting"})
    execution = made_calls(admin_user)
    page = text(admin_client.get("/playground/"))
    assert f"?from={execution.pk}" in page
    loaded = text(admin_client.get(f"/tools/echo/call/?from={execution.pk}"))
    assert sent_json(loaded) == {"text": "again"}
    assert f'<option value="{agent.slug}" selected>' in loaded
    assert 'value="write" checked' in loaded
    assert 'value="default" checked' in loaded
    assert 'name="state" value="drafting"' in loaded


@pytest.mark.usefixtures("_no_waiting")
def test_calls_of_others_are_not_ones_own(
    admin_client: Client, client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization)
    admin_client.post("/tools/echo/call/", posted_form(**{"p.text": "x"}))
    assert "no-calls" in notes(client_of("tools.view_execution").get("/playground/"))


@pytest.mark.usefixtures("_no_waiting")
def test_the_history_costs_the_same_however_long_it_is(
    admin_client: Client,
    admin_user: User,
    organization: Organization,
    django_assert_max_num_queries: Callable[[int], Any],
) -> None:
    factories.tool(organization)
    agents = [factories.agent(organization) for _ in range(25)]
    for one in agents:
        row = admit(factories.caller(one), factories.call("echo", {"text": "x"}))
        Execution.objects.filter(pk=row.pk).update(made_by=admin_user)
    admin_client.get("/playground/")
    with django_assert_max_num_queries(16):
        page = text(admin_client.get("/playground/"))
    assert page.count("?from=") == playground.MOST_HISTORY
    with django_assert_max_num_queries(20):
        admin_client.get("/tools/echo/call/")


def test_a_call_one_may_not_read_is_not_loaded(
    client_of: Grant, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    assert client_of().get(f"/tools/echo/call/?from={execution.pk}").status_code == 404
    for garbage in ("x", "00000000-0000-0000-0000-000000000000"):
        assert client_of().get(f"/tools/echo/call/?from={garbage}").status_code == 404


def test_a_call_of_another_organization_is_not_loaded(
    admin_client: Client, organization: Organization
) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(other)
    factories.tool(organization)
    theirs = factories.execution(factories.agent(other, groups=["default"]))
    assert admin_client.get(f"/tools/echo/call/?from={theirs.pk}").status_code == 404
    record = AuditRecord.objects.filter(execution_id=theirs.pk).latest("id")
    assert admin_client.get(f"/tools/echo/call/?record={record.pk}").status_code == 404
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(again=str(theirs.pk), do="write"))
    )
    assert str(theirs.pk) not in page


def test_a_call_of_an_agent_one_may_not_act_as_would_be_ones_own(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    client = client_of("tools.view_execution", "tools.view_tool")
    page = text(client.get(f"/tools/echo/call/?from={execution.pk}"))
    assert agent.slug in notes(page)["own-call-instead"][0]
    assert 'name="as"' not in page


def test_secrets_are_not_loaded_and_named(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    said = [{"name": name, "type": "String", "description": "d"} for name in ("text", "password")]
    factories.tool(organization, parameters=said)
    execution = factories.execution(agent, text="seen", password="swordfish")
    page = text(admin_client.get(f"/tools/echo/call/?from={execution.pk}"))
    assert "swordfish" not in page
    assert sent_json(page) == {"text": "seen"}
    assert "password" in notes(page)["left-empty"][0]


def test_a_record_of_a_call_is_loaded_by_who_may_open_it(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent, text="of the record", state="drafting")
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    address = f"/tools/echo/call/?record={record.pk}"
    seeing = ("tools.view_tool", "audit.view_auditrecord")
    assert client_of(*seeing).get(address).status_code == 403
    assert address not in text(client_of().get(f"/audit/records/{record.pk}/"))
    client = client_of("audit.view_auditpayload")
    assert address in text(client.get(f"/audit/records/{record.pk}/"))
    page = text(client.get(address))
    assert sent_json(page) == {"text": "of the record"}
    assert 'name="state" value="drafting"' in page
    read = AuditRecord.objects.filter(code="AUDIT.READ", actor=person.username).latest("id")
    assert read.subject == f"record:{record.pk}"


def test_an_execution_leads_to_the_playground(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    page = text(admin_client.get(f"/executions/{execution.pk}/"))
    assert f"/tools/echo/call/?from={execution.pk}" in page


@pytest.mark.usefixtures("committed", "crib")
def test_a_failed_call_is_replayed_beside_the_new_one(
    admin_client: Client, admin_user: User, organization: Organization
) -> None:
    factories.tool(organization, implementation={"source": FAILS})
    first = text(admin_client.post("/tools/echo/call/", posted_form(**{"p.text": "once"})))
    failed = made_calls(admin_user)
    assert failed.status == "Failed"
    assert 'id="compared"' not in first
    loaded = text(admin_client.get(f"/tools/echo/call/?from={failed.pk}"))
    assert f'name="again" value="{failed.pk}"' in loaded
    page = text(
        admin_client.post("/tools/echo/call/", posted_form(**{"p.text": "twice"}, again=failed.pk))
    )
    again = made_calls(admin_user)
    assert again.pk != failed.pk
    beside = page.split('id="compared"')[1]
    assert f"/executions/{failed.pk}/" in beside
    assert f"/executions/{again.pk}/" in beside
    assert "broken once" in beside
    assert "broken twice" in beside


def test_a_call_made_in_an_agents_name_says_who_made_it(
    admin_client: Client, person: User, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    Execution.objects.filter(pk=execution.pk).update(made_by=person)
    assert f"{person.username} <span" in text(admin_client.get(f"/executions/{execution.pk}/"))


def test_one_agent_alone_may_be_granted(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    another = factories.agent(organization)
    client = client_of("tools.view_execution")
    assert Permission.objects.filter(codename="impersonate_agent").exists()
    assign_perm("tools.impersonate_agent", person, another)
    page = text(client.get("/playground/"))
    assert another.slug in page
    assert agent.slug not in page


MARK = "[redacted 0123456789ab]"


def test_what_was_redacted_is_left_out_and_named() -> None:
    kept, places = remove_redactions({"path": "a", "password": MARK, "n": 1})
    assert kept == {"path": "a", "n": 1}
    assert places == ["password"]


def test_what_was_redacted_within_a_value_is_left_empty_at_its_place() -> None:
    asked = {"headers": {"Authorization": f"Bearer {MARK}", "Accept": "*"}, "urls": ["a", MARK]}
    kept, places = remove_redactions(asked)
    assert kept == {"headers": {"Authorization": "", "Accept": "*"}, "urls": ["a", ""]}
    assert places == ["headers/Authorization", "urls/1"]


def test_what_was_cut_is_not_taken_for_the_whole() -> None:
    asked = {
        "text": "begin… 12 more characters [whole 0123456789ab]",
        "list": ["a", "… 7 more [whole 0123456789ab]"],
        "object": {"a": 1, "…": "3 more"},
        "…": "4 more",
    }
    kept, places = remove_redactions(asked)
    assert kept == {"list": ["a", ""], "object": {"a": 1}}
    assert places == ["text", "list/1", "object/what was cut", "what was cut"]


def test_what_is_no_object_has_no_parameters() -> None:
    assert remove_redactions(["a"]) == ({}, [])
