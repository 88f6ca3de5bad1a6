"""Server-sent events: their data is the same however the bytes are split, and bounded."""

import itertools

import pytest

from tools.catalog import model_prices
from tools.llm import model_answers
from tools.llm.model_answers import BadStream

STREAM = b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\nid: 5\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_the_same_however_the_bytes_are_cut(size):
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert list(model_answers.data_of(pieces)) == [b"one", b"two\nthree", b"[DONE]"]


def test_what_has_no_end_is_not_yielded():
    assert list(model_answers.data_of([b"data: one\n\ndata: two"])) == [b"one"]


@pytest.mark.parametrize("endless", [b"data: x", b"data: x\n"])
def test_an_event_without_end_is_given_up(endless):
    with pytest.raises(BadStream):
        list(model_answers.data_of(itertools.chain([b"data:"], itertools.repeat(endless * 1_000))))


def test_the_worst_case_is_more_than_any_prompt_of_its_size_can_cost():
    price = model_prices.Decimal("0.15"), model_prices.Decimal("0.6")
    worst = model_prices.worst(price, prompt_bytes=1_000, max_tokens=100)
    assert worst == model_prices.Decimal("0.000220")
    assert model_prices.cost(price, 1_000, 100) < worst
    assert model_prices.cost(price, 1, 0) == model_prices.Decimal("0.000001")
