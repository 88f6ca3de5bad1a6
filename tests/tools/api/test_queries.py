"""Unknown query parameters are refused on every route; the routes come from the resolver."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.api.document import document
from tests.tools.api.test_authorization_matrix import Side
from tests.tools.shapes import check_error
from tools.api.urls import urlpatterns
from tools.models import ToolGroup

NONSENSE = "nonsense_7391"
LISTS = sorted(
    path.removeprefix("/api/v1")
    for path, methods in document()["paths"].items()
    for one in methods.get("get", {}).get("parameters", [])
    if one["name"] == "cursor" and "{" not in path
)


def methods_of(pattern: Any) -> set[str]:
    return {one for one in ("get", "post", "put", "patch", "delete") if hasattr(
        pattern.callback.view_class, one)}  # fmt: skip


def check_query(response: Any, field: str) -> dict[str, Any]:
    body: dict[str, Any] = check_error(response, 400, "malformed")
    assert body["details"]["field"] == field
    return body


def test_every_address_refuses_a_parameter_that_it_does_not_know(organization, admin_api, subtests):
    side = Side(organization, "asked")
    for pattern in urlpatterns:
        address = reverse(pattern.name, kwargs=side.place(pattern.name))
        for method in sorted(methods_of(pattern)):
            if pattern.name in {"api-tokens", "api-channel-bounces"}:
                continue  # they identify their caller by the body: see below
            path = f"{address.removeprefix('/api/v1')}?{NONSENSE}=1"
            with subtests.test(method=method, path=path):
                body = check_query(getattr(admin_api, method)(path), NONSENSE)
                assert NONSENSE in body["message"]


@pytest.mark.parametrize(
    "path", ["tokens", "channels/01a20058-6eb6-7174-971b-ab1c8c3d25a2/bounces"]
)
def test_so_does_what_knows_no_caller(db, path):
    check_query(Client().post(f"/api/v1/{path}?{NONSENSE}=1", {}, "application/json"), NONSENSE)


def test_pages_ignore_what_they_do_not_know(admin_client):
    assert admin_client.get(f"/executions/?{NONSENSE}=1").status_code == 200


def test_who_may_not_call_is_refused_first(db):
    check_error(Client().get(f"/api/v1/executions?{NONSENSE}=1"), 401)


def test_a_refused_post_does_nothing(admin_api, organization):
    check_query(admin_api.post("/groups?dry_run=true", {"name": "never"}), "dry_run")
    assert not ToolGroup.objects.filter(organization=organization, name="never").exists()


def test_the_answer_says_what_is_known_and_what_may_be_meant(admin_api):
    body = check_query(admin_api.get("/executions?tol=x"), "tol")
    assert "tool" in body["details"]["known"]
    assert "is tool meant?" in body["message"]


def test_an_address_that_takes_none_says_so(admin_api):
    assert "takes none" in check_query(admin_api.get("/tiers/Core?x=1"), "x")["message"]


def test_of_an_odd_name_no_more_than_its_beginning_comes_back(admin_api):
    name = "é\n" + "x" * 5_000
    body = check_error(admin_api.get(f"/executions?{urlencode({name: 1})}"), 400, "malformed")
    assert len(body["message"]) < 400


@pytest.mark.parametrize(
    "path", ["/tools?state=a&state=a", "/executions?status=Failed&status=Failed"]
)
def test_what_is_not_repeatable_is_given_once(admin_api, path):
    check_query(admin_api.get(path), "state" if "state" in path else "status")


def test_what_is_repeatable_may_be_repeated(admin_api):
    assert admin_api.get("/tools?group=default&group=read-only").status_code == 200


WRONG = [
    "/executions?status=bogus", "/executions?status=", "/executions?parent=x",
    "/executions?session=x", "/executions?since=yesterday", "/executions?until=2026-01-01",
    "/executions?since=0001-01-01T00:00:00%2B23:00",
    "/executions?ordering=tool", "/sessions?open=1", "/requests?kind=bogus",
    "/requests?session=x", "/inbox?unread=yes", "/messages?state=bogus", "/messages?since=x",
    "/agent/requests?status=bogus", "/agents?active=1", "/channels?kind=bogus",
    "/channels?enabled=x", "/confirmations?status=bogus", "/tools?category=bogus",
    "/tools?format=bogus", "/tools/changes?decision=bogus", "/tools/export?format=bogus",
    "/usage?since=20260101", "/usage?until=x", "/audit/alerts?open=yes",
    "/audit/alerts?severity=bogus", "/audit/records?bogus=1", "/audit/records?execution=x",
    "/audit/records?since=x", "/audit/records?q=---", "/audit/export?format=bogus",
]  # fmt: skip


@pytest.mark.parametrize("path", WRONG)
def test_a_value_that_cannot_be_read_is_refused(admin_api, path):
    check_query(admin_api.get(path), path.partition("?")[2].partition("=")[0])


def test_a_search_that_is_refused_leaves_no_record_of_reading(admin_api, organization):
    records = AuditRecord.objects.filter(organization=organization.slug)
    before = records.count()
    check_query(admin_api.get("/audit/records?agnet=bot"), "agnet")
    assert records.count() == before


def test_there_are_lists(subtests):
    assert {"/executions", "/groups", "/tiers", "/audit/records", "/audit/alerts"} <= {*LISTS}


@pytest.mark.parametrize("query", ["page_size=0", "page_size=201", "page_size=x", "page_size="])
def test_every_list_bounds_its_pages(admin_api, subtests, query):
    for path in LISTS:
        with subtests.test(path=path):
            check_query(admin_api.get(f"{path}?{query}"), "page_size")


@pytest.mark.parametrize(
    "cursor", ["x", "cD0x", "bz0tcGsmcD14", "bz0tcGsmcD0lMDA=", "YWZ0ZXI=é", "after.x", "_"]
)
def test_every_list_refuses_a_cursor_that_it_did_not_give_out(admin_api, subtests, cursor):
    for path in LISTS:
        with subtests.test(path=path):
            check_query(admin_api.get(f"{path}?{urlencode({'cursor': cursor})}"), "cursor")


def test_a_cursor_of_one_order_is_refused_in_another(admin_api, organization):
    factories.agent(organization, "a"), factories.agent(organization, "b")
    first = admin_api.get("/agents?ordering=slug&page_size=1").json()
    cursor = first["next"].partition("cursor=")[2].partition("&")[0]
    check_query(admin_api.get(f"/agents?cursor={cursor}"), "cursor")


def test_an_agent_gets_the_same_answer(api: Api):
    check_query(api.get("/executions?statsu=Failed"), "statsu")


def test_a_method_that_is_not_there_is_405_whatever_is_asked(admin_api):
    check_error(admin_api.delete("/executions?tol=x"), 405)


def test_head_and_options_know_what_the_others_know(admin_api):
    assert admin_api.head("/executions?status=Failed").status_code == 200
    assert admin_api.head(f"/executions?{NONSENSE}=1").status_code == 400
    assert admin_api.options("/executions?status=Failed").status_code == 200
    check_query(admin_api.options(f"/executions?{NONSENSE}=1"), NONSENSE)


# --- a state without a name -----------------------------------------------------------------------


def names(answer):
    assert answer.status_code == 200, answer.content
    return {one["name"] for one in answer.json()["results"]} & {"first", "later"}


def test_an_empty_state_in_a_query_is_the_state_undefined(api, organization):
    factories.tool(organization, "first", available_in_states=["undefined"])
    factories.tool(organization, "later", available_in_states=["later"])
    assert (
        names(api.get("/tools?group=default&state="))
        == {"first"}
        == names(api.get("/tools?group=default"))
    )
    assert names(api.get("/tools?group=default&state=later")) == {"later"}


def test_an_empty_state_in_a_body_is_the_state_undefined(api, organization):
    factories.tool(organization, "first", available_in_states=["undefined"])
    opened = api.post("/sessions", {"group": ["default"], "state": ""})
    assert opened.status_code == 201, opened.content
    session = opened.json()
    assert session["state"] == "undefined"
    assert names(api.get(f"/tools?session={session['id']}&state=")) == {"first"}
    found = api.get("/sessions?state=").json()["results"]
    assert session["id"] in {one["id"] for one in found}
    called = {"group": ["default"], "state": "", "parameters": {"text": 7, "other": 1}}
    answer = api.post("/tools/first/execute", called).json()
    assert answer["code"] == "invalid_parameters", answer
    assert api.get(f"/executions/{answer['execution_id']}").json()["session"]["state_before"] == (
        "undefined"
    )
