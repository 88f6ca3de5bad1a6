"""Similarity by words: what is found, and in which order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.snapshots import snapshot, tool
from tools.catalog.search.similar_tools import MOST_READ, build, rank_similar
from tools.catalog.search.tool_search import relevant_tools
from tools.catalog.snapshot import Snapshot
from tools.definitions.texts.names import split_words

PLACE = snapshot(
    tool("csv_summary", description="Counts the rows of a table.", capabilities=["table", "csv"]),
    tool("read_file", description="Returns the content of a file."),
    tool("writeReport", title="Report writer", description="Writes a file about the table."),
    tool("web-fetch", description="Reads a page of the web.", category="Network"),
    tool("greet", description="Sagt einen Gruß auf Straßen, déjà vu."),
)


def names(text: str, place: Snapshot = PLACE) -> list[str]:
    return [found.tool.name for found in relevant_tools(rank_similar(place, text))]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("csv", "csv_summary"),
        ("TABLES", "csv_summary"),
        ("readFile", "read_file"),
        ("report", "writeReport"),
        ("summ", "csv_summary"),
        ("network", "web-fetch"),
        ("STRASSEN", "greet"),
        ("deja", "greet"),
        ("read a page of the web", "web-fetch"),
        ("write a file about a table", "writeReport"),
    ],
)
def test_the_best_stands_first(text: str, best: str) -> None:
    assert names(text)[0] == best


def test_a_tool_that_knows_all_words_stands_before_one_that_knows_one_well() -> None:
    place = snapshot(
        tool("invoice", description="invoice invoice invoice"),
        tool("sender", description="Sends an invoice by mail."),
    )
    assert names("mail invoice", place)[0] == "sender"


def test_words_of_parameters_are_found() -> None:
    parameter = {"name": "postcode", "type": "String", "description": "Of the recipient."}
    place = snapshot(tool("a"), tool("b", parameters=[parameter]))
    assert names("postcode", place) == names("recipient", place) == ["b"]


@pytest.mark.parametrize("text", ["", "   ", "---", "\x00", "\ud800", "zzz", "🙂"])
def test_what_says_nothing_finds_nothing(text: str) -> None:
    assert names(text) == []


def test_what_shares_only_a_common_word_is_left_out() -> None:
    others = [tool(f"t{n}", description="The one that does the thing.") for n in range(30)]
    place = snapshot(tool("pdf", description="The reader of pdf."), *others)
    assert names("the pdf", place) == ["pdf"]


def test_the_tail_is_measured_by_what_is_shown() -> None:
    others = [tool(f"t{n}", description="The one that does the thing.") for n in range(30)]
    place = snapshot(tool("pdf", description="The reader of pdf."), *others)
    shown = relevant_tools(one for one in rank_similar(place, "the pdf") if one.tool.name != "pdf")
    assert len([*shown]) == 30


def test_two_of_one_rank_stand_in_the_order_of_their_names() -> None:
    place = snapshot(*(tool(name, description="Same.") for name in ("c", "a", "b")))
    assert names("same", place) == ["a", "b", "c"]


def test_reading_is_bounded_and_rare_words_come_first() -> None:
    common = [tool(f"t{n}", description="common words") for n in range(50)]
    place = snapshot(tool("rare", description="common gem"), *common)
    found = [one.tool.name for one in rank_similar(place, "common gem", most_read=10)]
    assert found == ["rare"] and MOST_READ > 10


def test_a_change_of_the_catalog_is_found_with_its_next_snapshot() -> None:
    first = snapshot(tool("a", description="apples"))
    assert names("pears", first) == []
    assert names("pears", snapshot(tool("a", description="pears"))) == ["a"]


def test_an_empty_catalog_has_an_index() -> None:
    assert [*build(()).ranked("anything")] == []


@given(st.text())
def test_words_are_folded_and_of_a_bounded_length(text: str) -> None:
    assert all(word == word.casefold() and 0 < len(word) <= 40 for word in split_words(text))


@given(st.text(max_size=60))
def test_ranks_never_rise(text: str) -> None:
    scores = [found.score for found in rank_similar(PLACE, text)]
    assert all(before >= after > 0 for before, after in pairwise(scores)) or len(scores) < 2
