"""Agents over real HTTP: clients, a running product whose worker knows a model, and that model.

The specification's scenarios of S1, 9.2 and 9.3, and what a worker's death must not change.
"""

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.journeys.client import Http
from tests.stubs import llm
from tests.stubs.llm import calls
from tests.tools.approval_requests import approve, approver
from tests.tools.execution.in_process_worker import calls_of
from tests.tools.execution.workers import stopped, worker
from tools.models import Confirmation, Execution, StateTransition
from tools.worker import reaper

pytestmark = [pytest.mark.usefixtures("committed"), pytest.mark.timeout(300)]
REQUESTS = "/api/v1/agent/requests"
FLOW = (
    ("knowledge-query", "knowledge", "undefined", "analysis"),
    ("complex-analysis", "compute", "analysis", "results"),
    ("reset-workflow", "knowledge", "results", "undefined"),
)
TEXT = '{"text": "x"}'


@pytest.fixture(scope="module")
def endpoint() -> Iterator[llm.Endpoint]:
    with llm.serving() as endpoint:
        yield endpoint


@pytest.fixture
def model(endpoint) -> llm.Endpoint:
    """Without the questions and events of earlier tests."""
    endpoint.web.seen.clear()
    endpoint.asked.clear()
    endpoint.go_on.clear()
    return endpoint


@pytest.fixture(scope="module")
def working(crib, endpoint) -> Callable[..., Any]:
    """A worker of the product that asks this model. Its lease is short: its death shows soon."""

    def begin(**more: str):
        known = {"LLM_BASE_URL": endpoint.url, "LLM_MODEL": "small", "EXECUTION_LEASE_S": "4"}
        return worker(crib, **known | more)

    return begin


@pytest.fixture(scope="module")
def paused(working) -> Iterator[Any]:
    """One for many tests, which takes nothing meanwhile."""
    with working() as process:
        process.send_signal(signal.SIGSTOP)
        yield process


@pytest.fixture
def own_worker(crib, paused) -> Iterator[None]:
    with stopped(crib):
        paused.send_signal(signal.SIGCONT)
        yield
        paused.send_signal(signal.SIGSTOP)


@pytest.fixture
def client(crib, organization) -> Callable[..., Http]:
    """Of an agent with these groups."""

    def client_of(*groups: str) -> Http:
        agent = factories.agent(organization, groups=[*groups])
        return Http(crib.url, factories.token(agent.service_account))

    return client_of


@pytest.fixture
def say(organization) -> None:
    factories.tool(organization, "say")


def request_agent(http: Http, **body: Any) -> dict[str, Any]:
    answer = http("POST", REQUESTS, {"question": "Why?", "options": {"wait_s": 0}, **body})
    assert answer.status_code in (200, 202), answer.content
    return answer.json()


def wait_for_end(http: Http, request_id: str) -> dict[str, Any]:
    """The request, once it has come to its end."""

    def finished_body() -> dict[str, Any] | None:
        body = http("GET", f"{REQUESTS}/{request_id}?wait_s=5").json()
        return None if body["status"] in ("Pending", "Running") else body

    return until(finished_body)


def offered(question: dict[str, Any], names: set[str]) -> set[str]:
    return {one["function"]["name"] for one in question.get("tools") or ()} & names


@pytest.mark.part("walks")
def test_a_workflow_is_walked_from_state_to_state_and_may_begin_again(
    own_worker, client, model, organization
):
    """S1, 9.3: the tools of each step are filtered, and the state moves with each success."""
    for name, group, before, after in FLOW:
        factories.tool(organization, name, group=[group], state=after, available_in_states=[before])
    http = client("knowledge", "compute")
    walk = [calls(name, TEXT) for name, *_ in FLOW]
    model.plays(*walk, "All done.", *walk, "Once more.")
    session = http("POST", "/api/v1/sessions", {"group": ["knowledge", "compute"]}).json()["id"]
    first = wait_for_end(http, request_agent(http, session=session)["request_id"])
    second = wait_for_end(http, request_agent(http, session=session)["request_id"])
    assert (first["answer"], first["state"]) == ("All done.", "undefined")
    assert second["answer"] == "Once more."
    names = {name for name, *_ in FLOW}
    shown = [offered(question, names) for question in model.questions]
    assert shown == [{name} for name, *_ in (*FLOW, FLOW[0], *FLOW, FLOW[0])]
    moves = StateTransition.objects.filter(session=session).order_by("pk")
    assert [(move.from_state, move.to_state) for move in moves] == [(b, a) for *_, b, a in FLOW] * 2
    times = [move.at for move in moves]
    assert times == sorted(times)


@pytest.mark.part("walks")
def test_a_state_that_does_not_fit_is_refused_and_the_workflow_stays(
    own_worker, client, model, organization
):
    """S1, 9.2: an agent that skips a step gets an error, and there may be no tools at all."""
    for name, group, before, after in FLOW:
        factories.tool(organization, name, group=[group], state=after, available_in_states=[before])
    http = client("knowledge", "compute")
    model.plays(calls("complex-analysis", TEXT), "I could not.")
    body = wait_for_end(http, request_agent(http, group=["knowledge", "compute"])["request_id"])
    assert (body["answer"], body["state"]) == ("I could not.", "undefined")
    assert "tool_not_in_state" in body["steps"][0]["observation"]
    model.plays("Alone.")
    assert wait_for_end(http, request_agent(http, group=[])["request_id"])["answer"] == "Alone."
    assert not model.questions[-1].get("tools")


@pytest.mark.part("walks")
def test_two_tenants_have_their_own_tools_states_and_evidence(
    own_worker, client, model, organization
):
    """S1, 9.3: user A reads in the state "undefined", user B writes in the state "analysis"."""
    factories.tool(organization, "look", group=["read-only"], available_in_states=["undefined"])
    factories.tool(organization, "look-deep", group=["read-only"], available_in_states=["analysis"])
    factories.tool(
        organization, "note", group=["write"], available_in_states=["analysis"], state="results"
    )
    names = {"look", "look-deep", "note"}

    def reply(question: dict[str, Any]) -> Any:
        if question["messages"][-1]["role"] == "tool":
            return "Done."
        return calls(offered(question, names).pop(), TEXT)

    model.answers_by(reply)
    a, b = client("read-only"), client("write")
    mine = wait_for_end(a, request_agent(a, group=["read-only"])["request_id"])
    theirs = wait_for_end(b, request_agent(b, group=["write"], state="analysis")["request_id"])
    assert [offered(one, names) for one in model.questions if len(one["messages"]) == 2] == [
        {"look"},
        {"note"},
    ]
    assert (mine["state"], theirs["state"]) == ("undefined", "results")
    assert mine["session"] != theirs["session"]
    assert not StateTransition.objects.filter(session=mine["session"]).exists()
    move = StateTransition.objects.get(session=theirs["session"])
    assert (move.from_state, move.to_state) == ("analysis", "results")
    for body, tool in ((mine, "look"), (theirs, "note")):
        call = body["steps"][0]["execution_id"]
        codes = AuditRecord.objects.filter(execution_id=call).values_list("code", flat=True)
        assert {"TOOL.ACCEPT", "TOOL.START", "TOOL.END"} <= set(codes), tool
    assert a("GET", f"{REQUESTS}/{theirs['request_id']}").status_code == 404
    assert b("GET", f"/api/v1/sessions/{mine['session']}").status_code == 404


@pytest.mark.part("walks")
def test_a_group_that_is_not_granted_is_refused(own_worker, client, model, organization):
    http = client("read-only")
    for group in (["write"], ["*"], ["read-only", "write"]):
        answer = http("POST", REQUESTS, {"question": "Why?", "group": group})
        assert (answer.status_code, answer.json()["code"]) == (403, "group_not_granted")
    assert model.questions == []


def test_steps_come_as_events_and_go_on_after_the_last_that_was_seen(
    own_worker, say, client, model
):
    http = client("default")
    model.plays(calls("say", TEXT, thought="First."), "Done.")
    with http.events(REQUESTS, {"question": "Why?", "stream": True}) as events:
        steps = list(events)
    assert [one["event"] for one in steps] == [
        "thought", "action", "observation", "thought", "answer", "end",
    ]  # fmt: skip
    assert steps[0]["data"]["text"] == "First." and steps[1]["data"]["action"] == "say"
    assert steps[-1]["data"]["status"] == "Success"
    (listed,) = http("GET", REQUESTS).json()["results"]
    path = f"{REQUESTS}/{listed['request_id']}/events"
    for seen in range(len(steps)):
        with http.events(path, **{"Last-Event-ID": str(seen)}) as events:
            assert list(events) == steps[seen:]


@pytest.mark.part("walks")
@pytest.mark.parametrize("native", ["true", "false"])
def test_every_byte_may_come_alone(crib, say, working, client, model, native):
    """The end is the same however the answer was cut, also in the middle of a letter."""
    arguments = json.dumps({"text": '\u00e9\u20ac\U0001f600 "quoted" \\ {}'}, ensure_ascii=False)
    said = {
        "true": [calls("say", arguments, thought="Hm\u2026"), "Gr\u00fc\u00dfe \U0001f600"],
        "false": [
            f"Thought: Hm\u2026\nAction: say\nArguments: {arguments}\nObservation: made up\n",
            "Thought: so\nAnswer: Gr\u00fc\u00dfe \U0001f600",
        ],
    }[native]
    http = client("default")
    with working(LLM_TOOL_CALLS=native), stopped(crib):
        for manner in ({"bytewise": True}, {"letters": 1}, {"whole": True}):
            model.plays(*said, **manner)
            body = wait_for_end(http, request_agent(http)["request_id"])
            act, _ = body["steps"]
            assert (body["answer"], act["thought"]) == ("Gr\u00fc\u00dfe \U0001f600", "Hm\u2026")
            assert act["arguments"] == json.loads(arguments) and act["status"] == "Success"


@pytest.mark.part("faults")
def test_an_approval_counts_after_every_worker_was_restarted(
    crib, working, client, model, organization
):
    factories.tool(organization, "risky", requires_confirmation=True)
    http = client("default")
    model.plays(calls("risky", TEXT), "It was done.")
    with stopped(crib):
        with working() as process:
            request_id = request_agent(http)["request_id"]
            held = until(Confirmation.objects.filter(execution__parent=request_id).first)
            process.terminate()
            process.wait(60)
        approve(held, approver(organization))
        with working():
            body = wait_for_end(http, request_id)
    assert (body["answer"], body["steps"][0]["status"]) == ("It was done.", "Success")
    assert calls_of(Execution(pk=request_id)).filter(tool_name="risky").count() == 1


@pytest.mark.part("faults")
def test_a_worker_that_dies_while_the_model_thinks_costs_nothing_but_time(
    crib, say, working, client, model
):
    http = client("default")
    with stopped(crib):
        with working() as process:
            model.is_silent()
            request_id = request_agent(http)["request_id"]
            assert model.asked.wait(60)
            process.kill()
            process.wait()
        model.go_on.set()
        model.plays(calls("say", TEXT), "Done.")
        with working():
            until(lambda: reaper.reap() or has_ended(request_id))
            body = wait_for_end(http, request_id)
    assert body["answer"] == "Done."
    assert ran(request_id) == ["say"]


@pytest.mark.part("faults")
def test_a_worker_that_dies_in_a_turn_is_followed_by_another(crib, say, working, client, model):
    """Whenever it dies: every call is made once, and there is one end."""
    http = client("default")
    model.plays(*[calls("say", f'{{"text": "{number}"}}') for number in range(6)], "Done.")
    with stopped(crib):
        request_id = request_agent(http, max_iterations=20)["request_id"]
        for steps in (1, 4):
            with working() as process:
                until(lambda: calls_of(Execution(pk=request_id)).count() >= steps * 2)  # noqa: B023
                process.kill()
                process.wait()
        with working():
            until(lambda: reaper.reap() or has_ended(request_id))
            body = wait_for_end(http, request_id)
    assert body["answer"] == "Done."
    assert ran(request_id) == ["say"] * 6
    ends = AuditRecord.objects.filter(execution_id=request_id, code="TOOL.END")
    assert ends.count() == 1


def has_ended(request_id: str) -> bool:
    return Execution.objects.get(pk=request_id).is_final


def ran(request_id: str) -> list[str]:
    found = calls_of(Execution(pk=request_id)).exclude(tool_name="ask_model")
    return [row.tool_name for row in found if row.status == "Success"]
