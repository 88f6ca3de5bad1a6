"""Tool calls from the pieces of a stream: none is given what was said of another."""

import pytest

from tools.llm.calls import MOST_CALLS, Call, Calls
from tools.llm.sse import BadStream


def first(*chunks):
    calls = Calls(lambda _: None)
    for chunk in chunks:
        calls.take(chunk)
    return calls.first()


def piece(name=None, arguments=None, **fields):
    return {"function": {"name": name, "arguments": arguments}, **fields}


def test_names_and_arguments_come_in_any_pieces():
    pieces = [piece("a", index=0, id="x"), piece("dd", '{"a"', index=0), piece("", ": 1}", index=0)]
    assert first(*([one] for one in pieces)) == first(pieces) == Call("add", '{"a": 1}')


def test_the_first_by_its_index_is_the_one():
    late = [piece("wipe", "{}", index=1, id="b")], [piece("add", "", index=0, id="a")]
    assert first(*late, [piece(None, '{"a": 1}', index=0)]) == Call("add", '{"a": 1}')


def test_calls_of_a_whole_answer_are_told_apart_by_their_place():
    assert first([piece("wipe", ""), piece("add", '{"a": 1}')]) == Call("wipe", "")


@pytest.mark.parametrize("index", [{}, {"index": 0}], ids=["without an index", "with the same"])
def test_an_id_of_its_own_makes_a_call_of_its_own(index):
    pieces = [piece("wipe", "", id="a", **index)], [piece("", '{"all": true}', id="b", **index)]
    assert first(*pieces, [piece("", "!", **index)]) == Call("wipe", "")


def test_arguments_may_come_as_an_object():
    assert first([piece("add", {"a": 1})]) == Call("add", '{"a": 1}')


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


@pytest.mark.parametrize("function", [None, 5, [], {}, {"name": 5, "arguments": ["x"]}])
def test_a_piece_that_says_nothing_adds_nothing(function):
    assert first([{"index": 0, "function": function}]) == Call("", "")


def test_without_pieces_there_is_no_call():
    assert first([]) is None
