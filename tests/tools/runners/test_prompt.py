"""Prompt tools through the whole execution pipeline, against an endpoint on loopback."""

import json
import logging
from decimal import Decimal

import pytest

from tests import factories
from tests.stubs import llm
from tests.stubs.web import Raw, Reply
from tests.tools.approval_requests import attempted_in_thread
from tests.tools.limits import allowance_fixtures
from tests.tools.runners.conftest import KEY
from tools.errors import QuotaExceeded
from tools.execution import answer as actions
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def greet(organization):
    implementation = {"template": "Greet {{ text }}.", "system": "Be kind.", "max_tokens": 50}
    return tool(organization, "greet", implementation=implementation)


def tool(organization, name="greet", **fields):
    return factories.tool(organization, name, type="prompt", **fields)


def called(agent, name="greet", **parameters):
    execution = admit(factories.caller(agent), factories.call(name, parameters or {"text": "Ada"}))
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def run_to_end(agent):
    done = called(agent)
    return done.status, done.error_code


def test_the_answer_is_the_output_and_comes_piece_by_piece(agent, greet, model):
    model.says("Hel", "lo ", "Ada")
    done = called(agent)
    assert (done.status, done.output, done.observation) == ("Success", "Hello Ada", "Hello Ada")
    said = [event.message for event in done.events.all() if event.type == "InProgress"]
    assert "".join(said) == "Hello Ada"
    assert (done.metrics["input_tokens"], done.metrics["output_tokens"]) == (10, 5)


def test_the_question_is_what_the_definition_and_the_arguments_make(agent, greet, model):
    model.says("x")
    called(agent, text="{{ 7 * 7 }}")
    (question,) = model.questions
    assert question["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Greet {{ 7 * 7 }}."},
    ]
    assert (question["model"], question["max_tokens"], question["stream"]) == ("small", 50, True)
    assert question["stream_options"] == {"include_usage": True}
    assert model.web.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_text_completion_takes_a_question_without_saying_so(agent, organization, model):
    definition = {"name": "ask", "type": "text-completion", "description": "Asks."}
    factories.register(organization, definition)
    model.echoes()
    done = called(agent, "ask", question="Why {{ x }}?")
    assert done.output == "Why {{ x }}?"


def test_calls_share_a_connection(agent, greet, model):
    model.says("x")
    for _ in range(3):
        called(agent)
    assert model.web.connections == 1


def test_a_model_that_answers_in_one_piece_will_do(agent, greet, model):
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    headers = [("Content-Type", "application/json")]
    model.answers(Reply(200, headers, json.dumps(body).encode()))
    assert called(agent).output == "whole"


def test_without_a_model_nothing_is_asked_and_nothing_owed(agent, greet, settings):
    settings.LLM_BASE_URL = ""
    done = called(agent)
    assert (done.status, done.error_code, done.cost) == ("Failed", "MODEL_NOT_CONFIGURED", 0)


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "MODEL_REJECTED"),
        (401, "MODEL_REFUSED"),
        (403, "MODEL_REFUSED"),
        (404, "MODEL_REJECTED"),
        (302, "MODEL_UNAVAILABLE"),
        (500, "MODEL_UNAVAILABLE"),
    ],
)
def test_a_refusal_has_a_code_of_ours_and_its_words_go_to_operators(
    agent, greet, model, caplog, status, code
):
    model.answers(Reply(status, [("Location", "/elsewhere")], b"no: " + KEY.encode()))
    with caplog.at_level(logging.ERROR):
        done = called(agent)
    assert (done.status, done.error_code) == ("Failed", code)
    assert "no: " not in done.error_message and "no: ***" in caplog.text
    assert KEY not in caplog.text and len(model.questions) == 1


def test_a_busy_model_is_asked_again_after_what_it_says(agent, greet, model):
    busy = Reply(429, [("Retry-After", "0")])
    model.answers(busy, busy, Reply(200, llm.STREAM, [llm.piece("at last"), llm.end(None)]))
    assert called(agent).output == "at last"
    assert len(model.questions) == 3


def test_a_model_that_stays_busy_fails_the_call(agent, greet, model):
    model.answers(Reply(429, [("Retry-After", "0")]))
    assert run_to_end(agent) == ("Failed", "MODEL_BUSY")
    assert len(model.questions) == 3


def test_half_an_answer_is_none(agent, greet, model):
    model.breaks_off("half ", "an answer")
    done = called(agent)
    assert (done.status, done.error_code, done.output) == ("Failed", "MODEL_CUT", None)


REASONED = "<think>\nIt is no secret.\n</think>\n"


@pytest.fixture
def asking(organization):
    factories.register(
        organization, {"name": "ask", "type": "text-completion", "description": "Asks."}
    )


@pytest.mark.parametrize(
    ("tool_name", "parameters"), [("greet", {"text": "Ada"}), ("ask", {"question": "Why?"})]
)
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (f"{REASONED}Hello", "Hello"),
        ("It is no secret.\n</think>\n\nHello", "Hello"),
        ("[THINK]It is no secret.[/THINK]Hello", "Hello"),
        ("Hello\n<think>It is no secret", "Hello"),
        ("  Hello <b>Ada</b>\n", "  Hello <b>Ada</b>\n"),
        ("`<think>` is a tag", "`<think>` is a tag"),
    ],
)
def test_reasoning_is_no_part_of_the_answer(
    agent, greet, asking, model, said, answer, tool_name, parameters
):
    model.says(*(said[at : at + 5] for at in range(0, len(said), 5)))
    done = called(agent, tool_name, **parameters)
    assert (done.status, done.output) == ("Success", answer), done.error_message
    assert "no secret" not in done.observation


@pytest.mark.parametrize("said", [f"{REASONED}Hello", "[THINK]no secret[/THINK]Hello"])
def test_reasoning_is_not_shown_while_it_comes(agent, greet, model, said):
    model.says(*said)
    events = called(agent).events.all()
    words = "".join(one.message for one in events if one.type == "InProgress")
    assert words.strip() == "Hello"


@pytest.mark.parametrize("said", [REASONED, "<think>It goes on", "It was all weighed.</think>\n"])
def test_reasoning_alone_is_no_answer_and_costs_what_was_counted(agent, priced, model, said):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(WORST))
    model.says(said, tokens=(10, 5))
    done = called(agent)
    assert (done.status, done.error_code) == ("Failed", "MODEL_NO_ANSWER")
    assert (done.output, done.observation, done.cost) == (None, "", 20)
    assert "weighed" not in done.error_message and "secret" not in done.error_message


@pytest.mark.parametrize("reason", ["length", "LENGTH", "max_tokens", "content_filter"])
def test_an_answer_that_its_endpoint_cut_is_none_and_says_what_helps(agent, greet, model, reason):
    end = llm.event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    model.streams([llm.piece("Hello A"), end, b"data: [DONE]\n\n"])
    done = called(agent)
    assert (done.status, done.error_code, done.output) == ("Failed", "MODEL_CUT", None)
    assert "Raise max_tokens" in done.error_message and "Hello A" not in done.error_message


def test_reasoning_that_its_endpoint_cut_is_a_cut_answer(agent, greet, model):
    end = llm.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    model.streams([llm.piece("<think>on and on"), end, b"data: [DONE]\n\n"])
    assert run_to_end(agent) == ("Failed", "MODEL_CUT")


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: {\n\n"],
        [b"data: []\n\n"],
        [b'data: {"choices": [5]}\n\n'],
        [b'data: {"error": {"message": "overloaded"}}\n\n'],
        [b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n'],
        [b"data: " + b"[" * 100_000 + b"\n\n"],
        [b"data: " + b"x" * 2_000_000 + b"\n\n"],
        [b"\xff\xfe\n\n"],
        [llm.piece("x")],
    ],
    ids=range(9),
)
def test_what_is_no_answer_fails_the_call(agent, greet, model, pieces):
    model.streams([*pieces, b"data: [DONE]\n\n"])
    assert run_to_end(agent) == ("Failed", "MODEL_CUT")


def test_what_is_not_http_fails_the_call(agent, greet, model):
    model.answers(Raw([b"SSH-2.0-OpenSSH\r\n"]))
    assert run_to_end(agent) == ("Failed", "MODEL_CUT")


def test_control_characters_do_not_reach_the_output(agent, greet, model):
    model.says("a\x1b[31mb\x7f", "ü\n")
    assert called(agent).output == "a\ufffd[31mb\ufffdü\n"


def test_an_answer_without_end_is_ended_here(agent, greet, model):
    model.never_ends()
    assert run_to_end(agent) == ("Failed", "MODEL_ENDLESS")


def test_an_answer_that_is_too_long_is_ended_here(agent, organization, model):
    tool(
        organization,
        implementation={"template": "{{ text }}", "max_tokens": 100_000},
        constraints={"max_output_size": 1_000},
    )
    model.never_ends()
    assert run_to_end(agent) == ("Failed", "OUTPUT_LIMIT")


def test_a_prompt_that_is_too_long_is_not_asked(agent, organization, model):
    tool(organization, implementation={"template": "{{ text }}", "max_prompt_bytes": 10})
    model.says("x")
    done = called(agent, text="ü" * 6)
    assert (done.error_code, done.cost, model.questions) == ("PROMPT_TOO_LONG", 0, [])


@pytest.mark.parametrize("prepare", ["hangs", "is_silent"])
def test_a_cancelled_call_hangs_up_on_the_model(agent, admin_user, greet, model, prepare):
    getattr(model, prepare)()
    execution = admit(factories.caller(agent), factories.call("greet", {"text": "Ada"}))
    thread = attempted_in_thread(execution)
    assert model.asked.wait(30)
    actions.cancel(execution=execution, caller=factories.caller(agent))
    thread.join(30)
    assert not thread.is_alive()
    assert Execution.objects.get(pk=execution.pk).status == "Cancelled"


def test_a_silent_model_costs_no_more_than_the_tools_time(agent, organization, model):
    constraints = {"max_execution_time": "PT0.5S"}
    tool(organization, implementation={"template": "{{ text }}"}, constraints=constraints)
    model.is_silent()
    assert run_to_end(agent) == ("Timeout", "TIMEOUT")


def test_a_model_that_cannot_be_reached_is_an_error_and_costs_nothing(agent, greet, settings):
    settings.LLM_BASE_URL, settings.LLM_MODEL = "http://127.0.0.1:1/v1", "small"
    done = called(agent)
    assert (done.status, done.error_code, done.cost) == ("Failed", "MODEL_UNAVAILABLE", 0)


# --- cost ---------------------------------------------------------------------------------------

# A dollar for each input token, two for each output token: in the worst case 164 + 2 * 50.
PRICES = {"small": (Decimal(1_000_000), Decimal(2_000_000))}
IMPLEMENTATION = {"template": "{{ text }}", "max_tokens": 50, "max_prompt_bytes": 100}
WORST = 264


@pytest.fixture
def priced(organization, model, settings):
    settings.LLM_PRICES = PRICES
    return tool(organization, implementation=IMPLEMENTATION)


def test_a_call_holds_its_worst_case_and_costs_what_was_counted(agent, priced, model):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(WORST))
    execution = admit(factories.caller(agent), factories.call("greet", {"text": "Ada"}))
    assert allowance_fixtures.amounts_of(agent) == [(0, WORST)]
    model.says("x", tokens=(10, 5))
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).cost == 20
    assert allowance_fixtures.amounts_of(agent) == [(20, 0)]


def test_a_model_without_a_price_is_not_asked_where_models_have_prices(
    agent, organization, priced, model
):
    tool(organization, "dear", implementation=IMPLEMENTATION | {"model": "huge"})
    done = called(agent, "dear")
    assert (done.status, done.error_code, done.cost) == ("Failed", "MODEL_NOT_PRICED", 0)
    assert model.questions == []


def test_what_does_not_fit_in_the_worst_case_is_not_asked(agent, priced, model):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(WORST - 1))
    with pytest.raises(QuotaExceeded):
        called(agent)
    assert model.questions == []


def test_a_model_that_counts_more_than_it_may_overdraws_no_budget(agent, priced, model):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(WORST))
    model.says("x", tokens=(10**8, 10**8))
    assert called(agent).cost == WORST
    assert allowance_fixtures.amounts_of(agent) == [(WORST, 0)]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "tokens", [None, (-1, 5), ("many", 1), (True, 1), (10**15, 1), (0, 1), (1, 0)], ids=range(7)
)
def test_an_answer_without_token_counts_costs_what_was_reserved(agent, priced, model, tokens):
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget(WORST))
    model.says("x", tokens=tokens)
    done = called(agent)
    assert (done.status, done.cost) == ("Success", WORST)


def test_a_refusal_costs_nothing_and_half_an_answer_what_was_held(agent, priced, model):
    model.answers(Reply(401))
    assert called(agent).cost == 0
    model.breaks_off("half")
    assert called(agent).cost == WORST


def test_a_model_without_a_price_costs_what_the_definition_says(agent, organization, model):
    tool(organization, implementation=IMPLEMENTATION, cost_per_invocation="0.5")
    model.says("x")
    assert called(agent).cost == Decimal("0.5")
