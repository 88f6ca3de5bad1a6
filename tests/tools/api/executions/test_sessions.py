"""`/sessions` over REST, and how a session affects listings and calls."""

import threading
from itertools import product
from uuid import UUID, uuid4

import pytest
from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.conditions import until
from tests.savepoints import rolled_back
from tests.tools.shapes import check_error, check_execution
from tools.execution.perform import perform
from tools.models import Execution, Session

NOBODY = "01890000-0000-7000-8000-000000000000"
SHAPE = {"id", "group", "state", "caller", "created_at", "entered_at", "closed_at"}
STEP = {
    "execution_id", "tool_name", "arguments", "status", "observation", "error_code", "cached",
    "state_before", "state_after", "created_at", "completed_at",
}  # fmt: skip


@pytest.fixture
def workflow(organization):
    factories.tool(organization, "query", state="analysis", available_in_states=["undefined"])
    factories.tool(
        organization, "change", group=["write"], state="undefined", available_in_states=["analysis"]
    )


def opened(api, **body):
    answer = api.post("/sessions", body)
    assert answer.status_code == 201, answer.json()
    return answer.json()


def names(answer):
    assert answer.status_code == 200, answer.json()
    return [tool["name"] for tool in answer.json()["results"]]


# --- without a worker ---------------------------------------------------------------------------
def test_a_session_is_opened_in_its_whole_shape(api, agent):
    answer = api.post("/sessions", {"group": ["write", "default"], "state": "analysis"})
    body = answer.json()
    assert set(body) == SHAPE | {"pins", "warnings"}
    assert (body["group"], body["state"]) == (["default", "write"], "analysis")
    assert (body["caller"], body["closed_at"], body["warnings"]) == (agent.slug, None, [])
    assert answer.headers["Location"] == f"/api/v1/sessions/{UUID(body['id'])}"


@pytest.mark.parametrize(
    ("body", "groups"), [({}, ["default"]), ({"group": None}, ["default"]), ({"group": []}, [])]
)
def test_absent_null_and_empty_groups_are_three_things(api, body, groups):
    assert opened(api, **body)["group"] == groups


def test_groups_beyond_the_grants_open_nothing(api, organization):
    check_error(api.post("/sessions", {"group": ["admin"]}), 403, "group_not_granted")
    assert not Session.objects.filter(organization=organization).exists()


ODD = [
    {"group": "default"}, {"group": [1]}, {"group": [""]}, {"state": 1}, {"x": 1},
    {"state": "x" * 101}, {"state": "a\u202eb"}, {"state": []}, {"group": ["x"] * 201}, [], "x",
]  # fmt: skip


def test_odd_bodies_are_400(api, subtests):
    for body in ODD:
        with subtests.test(body=body):
            check_error(api.post("/sessions", body), 400)


def test_a_session_is_listed_read_closed_and_closed_again(api):
    first, second = opened(api), opened(api, group=["write"])
    place = f"/sessions/{first['id']}"
    listed = [row["id"] for row in api.get("/sessions").json()["results"]]
    assert listed == [second["id"], first["id"]]
    assert [api.delete(place).status_code for _ in range(2)] == [204, 204]
    assert api.get(place).json()["closed_at"].endswith("Z")
    for flag, left in (("true", second), ("false", first)):
        rows = api.get(f"/sessions?open={flag}").json()["results"]
        assert [row["id"] for row in rows] == [left["id"]]
    check_error(api.get("/sessions?open=maybe"), 400)


@pytest.mark.parametrize(
    ("query", "code"), [("state=%00", 400), ("open=%00", 400), ("open=", 400), ("state=", 200)]
)
def test_odd_queries_are_no_fault_of_ours(api, query, code):
    opened(api)
    assert api.get(f"/sessions?{query}").status_code == code


def test_a_new_session_has_tools_and_no_past(api, workflow):
    body = api.get(f"/sessions/{opened(api)['id']}").json()
    assert set(body) == SHAPE | {"pins", "tools", "transitions", "history"}
    assert (body["tools"], body["transitions"], body["history"]) == (["query"], [], [])


def test_listings_in_a_session_use_its_groups_and_state(api, workflow):
    session = opened(api, group=["write"], state="analysis")["id"]
    assert names(api.get(f"/tools?session={session}")) == ["change", "write_file"]
    assert names(api.get(f"/tools?session={session}&state=analysis&group=write")) == [
        "change",
        "write_file",
    ]
    rows = api.get(f"/tools/explain?session={session}").json()["results"]
    assert {row["tool"]: row["available"] for row in rows}["query"] is False


def test_a_listing_that_contradicts_its_session_is_a_conflict(api, organization, subtests):
    session = opened(api)["id"]
    for path, named in product(
        ["/tools", "/tools/explain"], ["state=analysis", "group=", "group=default&group=write"]
    ):
        with subtests.test(path=path, named=named), rolled_back():
            body = check_error(
                api.get(f"{path}?session={session}&{named}"), 409, "session_mismatch"
            )
            assert body["details"]["group"] == ["default"]
            assert body["details"]["state"] == "undefined"
            record = AuditRecord.objects.get(
                organization=organization.slug, code="SESSION.MISMATCH"
            )
            assert record.subject == session


def test_nothing_happens_in_a_closed_session(api, organization, workflow):
    session = opened(api)["id"]
    api.delete(f"/sessions/{session}")
    for answer in (
        api.get(f"/tools?session={session}"),
        api.execute("query", {"text": "x"}, session=session),
    ):
        check_error(answer, 409, "session_closed")
    assert api.get(f"/sessions/{session}").json()["tools"] == []
    assert not Execution.objects.filter(organization=organization).exists()


def test_another_callers_session_is_not_there(api, organization, workflow):
    elsewhere = factories.organization(f"org-{uuid4().hex[:12]}")
    strangers = [factories.agent(organization), factories.agent(elsewhere)]
    for session in [opened(factories.api(stranger))["id"] for stranger in strangers]:
        for answer in (
            api.get(f"/sessions/{session}"),
            api.get(f"/sessions/{session}/history"),
            api.delete(f"/sessions/{session}"),
            api.get(f"/tools?session={session}"),
            api.get(f"/tools/explain?session={session}"),
            api.execute("query", {"text": "x"}, session=session),
        ):
            check_error(answer, 404, "session_not_found")
        assert Session.objects.get(pk=session).closed_at is None
    assert api.get("/sessions").json()["results"] == []


def test_what_is_no_session_is_404_for_a_listing(api, subtests):
    for session in ["", "x", NOBODY, "../..", "é" * 10]:
        with subtests.test(session=session):
            check_error(api.get(f"/tools?session={session}"), 404, "session_not_found")


def test_people_read_what_they_are_granted_and_administrators_close(api, admin_api, organization):
    session = opened(api)["id"]
    person = factories.person(organization)
    reader = Api(factories.token(person, scopes=["read", "execute", "manage"]))
    check_error(reader.get(f"/sessions/{session}"), 404)
    factories.permit(person, "view_session")
    assert reader.get(f"/sessions/{session}").json()["id"] == session
    assert len(reader.get("/sessions").json()["results"]) == 1
    check_error(reader.delete(f"/sessions/{session}"), 403, "not_permitted")
    check_error(reader.execute("echo", {}, session=session), 404)
    assert admin_api.delete(f"/sessions/{session}").status_code == 204


def test_a_token_that_only_reads_opens_and_closes_nothing(api, agent):
    session = opened(api)["id"]
    reader = Api(factories.token(agent.service_account, scopes=["read"]))
    assert reader.get(f"/sessions/{session}").status_code == 200
    check_error(reader.post("/sessions", {}), 403, "scope_missing")
    check_error(reader.delete(f"/sessions/{session}"), 403, "scope_missing")


def test_the_history_is_paged_in_its_order(api, organization, workflow):
    session = opened(api)["id"]
    for _ in range(3):
        check_error(api.execute("change", {"text": "x"}, session=session), 403)
    first = api.get(f"/sessions/{session}/history?page_size=2").json()
    query = first["next"].partition("?")[2]
    second = api.get(f"/sessions/{session}/history?{query}").json()
    steps = first["results"] + second["results"]
    assert [len(first["results"]), len(second["results"]), second["next"]] == [2, 1, None]
    assert [step["created_at"] for step in steps] == sorted(step["created_at"] for step in steps)
    assert {step["error_code"] for step in steps} == {"tool_not_in_group"}
    assert all(set(step) == STEP for step in steps)
    assert api.get(f"/sessions/{session}").json()["history"] == steps


# --- answered by the running worker -------------------------------------------------------------
def test_a_call_says_where_it_led_and_the_session_tells_its_story(committed, crib, api, workflow):
    session = opened(api, group=["default", "write"])["id"]
    call = api.execute("query", {"text": "x"}, session=session).json()
    assert check_execution(call, "Success")["session"] == {
        "id": session, "state_before": "undefined", "state_after": "analysis",
    }  # fmt: skip
    body = api.get(f"/sessions/{session}").json()
    assert (body["state"], body["tools"]) == ("analysis", ["change", "write_file"])
    moved = body["transitions"][0]
    assert (moved["tool"], moved["from"], moved["to"]) == ("query", "undefined", "analysis")
    assert moved["timestamp"] == body["entered_at"] or moved["timestamp"].endswith("Z")
    (step,) = body["history"]
    assert step["execution_id"] == call["execution_id"] == moved["execution_id"]
    assert (step["arguments"], step["observation"]) == ({"text": "x"}, call["observation"])
    assert (step["state_before"], step["state_after"]) == ("undefined", "analysis")


def test_of_two_calls_at_once_exactly_one_runs(committed, crib, api, gate):
    gate.tool("slow", state="after")
    session = opened(api)["id"]
    answers, start = [], threading.Barrier(2)

    def call():
        start.wait()
        answers.append(api.execute("slow", {"text": "x"}, session=session))
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(2)]
    [thread.start() for thread in threads]
    until(lambda: answers)  # the refused one has answered, the other one is running
    gate.open()
    [thread.join() for thread in threads]
    ran, refused = sorted(answers, key=lambda answer: answer.status_code)
    done = check_execution(ran.json(), "Success")
    details = check_error(refused, 409, "session_busy")["details"]
    assert details == {"session": session, "open_execution": done["execution_id"]}
    assert Execution.objects.filter(session=session).count() == 1


def test_a_call_refused_at_its_claim_is_reported(
    committed, crib, api, agent, organization, workflow
):
    session = opened(api)["id"]
    execution = factories.execution(agent, "query", session=session, text="x")
    api.delete(f"/sessions/{session}")
    perform(execution.pk)
    read = api.get(f"/executions/{execution.pk}").json()
    assert (read["status"], read["error_code"]) == ("PermissionDenied", "session_closed")
