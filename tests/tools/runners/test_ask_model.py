"""`ask_model` through the whole execution pipeline, against an endpoint on loopback."""

import json
import logging
from decimal import Decimal

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.stubs import llm
from tests.stubs.web import Reply
from tests.tools.limits import allowance_fixtures
from tests.tools.runners.conftest import KEY
from tools.errors import InvalidCall, QuotaExceeded, Refused
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.llm import model_replies
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")
ASKED = [{"role": "user", "content": "What is 1 + 1?"}]
ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
# A dollar for each input token, two for each output token.
PRICE = (Decimal(1_000_000), Decimal(2_000_000))
NOTHING = {
    "thought": "",
    "action": None,
    "answer": None,
    "flaw": None,
    "further_actions": [],
    "warnings": [],
}
COUNTED = {"model": "small", "input_tokens": 10, "output_tokens": 5}


@pytest.fixture
def agent(organization):
    return factories.agent(organization, groups=["agents"])


def accepted(agent, messages=ASKED, **parameters):
    call = factories.call("ask_model", {"messages": messages, **parameters}, group=["agents"])
    return admit(factories.caller(agent), call)


def ask_model_tool(agent, messages=ASKED, **parameters):
    execution = accepted(agent, messages, **parameters)
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def streamed_text(execution):
    return "".join(one.message for one in execution.events.all() if one.type == "InProgress")


def test_words_are_the_answer_where_words_are_asked_for(agent, model):
    model.plays("It is 2.")
    done = ask_model_tool(agent)
    assert done.status == "Success", done.error_message
    assert done.output == NOTHING | {"text": "It is 2.", "answer": "It is 2."} | COUNTED
    assert (done.metrics["input_tokens"], done.metrics["output_tokens"]) == (10, 5)
    assert streamed_text(done) == "It is 2."


@pytest.mark.parametrize("manner", [{"letters": 1}, {"bytewise": True}, {"whole": True}], ids=str)
def test_the_text_format_gives_an_action_and_tells_the_thought_alone(agent, model, manner):
    text = 'Thought: I add €.\nAction: add\nArguments: {"a": 1}\nObservation: 2\nAnswer: 2'
    model.plays(text, **manner)
    done = ask_model_tool(agent, format="text")
    action = {"name": "add", "arguments": {"a": 1}}
    said = {"text": text, "thought": "I add €.", "action": action}
    assert done.output == NOTHING | said | COUNTED
    assert streamed_text(done).strip() == "I add €."
    assert model.questions[0]["stop"] == ["\nObservation:"]


@pytest.mark.parametrize("manner", [{"letters": 1}, {"bytewise": True}, {"whole": True}], ids=str)
def test_the_native_format_gives_the_call_as_the_action(agent, model, manner):
    model.plays(llm.calls("add", '{"a": 1}', thought="I add."), **manner)
    done = ask_model_tool(agent, format="native", tools=[ADD])
    action = {"name": "add", "arguments": {"a": 1}}
    said = {"text": "I add.", "thought": "I add.", "action": action}
    assert done.output == NOTHING | said | COUNTED
    assert model.questions[0]["tools"] == [{"type": "function", "function": ADD}]
    assert "stop" not in model.questions[0]


def test_the_conversation_goes_out_in_the_protocols_form(agent, model):
    model.plays("2")
    action = {"id": "c1", "name": "add", "arguments": {"a": "ü"}}
    ask_model_tool(
        agent,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "", "action": action},
            {"role": "tool", "content": "2", "action_id": "c1"},
        ],
        format="native",
        max_tokens=7,
    )
    (question,) = model.questions
    function = {"name": "add", "arguments": '{"a": "ü"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert question["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    assert (question["model"], question["max_tokens"]) == ("small", 7)
    assert "tools" not in question and "stop" not in question


@pytest.mark.parametrize(
    ("play", "parameters", "flaw"),
    [
        ("Hm.", {"format": "text"}, model_replies.NO_MOVE),
        ("Observation: 2\nAnswer: 2", {"format": "text"}, model_replies.OBSERVATION_INVENTED),
        (llm.calls("", "{}"), {"format": "native", "tools": [ADD]}, model_replies.NO_TOOL_NAME),
        ("", {"format": "plain"}, model_replies.EMPTY_REPLY),
    ],
    ids=range(4),
)
def test_what_is_no_move_is_a_flaw_and_no_failure(agent, model, play, parameters, flaw):
    model.plays(play)
    done = ask_model_tool(agent, **parameters)
    assert (done.status, done.output["flaw"]) == ("Success", flaw)
    assert (done.output["action"], done.output["answer"]) == (None, None)


def test_arguments_of_any_depth_end_in_a_move(agent, model):
    for depth in range(50, 66):
        model.plays(llm.calls("add", '{"a":' * depth + "1" + "}" * depth))
        done = ask_model_tool(agent, format="native", tools=[ADD])
        assert done.status == "Success", (depth, done.error_message)
        assert (done.output["action"] is None) == (done.output["flaw"] is not None)


@pytest.mark.part("matrices", but_each=5)
@pytest.mark.parametrize(
    "parameters",
    [
        {"messages": []},
        {"messages": ASKED * 401},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "operator", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x", "action_id": "c1"}]},
        {"messages": [{"role": "user", "content": "x", "action": {"id": "c"}}]},
        {
            "messages": [
                {"role": "user", "content": "", "action": {"id": "c", "name": "a", "arguments": {}}}
            ]
        },
        {"max_tokens": 0},
        {"max_tokens": 16_385},
        {"format": "xml"},
        {"tools": [{"name": "add"}]},
        {"tools": [ADD | {"strict": True}]},
        {"model": 5},
        {"temperature": 0},
    ],
    ids=range(17),
)
def test_a_question_of_another_form_is_refused(agent, model, parameters):
    with pytest.raises(InvalidCall):
        accepted(agent, **parameters)
    assert model.questions == []


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_model_without_tools_fails_with_a_code_of_its_own(agent, model, status):
    model.plays(Reply(status, [], b"no tools"))
    done = ask_model_tool(agent, format="native", tools=[ADD])
    assert (done.status, done.error_code, done.cost) == ("Failed", "MODEL_NO_TOOLS", 0)
    assert ask_model_tool(agent).error_code == "MODEL_REJECTED"


def test_tools_are_for_the_native_format(agent, model):
    done = ask_model_tool(agent, format="text", tools=[ADD])
    assert (done.error_code, done.cost, model.questions) == ("PROMPT_INVALID", 0, [])


def test_a_question_that_is_too_long_is_not_asked(agent, model):
    model.plays("x")
    done = ask_model_tool(agent, [{"role": "user", "content": "ü" * 100_000}] * 2)
    assert (done.error_code, done.cost, model.questions) == ("PROMPT_TOO_LONG", 0, [])


def test_without_a_model_nothing_is_asked_and_nothing_owed(agent, settings):
    settings.LLM_BASE_URL = ""
    done = ask_model_tool(agent)
    assert (done.status, done.error_code, done.cost) == ("Failed", "MODEL_NOT_CONFIGURED", 0)


def test_only_the_usual_model_and_those_with_a_price_may_be_named(agent, model, settings):
    model.plays("x")
    assert ask_model_tool(agent, model="huge").error_code == "MODEL_NOT_ALLOWED"
    assert ask_model_tool(agent, model="small").status == "Success"
    settings.LLM_PRICES = {"huge": PRICE}
    assert ask_model_tool(agent, model="huge").output["model"] == "huge"
    refused = ask_model_tool(agent, model="larger")
    assert (refused.error_code, refused.cost) == ("MODEL_NOT_ALLOWED", 0)
    assert ask_model_tool(agent).error_code == "MODEL_NOT_PRICED"
    assert [one["model"] for one in model.questions] == ["small", "huge"]


def test_the_key_is_in_no_output_no_error_and_no_record(agent, model, caplog):
    model.answers_by(lambda question: Reply(400, [], KEY.encode()))
    with caplog.at_level(logging.ERROR):
        failed = ask_model_tool(agent)
    model.plays("x")
    rows = [*failed.events.all().values(), failed.__dict__, ask_model_tool(agent).__dict__]
    records = AuditRecord.objects.filter(organization=agent.organization.slug)
    assert records.exists()
    assert KEY not in json.dumps([*rows, *records.values()], default=str) + caplog.text
    assert model.web.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_answer_of_another_group_is_refused_but_at_its_door(organization, model):
    agent = factories.agent(organization, groups=["default"])
    call = {"messages": ASKED}
    with pytest.raises(Refused):
        admit(factories.caller(agent), factories.call("ask_model", call))
    model.plays("2")
    execution = admit(factories.caller(agent), factories.call("ask_model", call, at_its_door=True))
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).status == "Success"


# --- cost ---------------------------------------------------------------------------------------


@pytest.fixture
def priced(model, settings):
    settings.LLM_PRICES = {"small": PRICE}
    return model


def test_a_small_question_holds_little_and_costs_what_was_counted(agent, priced):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(1_000))
    execution = accepted(agent, max_tokens=50)
    whole = len(json.dumps([ASKED, None], separators=(",", ":")))
    ((used, held),) = allowance_fixtures.amounts_of(agent)
    assert used == 0 and whole + 64 + 100 - 4 <= held <= whole + 64 + 100
    priced.plays("x")
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).cost == 20
    assert allowance_fixtures.amounts_of(agent) == [(20, 0)]


def test_what_does_not_fit_in_the_worst_case_is_not_asked(agent, priced):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(1_000))
    for more in ({"max_tokens": 500}, {"messages": [{"role": "user", "content": "x" * 900}]}):
        with pytest.raises(QuotaExceeded):
            accepted(agent, **{"max_tokens": 50} | more)
    with pytest.raises(QuotaExceeded):
        accepted(agent, max_tokens=50, format="native", tools=[ADD])
    assert priced.questions == []


def test_a_model_that_counts_more_than_it_may_overdraws_no_budget(agent, priced):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(1_000))
    priced.plays("x", tokens=(10**8, 10**8))
    done = ask_model_tool(agent, max_tokens=50)
    assert (done.status, done.cost < 1_000) == ("Success", True)
    assert allowance_fixtures.amounts_of(agent) == [(float(done.cost), 0)]


def test_what_is_not_asked_costs_nothing_and_half_an_answer_what_was_held(agent, priced):
    priced.answers(Reply(401))
    assert ask_model_tool(agent, max_tokens=50).cost == 0
    priced.breaks_off("half")
    assert ask_model_tool(agent, max_tokens=50).cost > 100
