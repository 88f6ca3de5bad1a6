"""POST /tools/{name}/execute and /executions, answered by the running crib's worker."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.conditions import until
from tests.tools.shapes import check_error, check_execution
from tools.models import Execution, Tool

pytestmark = pytest.mark.usefixtures("committed", "crib")
SLEEPS = {
    "source": "import time\ndef main(p):\n    time.sleep(float(p['text']))\n    return p['text']"
}


def test_a_success_is_answered_in_its_whole_shape(api, organization):
    factories.tool(organization, version="1.2.3")
    response = api.execute("echo", {"text": "x"})
    body = check_execution(response.json(), "Success")
    assert response.status_code == 200
    assert body["input"] == {"tool_name": "echo", "parameters": {"text": "x"}}
    assert body["output"] == {"echo": {"text": "x"}}
    assert body["metadata"]["tool_version"] == "1.2.3"
    assert body["metadata"]["output_size"] == len('{"echo": {"text": "x"}}')
    assert (body["cached"], body["confirmation"]) == (False, None)
    assert body["session"] == {
        "id": None,
        "state_before": "undefined",
        "state_after": "undefined",
    }


def test_both_doors_and_a_later_reading_answer_alike(api, organization):
    factories.tool(organization)
    one = api.execute("echo", {"text": "x"}).json()
    other = api.post("/executions", {"tool_name": "echo", "parameters": {"text": "x"}}).json()
    assert one["output"] == check_execution(other, "Success")["output"]
    assert api.get(f"/executions/{one['execution_id']}").json() == one


RAISES = {"source": "def main(p):\n    raise ValueError('mine')"}


@pytest.mark.parametrize(
    ("implementation", "text", "options", "status"),
    [
        (RAISES, "x", {}, "Failed"),
        pytest.param(
            SLEEPS, "30", {"timeout": "PT0.3S"}, "Timeout", marks=pytest.mark.part("calls")
        ),
    ],
    ids=["fails", "takes too long"],
)
def test_a_tool_that_failed_is_a_result_and_no_http_error(
    api, organization, implementation, text, options, status
):
    factories.tool(organization, implementation=implementation)
    response = api.execute("echo", {"text": text}, options=options)
    assert response.status_code == 200
    check_execution(response.json(), status)


@pytest.mark.part("calls")
def test_what_is_not_over_in_time_is_answered_202_with_its_address(api, organization):
    factories.tool(organization, implementation=SLEEPS)
    response = api.execute("echo", {"text": "1"}, options={"wait_s": 0})
    assert response.status_code == 202
    assert response.json()["status"] in {"Pending", "Running"}
    address = response.headers["Location"].removeprefix("/api/v1")
    later = until(lambda: (r := api.get(address)).status_code == 200 and r)
    assert check_execution(later.json(), "Success")["output"] == "1"


def test_a_running_call_is_cancelled_over_the_api(api, organization):
    factories.tool(organization, implementation=SLEEPS)
    identifier = api.execute("echo", {"text": "60"}, options={"wait_s": 0}).json()["execution_id"]
    until(lambda: api.get(f"/executions/{identifier}").json()["status"] == "Running")
    assert api.post(f"/executions/{identifier}/cancel").status_code in {200, 202}
    ended = until(
        lambda: (r := api.get(f"/executions/{identifier}")).status_code == 200 and r.json()
    )
    check_execution(ended, "Cancelled")
    check_execution(api.post(f"/executions/{identifier}/cancel").json(), "Cancelled")


def test_what_is_over_is_not_cancelled(api, organization):
    factories.tool(organization)
    identifier = api.execute("echo", {"text": "x"}).json()["execution_id"]
    check_error(api.post(f"/executions/{identifier}/cancel"), 409, "execution_over")


def test_a_refusal_carries_its_status_and_its_execution(api, organization):
    factories.tool(organization)
    body = check_error(
        api.execute("echo", {"text": "x"}, group=["admin"]), 403, "group_not_granted"
    )
    assert body["status"] == "PermissionDenied"
    assert api.get(f"/executions/{body['execution_id']}").json()["status"] == "PermissionDenied"


def test_invalid_parameters_are_400_with_their_places(api, organization):
    factories.tool(organization)
    body = check_error(api.execute("echo", {"text": 1}), 400, "invalid_parameters")
    assert body["status"] == "ValidationError"
    assert body["details"]["errors"][0]["place"] == "/text"


def test_an_unknown_tool_is_404(api):
    check_error(api.execute("ghost"), 404, "tool_not_found")
    check_error(api.post("/tools/%01/execute", {}), 404, "tool_not_found")


def test_a_body_that_names_another_tool_than_the_address_is_400(api, organization):
    factories.tool(organization)
    check_error(api.execute("echo", {"text": "x"}, tool_name="read_file"), 400)


def test_a_definition_in_a_call_is_refused(api, organization):
    factories.tool(organization)
    for key in ("definition", "implementation", "source", "user", "config"):
        check_error(api.execute("echo", {"text": "x"}, **{key: {}}), 400, "invalid")


WRONG = [
    {"parameters": []}, {"parameters": None}, {"parameters": "x"}, {"group": "default"},
    {"group": [1]}, {"group": {}}, {"group": ["x" * 101]}, {"state": 1}, {"state": []},
    {"state": "x" * 101}, {"session": 1}, {"session": {}}, {"options": []}, {"options": None},
    {"options": {"timeout": 5}}, {"options": {"timeout": "5s"}}, {"options": {"timeout": "PT0S"}},
    {"options": {"wait_s": "1"}}, {"options": {"wait_s": -1}}, {"options": {"wait_s": 61}},
    {"options": {"wait_s": True}}, {"options": {"require_confirmation": "no"}},
    {"options": {"context": []}}, {"options": {"execution_id": 5}},
    {"options": {"execution_id": ""}},
    {"options": {"unknown": 1}}, {"tool_name": 5}, {"tool_name": ["echo"]}, {"unknown": 1},
]  # fmt: skip


def test_a_wrong_field_of_a_call_is_400_and_runs_nothing(api, organization, subtests):
    factories.tool(organization)
    for body in WRONG:
        with subtests.test(body=body):
            check_error(api.post("/tools/echo/execute", {"parameters": {"text": "x"}, **body}), 400)
            assert not Execution.objects.filter(organization=organization).exists()


def test_the_context_of_a_call_opens_no_gate(api, organization):
    factories.tool(organization, group=["admin"])
    context = {"group": ["admin"], "is_superuser": True}
    check_error(api.execute("echo", {"text": "x"}, options={"context": context}), 403)


# --- idempotency ----------------------------------------------------------------------------------


def test_the_same_key_and_body_are_the_same_execution(api, organization):
    factories.tool(organization)
    body = {"parameters": {"text": "x"}}
    answers = [
        api.post("/tools/echo/execute", body, **{"Idempotency-Key": "k"}).json() for _ in range(3)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert Execution.objects.filter(organization=organization).count() == 1


def test_an_execution_id_of_the_options_is_such_a_key(api, organization):
    factories.tool(organization)
    options = {"execution_id": "mine"}
    first, second = (api.execute("echo", {"text": "x"}, options=options).json() for _ in range(2))
    assert first["execution_id"] == second["execution_id"] != "mine"


@pytest.mark.parametrize(
    "other", [{"parameters": {"text": "y"}}, {"state": "s"}, {"group": ["default"]},
              {"options": {"timeout": "PT1S"}}], ids=str
)  # fmt: skip
def test_a_key_with_another_body_is_422(api, organization, other):
    factories.tool(organization)
    key = {"Idempotency-Key": "k"}
    api.post("/tools/echo/execute", {"parameters": {"text": "x"}}, **key)
    again = api.post("/tools/echo/execute", {"parameters": {"text": "x"}, **other}, **key)
    check_error(again, 422, "idempotency_key_reused")
    assert Execution.objects.filter(organization=organization).count() == 1


def test_a_key_in_another_session_is_422(api, organization):
    factories.tool(organization)
    body, key = {"parameters": {"text": "x"}}, {"Idempotency-Key": "k"}
    first, second = (api.post("/sessions", {}).json()["id"] for _ in range(2))
    made = api.post("/tools/echo/execute", {**body, "session": first}, **key).json()
    for other in ({**body, "session": second}, body):
        again = api.post("/tools/echo/execute", other, **key)
        check_error(again, 422, "idempotency_key_reused")
    again = api.post("/tools/echo/execute", {**body, "session": first}, **key).json()
    assert again["execution_id"] == made["execution_id"]
    assert Execution.objects.filter(organization=organization).count() == 1


def test_a_key_gives_no_result_of_a_tool_that_the_token_is_not_for(agent, organization):
    factories.tool(organization)
    body, key = {"parameters": {"text": "x"}}, {"Idempotency-Key": "k"}
    whole, narrowed = (
        Api(factories.token(agent.service_account, **limits))
        for limits in ({}, {"tools": ["read_file"]})
    )
    made = whole.post("/tools/echo/execute", body, **key).json()["execution_id"]
    refused = narrowed.post("/tools/echo/execute", body, **key)
    assert check_error(refused, 403, "token_excludes_tool")["execution_id"] != made
    assert whole.post("/tools/echo/execute", body, **key).json()["execution_id"] == made


def test_a_key_is_let_go_a_day_after_its_call_ended(api, organization):
    factories.tool(organization)
    body, key = {"parameters": {"text": "x"}}, {"Idempotency-Key": "k"}
    first = api.post("/tools/echo/execute", body, **key).json()
    Execution.objects.forget_keys(timedelta(hours=1))
    again = api.post("/tools/echo/execute", body, **key).json()
    assert again["execution_id"] == first["execution_id"]
    Execution.objects.forget_keys(timedelta())
    later = api.post("/tools/echo/execute", body, **key).json()
    assert later["execution_id"] != first["execution_id"]


@pytest.mark.part("calls")
def test_one_key_at_the_same_moment_is_one_execution(organization, agent):
    factories.tool(organization)
    token = factories.token(agent.service_account)
    answers = []
    start = threading.Barrier(8)

    def call():
        start.wait()
        headers = {"Idempotency-Key": "k"}
        body = {"parameters": {"text": "x"}}
        answers.append(Api(token).post("/tools/echo/execute", body, **headers))
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert Execution.objects.filter(organization=organization).count() == 1
    assert (
        AuditRecord.objects.filter(organization=organization.slug, code="TOOL.START").count() == 1
    )


def test_a_refusal_is_not_kept_under_its_key(api, organization):
    key = {"Idempotency-Key": "k"}
    factories.tool(organization)
    check_error(api.post("/tools/echo/execute", {"parameters": {}}, **key), 400)
    good = api.post("/tools/echo/execute", {"parameters": {"text": "x"}}, **key)
    check_execution(good.json(), "Success")


def test_a_key_belongs_to_its_caller(organization, agent):
    factories.tool(organization)
    apis = [factories.api(agent), factories.api(factories.agent(organization))]
    key = {"Idempotency-Key": "k"}
    ids = {
        a.post("/tools/echo/execute", {"parameters": {"text": "x"}}, **key).json()["execution_id"]
        for a in apis
    }
    assert len(ids) == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_wrong_key_is_400(api, organization, key):
    factories.tool(organization)
    response = api.post(
        "/tools/echo/execute", {"parameters": {"text": "x"}}, **{"Idempotency-Key": key}
    )
    check_error(response, 400)


# --- access to executions -------------------------------------------------------------------------


def test_an_agent_reads_only_its_own_executions(api, organization):
    factories.tool(organization)
    theirs = factories.api(factories.agent(organization))
    mine = api.execute("echo", {"text": "x"}).json()["execution_id"]
    for path in ("", "/events"):
        assert theirs.get(f"/executions/{mine}{path}").status_code == 404
    assert theirs.post(f"/executions/{mine}/cancel").status_code == 404
    assert theirs.get("/executions").json()["results"] == []


def test_executions_are_listed_the_newest_first_and_filtered(api, organization):
    factories.tool(organization)
    ids = [api.execute("echo", {"text": str(n)}).json()["execution_id"] for n in range(3)]
    api.execute("echo", {})
    listed = api.get("/executions?status=Success&tool=echo").json()["results"]
    assert [row["execution_id"] for row in listed] == ids[::-1]
    page = api.get("/executions?page_size=2").json()
    assert len(page["results"]) == 2 and page["next"]
    assert api.get("/executions?page_size=0").status_code == 400
    assert api.get("/executions?cursor=zzz").status_code == 400


def test_a_person_who_may_only_look_may_not_cancel_what_others_asked(api, organization):
    factories.tool(organization, implementation=SLEEPS)
    person = factories.person(organization)
    factories.permit(person, "view_execution")
    looking = Api(factories.token(person))
    identifier = api.execute("echo", {"text": "1"}, options={"wait_s": 0}).json()["execution_id"]
    assert looking.get(f"/executions/{identifier}").status_code in {200, 202}
    check_error(looking.post(f"/executions/{identifier}/cancel"), 403)
    until(lambda: api.get(f"/executions/{identifier}").json()["status"] == "Success")


@pytest.mark.parametrize(
    ("definition", "disabled", "tools"),
    [
        ({"group": ["secret-7391"]}, "", ["*"]),
        ({"group": ["secret-7391", "default"]}, "", ["read_file"]),
        ({"available_in_states": ["secret-7391"]}, "", ["read_file"]),
        ({}, "secret-7391", ["read_file"]),
        ({"required_permissions": ["secret-7391"]}, "", ["read_file"]),
    ],
)
def test_a_refusal_tells_nothing_of_a_tool_that_an_explanation_hides(
    organization, definition, disabled, tools
):
    hidden = factories.tool(organization, **definition)
    if disabled:
        Tool.objects.filter(pk=hidden.pk).update(status="disabled", status_reason=disabled)
    api = factories.api(factories.agent(organization, tools=tools))
    assert api.get("/tools/explain?tool=echo").json()["results"] == []
    body = check_error(api.execute("echo", {"text": "x"}), 403)
    kept = api.get(f"/executions/{body['execution_id']}").json()
    assert "secret-7391" not in f"{body} {kept}"
