"""Chat completions over HTTP: the same result however the bytes are split, streamed or not."""

import json
import threading
import time

import pytest

from tests.stubs import llm
from tests.stubs.web import Raw, Reply
from tools.httpclient.upstream_pool import RequestBounds, UpstreamPool
from tools.llm import chat, model_replies
from tools.llm.model_answers import ModelToolCall

MODEL = chat.Model("http://unused", "small", "sk-secret")
ASKED = [{"role": "user", "content": "What is 1 + 1?"}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}]
SPOKEN = 'Thought: Für 1 € — 𝄞.\nAction: add\nArguments: {"a": "ü\\n}"}\nObservation: 3\nAnswer: 3'
READ = model_replies.ModelAction("add", {"a": "ü\n}"})
CALLED = llm.calls("add", '{"a": "ü\\n}"}', "Für 1 €.")
WHOLE = {"whole": True}
MANNERS = [{"letters": 1}, {"letters": 3, "bytewise": True}, {"letters": 1_000}, WHOLE]


@pytest.fixture(scope="module")
def upstream():
    upstream = UpstreamPool()
    yield upstream
    upstream.close()


@pytest.fixture
def endpoint():
    with llm.serving() as endpoint:
        yield endpoint


def ask(upstream, endpoint, *, max_bytes=10_000, max_tokens=1_000, **fields):
    received = []
    model = chat.Model(endpoint.url, MODEL.name, MODEL.key)
    question = chat.ChatRequest(ASKED, chat.AnswerLimits(max_tokens, max_bytes), **fields)
    bounds = RequestBounds(threading.Event(), time.monotonic() + 30)
    said = chat.ask(upstream, model, question, bounds, received.append)
    assert "".join(received) == said.text
    return said


def move(said):
    reader = model_replies.ModelReplyParser()
    reader.feed(said.text)
    return model_replies.parse_native(said.text, said.call) if said.call else reader.close()


@pytest.mark.part("agents", but_each=3)
@pytest.mark.parametrize("manner", MANNERS, ids=str)
@pytest.mark.parametrize("play", [SPOKEN, CALLED], ids=["text", "native"])
def test_an_answer_is_the_same_streamed_or_whole(upstream, endpoint, play, manner):
    endpoint.plays(play, **manner)
    said = ask(upstream, endpoint)
    assert move(said).action == READ
    assert move(said).thought.startswith("Für 1 €")
    assert (said.input_tokens, said.output_tokens) == (10, 5)


@pytest.mark.part("agents")
@pytest.mark.parametrize("play", [SPOKEN, CALLED], ids=["text", "native"])
def test_it_is_the_same_cut_in_two_at_every_byte(upstream, endpoint, play):
    (*pieces,) = llm.Manner(letters=40).reply(play).body
    stream = b"".join(pieces)
    cuts = range(1, len(stream))
    endpoint.answers(*(Reply(200, llm.STREAM, [stream[:at], stream[at:]]) for at in cuts))
    said = [ask(upstream, endpoint) for _ in cuts]
    assert {one == said[0] for one in said} == {True}
    assert move(said[0]).action == READ


def test_tools_and_where_to_stop_are_sent_where_they_are_given(upstream, endpoint):
    endpoint.plays("x")
    ask(upstream, endpoint)
    ask(upstream, endpoint, tools=TOOLS, stop=("\nObservation:",))
    bare, full = endpoint.questions
    assert full == bare | {"tools": TOOLS, "stop": ["\nObservation:"]}
    assert bare["messages"] == ASKED


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_model_without_tools_is_distinguished_from_one_that_refuses(upstream, endpoint, status):
    endpoint.plays(Reply(status, [], b"sk-secret does not support tools"))
    for tools, code in (TOOLS, "MODEL_NO_TOOLS"), ([], "MODEL_REJECTED"):
        with pytest.raises(chat.ModelFailure) as failure:
            ask(upstream, endpoint, tools=tools)
        assert (failure.value.code, failure.value.began) == (code, False)
        assert "sk-secret" not in failure.value.message


def test_of_several_calls_the_first_is_the_answers(upstream, endpoint):
    one = {"index": 1, "id": "b", "function": {"name": "wipe", "arguments": "{}"}}
    two = {"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}
    endpoint.streams([llm.called(one, two), llm.end((1, 1))])
    assert ask(upstream, endpoint).call == ModelToolCall("add", "")


@pytest.mark.parametrize(
    "call",
    [
        {"function": {"name": "a" * 20_000}},
        {"function": {"arguments": "a" * 20_000}},
        {"id": "a" * 20_000},
    ],
    ids=range(3),
)
def test_a_call_that_is_too_long_is_ended_here(upstream, endpoint, call):
    endpoint.streams([llm.called({"index": 0} | call), llm.end(None)])
    with pytest.raises(chat.ModelFailure, match="longer than the tool may return"):
        ask(upstream, endpoint)


def test_calls_without_end_are_ended_here(upstream, endpoint):
    def pieces():
        while not endpoint.go_on.is_set():
            yield llm.called({"index": 0})

    endpoint.streams(pieces())
    with pytest.raises(chat.ModelFailure) as failure:
        ask(upstream, endpoint, max_tokens=10)
    assert failure.value.code == "MODEL_ENDLESS"


@pytest.mark.parametrize("calls", [[5], [{"index": -1}], [{"index": 0}, {"index": "x"}]], ids=str)
def test_calls_that_cannot_be_read_are_no_answer(upstream, endpoint, calls):
    endpoint.streams([llm.called(*calls), llm.end((1, 1))])
    with pytest.raises(chat.ModelFailure) as failure:
        ask(upstream, endpoint)
    assert failure.value.code == "MODEL_CUT"


def test_half_a_call_is_none(upstream, endpoint):
    stream = b"".join(llm.Manner().reply(CALLED).body).partition(b"data: [DONE]")[0]
    half = stream[: stream.index(b'finish_reason": "stop')]
    endpoint.answers(Raw([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", half]))
    with pytest.raises(chat.ModelFailure) as failure:
        ask(upstream, endpoint)
    assert (failure.value.code, failure.value.began) == ("MODEL_CUT", True)


def test_a_stub_answers_what_it_is_asked(upstream, endpoint):
    endpoint.answers_by(lambda question: json.dumps(question["messages"]))
    assert json.loads(ask(upstream, endpoint).text) == ASKED


def test_a_stub_plays_one_move_for_each_question_and_the_last_again(upstream, endpoint):
    endpoint.plays("one", llm.calls("add"), "three")
    said = [ask(upstream, endpoint) for _ in range(4)]
    assert [one.text for one in said] == ["one", "", "three", "three"]
    assert said[1].call.name == "add" and len(endpoint.questions) == 4


def delta(**fields):
    return llm.event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


THINKS = {"type": "thinking", "thinking": [{"type": "text", "text": "Action: wipe"}]}
NOON = {"type": "text", "text": "It is noon."}


@pytest.mark.parametrize(
    "pieces",
    [
        [delta(content=[NOON])],
        [delta(content=[THINKS]), delta(content=[NOON])],
        [delta(content=[THINKS, NOON])],
        [delta(content="It is "), delta(content=[{"type": "output_text", "text": "noon."}])],
        [delta(content=["It is ", {"text": "noon."}])],
        [delta(content="", reasoning_content="Action: wipe"), delta(content="It is noon.")],
        [delta(content=None, reasoning="Answer: 5"), delta(content="It is noon.")],
        [delta(refusal="It is noon.")],
    ],
)
def test_parts_of_text_are_the_text_and_reasoning_is_not(upstream, endpoint, pieces):
    endpoint.streams([*pieces, llm.end((1, 1))])
    assert ask(upstream, endpoint).text == "It is noon."


@pytest.mark.parametrize(
    ("reason", "cut"), [("length", True), ("max_tokens", True), ("stop", False)]
)
def test_an_answer_that_was_cut_says_so(upstream, endpoint, reason, cut):
    end = llm.event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    endpoint.streams([llm.piece("It is no"), end, b"data: [DONE]\n\n"])
    assert ask(upstream, endpoint).cut is cut
