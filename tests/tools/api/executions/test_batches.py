"""`/batches` over REST, executed by the running crib's worker."""

from uuid import uuid4

import pytest

from tests import factories
from tests.conditions import until
from tests.tools.approval_requests import approve, approver
from tests.tools.shapes import check_error, check_execution
from tools.models import Confirmation, Execution

pytestmark = pytest.mark.usefixtures("committed", "crib")
BREAKS = "def main(parameters):\n    raise ValueError('no')\n"
SLEEPS = "import time\ndef main(p):\n    time.sleep(30)\n"


@pytest.fixture(autouse=True)
def tools(organization):
    factories.install(organization)
    factories.tool(organization)


def call_body(text="x", tool="echo"):
    return {"tool_name": tool, "parameters": {"text": text}}


def begin_batch(api, body):
    """A batch whose first call runs."""
    batch = api.post("/batches", body | {"options": {"wait_s": 0}}).json()
    calls = Execution.objects.filter(parent=batch["batch_id"], status="Running")
    until(calls.first)
    return batch["batch_id"]


def test_results_come_in_the_order_of_the_inputs(api):
    body = {"inputs": [call_body("a"), call_body("b"), call_body("c")], "mode": "parallel"}
    response = api.post("/batches", body)
    answer = response.json()
    assert (response.status_code, answer["status"], answer["total"]) == (200, "Success", 3)
    assert [line["output"]["echo"]["text"] for line in answer["results"]] == ["a", "b", "c"]
    assert [line["position"] for line in answer["results"]] == [0, 1, 2]
    for line in answer["results"]:
        check_execution({key: line[key] for key in line if key != "position"}, "Success")
    assert api.get(f"/batches/{answer['batch_id']}").json() == answer


@pytest.mark.part("calls")
def test_there_is_room_for_so_much_of_their_outputs(api):
    body = {
        "inputs": [call_body("x" * 900_000), call_body("y" * 900_000), call_body("z")],
        "mode": "parallel",
    }
    response = api.post("/batches", body)
    first, second, third = response.json()["results"]
    assert first["output"]["echo"]["text"] == "x" * 900_000
    assert (second["output"], third["output"]) == (None, None)
    assert second["status"] == "Success" and second["observation"] == ""
    whole = api.get(second["output_href"].removeprefix("/api/v1"))
    assert b"".join(whole.streaming_content).count(b"y") == 900_000


@pytest.mark.part("generated")
@pytest.mark.timeout(300)
def test_a_thousand_inputs_are_a_thousand_calls_in_their_order(api, organization):
    """Most of them are answered from the cache, to save time; the execution pipeline is the
    same."""
    factories.tool(
        organization,
        "known",
        delivery="pure",
        cache_ttl="PT1H",
        constraints={"allow_side_effects": False},
    )
    inputs = [call_body(str(number % 5), "known") for number in range(1_000)]
    batch = api.post("/batches", {"inputs": inputs, "options": {"wait_s": 60}}).json()["batch_id"]
    until(lambda: Execution.objects.filter(pk=batch, status="Success").first())
    answer = api.get(f"/batches/{batch}").json()
    assert (answer["total"], answer["succeeded"]) == (1_000, 1_000)
    said = [line["output"]["echo"]["text"] for line in answer["results"]]
    assert said == [str(number % 5) for number in range(1_000)]
    assert Execution.objects.filter(parent=batch, cached=True).count() == 995


@pytest.mark.part("calls")
def test_its_calls_may_be_read_one_by_one(api):
    answer = api.post("/batches", {"inputs": [call_body("a")]}).json()
    (line,) = answer["results"]
    assert api.get(f"/executions/{line['execution_id']}").json()["output"] == line["output"]


@pytest.mark.part("calls")
def test_a_last_call_that_could_not_be_made_says_why_at_the_door_too(api):
    answer = api.post("/batches", {"inputs": [call_body("a"), call_body("b", "ghost")]}).json()
    line = answer["results"][1]
    assert (line["status"], line["error_code"]) == ("ValidationError", "tool_not_found")
    inside = api.get(f"/executions/{answer['batch_id']}").json()["output"]
    assert (inside["failed"], inside["cancelled"]) == (1, 0)


def test_a_failed_and_a_refused_call_stand_in_their_places(api, organization):
    factories.tool(organization, "breaks", implementation={"source": BREAKS})
    factories.tool(organization, "secret", group=["vault"])
    inputs = [
        call_body("a", "breaks"),
        call_body("b", "secret"),
        call_body("c", "ghost"),
        call_body("d"),
    ]
    answer = api.post("/batches", {"inputs": inputs}).json()
    states = [line["status"] for line in answer["results"]]
    assert states == ["Failed", "PermissionDenied", "ValidationError", "Success"]
    assert (answer["succeeded"], answer["failed"]) == (1, 3)


def test_the_same_key_is_the_same_batch(api):
    key = {"Idempotency-Key": uuid4().hex}
    first = api.post("/batches", {"inputs": [call_body("a")]}, **key).json()
    again = api.post("/batches", {"inputs": [call_body("a")]}, **key).json()
    assert again["batch_id"] == first["batch_id"]
    other = api.post("/batches", {"inputs": [call_body("b")]}, **key)
    check_error(other, 422)


def test_one_that_is_not_over_is_answered_with_its_address(api, organization):
    factories.tool(organization, "sleeps", implementation={"source": SLEEPS})
    body = {"inputs": [call_body("a", "sleeps"), call_body("b")], "options": {"wait_s": 0}}
    response = api.post("/batches", body)
    assert response.status_code == 202
    address = response.headers["Location"].removeprefix("/api/v1")
    assert api.post(f"{address}/cancel").status_code in {200, 202}
    done = api.get(f"{address}?wait_s=30").json()
    assert done["status"] == "Cancelled"
    assert [line["status"] for line in done["results"]][1] == "Cancelled"


@pytest.mark.part("calls")
def test_some_of_its_calls_are_cancelled_and_the_others_are_made(api, organization):
    factories.tool(organization, "sleeps", implementation={"source": SLEEPS})
    batch = begin_batch(api, {"inputs": [call_body("a", "sleeps"), call_body("b"), call_body("c")]})
    answer = api.post(f"/batches/{batch}/cancel", {"positions": [0, 1]})
    assert answer.status_code in {200, 202}
    done = api.get(f"/batches/{batch}?wait_s=30").json()
    assert [line["status"] for line in done["results"]] == ["Cancelled", "Cancelled", "Success"]
    assert (done["status"], done["cancelled"]) == ("Success", 2)
    assert done["results"][1]["execution_id"] is None


@pytest.mark.part("calls")
def test_positions_that_are_not_there_are_refused(api, organization):
    factories.tool(organization, "sleeps", implementation={"source": SLEEPS})
    batch = begin_batch(api, {"inputs": [call_body("a", "sleeps")]})
    check_error(api.post(f"/batches/{batch}/cancel", {"positions": [1]}), 400)
    api.post(f"/batches/{batch}/cancel")


def test_one_question_for_many(api, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    response = api.post(
        "/batches", {"inputs": [call_body("a", "careful"), call_body("b", "careful")]}
    )
    answer = response.json()
    assert (response.status_code, answer["status"]) == (202, "RequiresConfirmation")
    confirmation = Confirmation.objects.get(execution=answer["batch_id"])
    approve(confirmation, approver(organization))
    done = api.get(f"/batches/{answer['batch_id']}?wait_s=30").json()
    assert (done["status"], done["succeeded"]) == ("Success", 2)


@pytest.mark.part("calls")
def test_its_events_are_those_of_its_execution(api):
    answer = api.post("/batches", {"inputs": [call_body("a"), call_body("b")]}).json()
    stream = api.get(f"/executions/{answer['batch_id']}/events")
    text = b"".join(stream.streaming_content).decode()
    assert "calls are over" in text and "Completed" in text


WRONG = [
    {},
    {"inputs": []},
    {"inputs": [1]},
    {"inputs": [{"parameters": {}}]},
    {"inputs": [call_body()] * 1001},
    {"inputs": [call_body()], "mode": "sideways"},
    {"inputs": [call_body()], "mode": ["parallel"]},
    {"inputs": [call_body()], "max_parallel": 0},
    {"inputs": [call_body()], "max_parallel": True},
    {"inputs": [call_body() | {"group": ["*"]}]},
]


def test_what_can_be_no_batch_is_named(api, subtests):
    for wrong in WRONG:
        with subtests.test(wrong=wrong):
            check_error(api.post("/batches", wrong), 400)


@pytest.mark.part("calls")
def test_an_execution_of_another_tool_is_no_batch(api):
    execution = api.execute("echo", {"text": "x"}).json()["execution_id"]
    check_error(api.get(f"/batches/{execution}"), 404)
    check_error(api.get(f"/batches/{uuid4()}"), 404)


def test_anothers_batch_is_not_there(api, organization):
    answer = api.post("/batches", {"inputs": [call_body("a")]}).json()
    other = factories.api(factories.agent(organization, groups=["default"]))
    check_error(other.get(f"/batches/{answer['batch_id']}"), 404)
    check_error(other.post(f"/batches/{answer['batch_id']}/cancel"), 404)


@pytest.mark.part("calls")
def test_a_token_for_one_tool_makes_batches_of_that_tool(agent, organization):
    factories.tool(organization, "other")
    narrow = factories.Api(factories.token(agent.service_account, tools=["echo"]))
    answer = narrow.post("/batches", {"inputs": [call_body("a"), call_body("b", "other")]}).json()
    assert [line["status"] for line in answer["results"]] == ["Success", "PermissionDenied"]


@pytest.mark.part("calls")
def test_a_token_for_one_tool_reads_the_batches_it_made(agent, organization):
    narrow = factories.Api(factories.token(agent.service_account, tools=["echo"]))
    key = {"Idempotency-Key": uuid4().hex}
    batch = narrow.post("/batches", {"inputs": [call_body("a")]}, **key).json()["batch_id"]
    assert narrow.get(f"/batches/{batch}?wait_s=30").json()["status"] == "Success"
    again = narrow.post("/batches", {"inputs": [call_body("a")]}, **key)
    assert again.json()["batch_id"] == batch
    other = factories.Api(factories.token(agent.service_account, tools=["echo"]))
    check_error(other.get(f"/batches/{batch}"), 404)


@pytest.mark.part("calls")
def test_a_line_shows_no_call_that_its_reader_may_not_read(api, agent):
    batch = api.post("/batches", {"inputs": [call_body("a")]}).json()
    (line,) = batch["results"]
    narrow = factories.Api(factories.token(agent.service_account, tools=["run_batch"]))
    seen = narrow.get(f"/batches/{batch['batch_id']}").json()
    (reported,) = seen["results"]
    assert (reported["execution_id"], reported["status"]) == (line["execution_id"], "Success")
    assert (reported["output"], "observation" in reported) == (None, False)
    assert (seen["succeeded"], seen["open"], seen["waiting"]) == (1, 0, 0)
    check_error(narrow.get(f"/executions/{line['execution_id']}"), 404)
