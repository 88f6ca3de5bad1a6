"""Tool calls are assembled from the deltas of a stream, and none contains a delta of another."""

import itertools

import pytest

from tools.catalog import model_prices
from tools.llm import model_answers
from tools.llm.model_answers import MOST_CALLS, BadStream, ModelToolCall, ModelToolCalls


def first(*chunks):
    calls = ModelToolCalls(lambda _: None)
    for chunk in chunks:
        calls.take(chunk)
    return calls.first()


def piece(name=None, arguments=None, **fields):
    return {"function": {"name": name, "arguments": arguments}, **fields}


PIECES = [piece("a", index=0, id="x"), piece("dd", '{"a"', index=0), piece("", ": 1}", index=0)]
CALLS = {
    "in one piece": ([PIECES], ModelToolCall("add", '{"a": 1}')),
    "in any pieces": ([[one] for one in PIECES], ModelToolCall("add", '{"a": 1}')),
    "the first by its index": (
        [[piece("wipe", "{}", index=1, id="b")], [piece("add", "", index=0, id="a")],
         [piece(None, '{"a": 1}', index=0)]],
        ModelToolCall("add", '{"a": 1}'),
    ),
    "the first by its place": (
        [[piece("wipe", ""), piece("add", '{"a": 1}')]], ModelToolCall("wipe", "")
    ),
    **{
        f"told apart by its id, {name}": (
            [[piece("wipe", "", id="a", **index)], [piece("", '{"all": true}', id="b", **index)],
             [piece("", "!", **index)]],
            ModelToolCall("wipe", ""),
        )
        for name, index in (("without an index", {}), ("with the same", {"index": 0}))
    },
    "arguments as an object": ([[piece("add", {"a": 1})]], ModelToolCall("add", '{"a": 1}')),
    **{
        f"nothing is said: {function}": (
            [[{"index": 0, "function": function}]], ModelToolCall("", "")
        )
        for function in (None, 5, [], {}, {"name": 5, "arguments": ["x"]})
    },
}  # fmt: skip


@pytest.mark.parametrize(("deltas", "call"), CALLS.values(), ids=CALLS)
def test_the_first_call_is_put_together_from_its_pieces(deltas, call):
    assert first(*deltas) == call


@pytest.mark.parametrize(
    "bad",
    [
        [5],
        [None],
        [{"index": -1}],
        [{"index": True}],
        [{"index": "0"}],
        [{"index": 0.5}],
        [{"index": 10**9}],
        [{"index": at} for at in range(MOST_CALLS + 1)],
    ],
    ids=range(8),
)
def test_what_is_no_piece_of_a_call_is_refused(bad):
    with pytest.raises(BadStream):
        first(bad)


def test_without_pieces_there_is_no_call():
    assert first([]) is None


def all_calls(*chunks):
    calls = ModelToolCalls(lambda _: None)
    for chunk in chunks:
        calls.take(chunk)
    return [(one.name, one.arguments) for one in calls.in_order()]


ONE, TWO = ("find", '{"q": "a"}'), ("find", '{"q": "b"}')


@pytest.mark.parametrize(
    "chunks",
    [
        [[piece(*ONE, index=0, id="a"), piece(*TWO, index=1, id="b")]],
        [[piece(*ONE, index=0, id="a")], [piece(*TWO, index=0, id="b")]],
        [[piece(*ONE, index=0)], [piece(*TWO, index=0)]],
        [[piece(*ONE, index=0, id="")], [piece(*TWO, index=0, id="")]],
        [[piece(*TWO, index=1)], [piece(*ONE, index=0)], [piece(*ONE, index=0)]],
    ],
)
def test_every_call_of_a_turn_is_there_once_and_in_order(chunks):
    assert all_calls(*chunks) == [ONE, TWO]


STREAM = b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\nid: 5\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_the_same_however_the_bytes_are_cut(size):
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert list(model_answers.event_data(pieces)) == [b"one", b"two\nthree", b"[DONE]"]


def test_what_has_no_end_is_not_yielded():
    assert list(model_answers.event_data([b"data: one\n\ndata: two"])) == [b"one"]


@pytest.mark.parametrize("endless", [b"data: x", b"data: x\n"])
def test_an_event_without_end_is_given_up(endless):
    with pytest.raises(BadStream):
        list(
            model_answers.event_data(itertools.chain([b"data:"], itertools.repeat(endless * 1_000)))
        )


def test_the_worst_case_is_more_than_any_prompt_of_its_size_can_cost():
    price = model_prices.Decimal("0.15"), model_prices.Decimal("0.6")
    worst = model_prices.worst(price, prompt_bytes=1_000, max_tokens=100)
    assert worst == model_prices.Decimal("0.000220")
    assert model_prices.cost(price, 1_000, 100) < worst
    assert model_prices.cost(price, 1, 0) == model_prices.Decimal("0.000001")
