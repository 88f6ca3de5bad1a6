"""Tool search: which tools are found, in which order, and for whom."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection, transaction

from tests import factories
from tests.conditions import blocks_another_connection, until
from tests.tools.execution.in_process_worker import work_off
from tools.catalog.actions import delete_tool, find_tool, update_tool
from tools.catalog.registry import registry
from tools.catalog.search import tool_search, tool_words
from tools.catalog.search.tool_search import MOST_FOUND, rank_tools, relevant_tools
from tools.models import Organization, ToolQuestion, ToolSearch, ToolWords

TOOLS = (
    ("csv_summary", {"description": "Counts rows of a table.", "capabilities": ["table", "csv"]}),
    ("read_lines", {"description": "Returns the content of a file."}),
    ("writeReport", {"title": "Report writer", "description": "Writes a file about the table."}),
    ("web-reader", {"description": "Reads a page of the web.", "category": "Network"}),
    ("greet", {"description": "Sagt einen Gruß auf Straßen, déjà vu."}),
)  # fmt: skip


@pytest.fixture(autouse=True)
def tools(organization):
    for name, fields in TOOLS:
        factories.tool(organization, name, **fields)


@pytest.fixture
def place(organization):
    def load_snapshot():
        revision = Organization.objects.get(pk=organization.pk).revision
        return registry.snapshot(organization.pk, revision)

    return load_snapshot


@pytest.fixture
def names(place):
    def find_names(text, among=None):
        snapshot = place()
        tools = None if among is None else [snapshot.tools[one] for one in among]
        return [one.tool.name for one in relevant_tools(rank_tools(snapshot, text, tools))]

    return find_names


MATRICES = pytest.mark.part("matrices")


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("csv", "csv_summary"),
        pytest.param("TABLES", "csv_summary", marks=MATRICES),
        pytest.param("readLines", "read_lines", marks=MATRICES),
        ("report", "writeReport"),
        pytest.param("summ", "csv_summary", marks=MATRICES),
        pytest.param("network", "web-reader", marks=MATRICES),
        ("STRASSEN", "greet"),
        pytest.param("deja", "greet", marks=MATRICES),
        pytest.param("read a page of the web", "web-reader", marks=MATRICES),
        ("write a file about a table", "writeReport"),
        ("cvs_sumary", "csv_summary"),
        ("reprot wirter", "writeReport"),
        ("grete", "greet"),
    ],
)
def test_the_best_stands_first_also_for_what_is_written_wrong(names, text, best):
    assert names(text)[0] == best


def test_a_tool_that_knows_all_words_stands_before_one_that_knows_one_well(organization, names):
    factories.tool(organization, "invoice", description="invoice invoice invoice")
    factories.tool(organization, "sender", description="Sends an invoice by mail.")
    assert names("mail invoice")[0] == "sender"


def test_words_of_parameters_are_found(organization, names):
    parameter = {"name": "postcode", "type": "String", "description": "Of the recipient."}
    factories.tool(organization, "post", parameters=[parameter])
    assert names("postcode") == names("recipient") == ["post"]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "---",
        "\x00",
        "\ud800",
        "qqqqqq",
        "🙂",
        "' | !qq & (qqq) <-> :*",
        "'); DROP",
        "\\",
    ],
)
def test_what_says_nothing_finds_nothing_and_is_no_query_of_its_own(names, text):
    assert names(text) == []


def test_only_the_tools_it_is_asked_among_are_found(names):
    assert names("table", ["writeReport"]) == ["writeReport"]
    assert names("table", ["greet"]) == []
    assert names("table", []) == []


def test_what_may_not_be_found_changes_nothing_about_what_is(organization, place):
    factories.tool(organization, "first", description="A common gadget.")
    factories.tool(organization, "second", description="Something common.")

    def find_scores():
        snapshot = place()
        among = [snapshot.tools[name] for name in ("first", "second", "greet")]
        hits = rank_tools(snapshot, "common gadget rareword", among)
        return [(one.tool.name, one.score, one.worth) for one in hits]

    before = find_scores()
    for at in range(8):
        factories.tool(organization, f"hidden{at}", description="A common gadget rareword.")
    assert [name for name, _, _ in before] == ["first", "second"]
    assert find_scores() == before


@pytest.mark.part("matrices")
@pytest.mark.parametrize("hidden", [1, 4, 9])
def test_however_many_are_left_out_none_of_them_is_found(organization, names, place, hidden):
    for at in range(10):
        factories.tool(organization, f"gem{at}", description="Polishes gems.")
    among = [name for name in place().tools if name not in {f"gem{at}" for at in range(hidden)}]
    assert names("gem", among) == [f"gem{at}" for at in range(hidden, 10)]
    assert names("polihses", among) == []
    assert names("gme", among) == names("gme", [f"gem{at}" for at in range(hidden, 10)])


def test_of_more_than_are_ranked_the_one_that_is_named_so_is_among_them(
    organization, names, monkeypatch
):
    monkeypatch.setattr(tool_search, "MOST_FOUND", 5)
    for at in range(10):
        factories.tool(organization, f"t{at}", description="Holds a gadget.")
    factories.tool(organization, "gadget", description="The thing itself.")
    factories.tool(organization, "holder", description="Holds a gadget and a pen.")
    assert names("gadget")[0] == "gadget"
    assert names("hold gadget pen")[0] == "holder"


def test_a_rare_word_does_not_hide_what_has_the_others(organization, names, monkeypatch):
    monkeypatch.setattr(tool_search, "MOST_FOUND", 5)
    for at in range(10):
        factories.tool(organization, f"t{at}", description="Holds a gadget.")
    factories.tool(organization, "rare", description="Once a gem.")
    found = names("gem gadget")
    assert found[0] == "rare" and len(found) == 5


@pytest.mark.part("matrices")
def test_a_sample_tells_how_many_have_a_word(organization, names, monkeypatch):
    monkeypatch.setattr(tool_search, "_SAMPLE", 4)
    for at in range(30):
        factories.tool(organization, f"t{at}", description="The one that does the thing.")
    factories.tool(organization, "pdf", description="The reader of pdf.")
    assert names("the pdf")[0] == "pdf"
    assert names("unheard thing")


def test_a_deleted_tool_is_neither_found_nor_counted(organization, names):
    delete_tool(tool=find_tool(organization, "greet"), by=factories.actor(organization))
    assert names("strassen") == []
    assert not ToolWords.objects.filter(organization=organization, tool__name="greet").exists()


def test_a_change_is_found_by_its_words_and_no_longer_by_the_old_ones(organization, names):
    tool = find_tool(organization, "greet")
    definition = tool.version.definition | {"description": "Says farewell."}
    update_tool(tool=tool, definition=definition, by=factories.actor(organization))
    assert names("farewell") == ["greet"]
    assert names("strassen") == []


def test_nothing_of_another_organization_is_found_or_counts(names, place):
    other = factories.organization("other-search")
    factories.tool(other, "theirs", description="Zebra zebra.")
    assert names("zebra") == []


@pytest.mark.part("matrices")
def test_a_word_that_every_tool_has_tells_none_from_another(organization, names):
    for at in range(30):
        factories.tool(organization, f"t{at}", description="The one that does the thing.")
    factories.tool(organization, "pdf", description="The reader of pdf.")
    assert names("the pdf")[0] == "pdf"


def test_what_shares_only_such_a_word_is_left_out_and_what_knows_a_part_is_not(organization, names):
    many = [f"t{at}" for at in range(30)]
    for name in many:
        factories.tool(organization, name, description="The one that does the thing.")
    factories.tool(organization, "pdf", description="The reader of pdf.")
    factories.tool(organization, "merge", description="Joins documents, pdf too.")
    found = names("turn the pages of a pdf", ["pdf", "merge", "web-reader", *many])
    assert sorted(found) == ["merge", "pdf", "web-reader"]


@pytest.mark.part("matrices")
def test_the_tail_is_measured_by_what_is_shown(organization, place):
    for at in range(30):
        factories.tool(organization, f"t{at}", description="The one that does the thing.")
    factories.tool(organization, "pdf", description="The reader of pdf.")
    found = rank_tools(place(), "a thing with pdf")
    assert [one.tool.name for one in relevant_tools(found)] == ["pdf"]
    assert len([*relevant_tools(one for one in found if one.tool.name != "pdf")]) >= 30


def test_ranks_never_rise_and_two_of_one_rank_stand_by_name(organization, place, names):
    for name in ("zz", "aa", "mm"):
        factories.tool(organization, name, description="Xylophone.", parameters=[])
    assert names("xylophone") == ["aa", "mm", "zz"]
    scores = [one.score for one in rank_tools(place(), "file table page")]
    assert all(before >= after > 0 for before, after in pairwise(scores))
    assert len(scores) <= MOST_FOUND


def test_what_has_no_words_gets_them_at_the_start(organization, names):
    ToolWords.objects.filter(organization=organization).delete()
    assert names("csv") == []
    assert tool_words.note_missing() >= len(TOOLS)
    assert names("csv")[0] == "csv_summary"
    assert tool_words.note_missing() == 0


# --- past questions ---


@pytest.fixture
def search_and_call(organization, committed, monkeypatch):
    """A caller searched and called a tool that was found, and the delay of learning has passed."""

    def ask(text, call="read_lines", found=("greet", "read_lines"), after=True):
        agent = factories.agent(organization, groups=["default"])
        tools = [find_tool(organization, name) for name in found]
        tool_words.note_search(factories.caller(agent), text, tools)
        if call:
            factories.execution(agent, call, text="x")
            work_off(organization)
        if after:
            monkeypatch.setattr(tool_words, "DUE_AFTER", timedelta(0))
        return tool_words.learn_questions()

    return ask


def test_a_question_is_remembered_of_the_tool_that_answered_it(search_and_call, names):
    assert names("wherewithal") == []
    assert search_and_call("Where is my wherewithal?") >= 1
    assert names("wherewithal") == ["read_lines"]


@pytest.mark.parametrize(
    "said", [{"call": None}, {"call": "csv_summary"}, {"after": False}, {"found": ()}]
)
def test_a_search_that_led_to_nothing_teaches_nothing(search_and_call, names, said):
    search_and_call("wherewithal", **said)
    assert names("wherewithal") == []


def test_what_was_learned_is_not_waited_for_any_more(search_and_call, organization):
    search_and_call("wherewithal", call=None)
    assert not ToolSearch.objects.filter(organization=organization).exists()


def test_no_secret_of_a_question_is_kept(search_and_call, organization):
    search_and_call("post with password=hunter2hunter2 and sk-live4eC39HqLyjWDarjtT1zdp7dc")
    kept = " ".join(ToolQuestion.objects.values_list("question", flat=True))
    assert "post" in kept and "hunter2" not in kept and "4ec39hq" not in kept


@pytest.mark.part("matrices")
def test_of_a_tool_only_so_many_questions_count(search_and_call, organization, names, monkeypatch):
    monkeypatch.setattr(tool_words, "MOST_QUESTIONS", 1)
    search_and_call("wherewithal")
    search_and_call("wherewithal")
    search_and_call("gobbledygook")
    assert names("wherewithal") == ["read_lines"]
    assert names("gobbledygook") == []


def test_the_tool_and_its_questions_go_together(search_and_call, organization):
    search_and_call("wherewithal")
    find_tool(organization, "read_lines").questions.all().delete()
    assert not ToolQuestion.objects.filter(tool__organization=organization).exists()


@pytest.mark.part("matrices")
def test_of_a_tool_the_latest_questions_are_kept_and_no_more(
    search_and_call, organization, monkeypatch
):
    monkeypatch.setattr(tool_words, "MOST_KEPT", 2)
    for text in ("wherewithal", "gobbledygook", "wherewithal", "hullabaloo"):
        search_and_call(text)
    kept = find_tool(organization, "read_lines").questions.values_list("question", flat=True)
    assert sorted(kept) == ["hullabaloo", "wherewithal"]


def test_a_query_that_is_no_longer_searched_is_forgotten(search_and_call, names, monkeypatch):
    search_and_call("wherewithal")
    assert names("wherewithal") == ["read_lines"]
    monkeypatch.setattr(tool_words, "KEPT", timedelta(0))
    tool_words.learn_questions()
    assert names("wherewithal") == []


def test_of_one_caller_only_so_many_searches_wait(organization, monkeypatch):
    monkeypatch.setattr(tool_words, "MOST_OF_CALLER", 2)
    tools = [find_tool(organization, "greet")]
    for agent in (factories.agent(organization), factories.agent(organization)):
        for _ in range(3):
            tool_words.note_search(factories.caller(agent), "greet", tools)
    assert ToolSearch.objects.filter(organization=organization).count() == 4


def test_a_deleted_tool_keeps_no_question(search_and_call, organization):
    search_and_call("wherewithal")
    tool = find_tool(organization, "read_lines")
    delete_tool(tool=tool, by=factories.actor(organization))
    assert not ToolQuestion.objects.filter(tool=tool).exists()


def test_what_is_learned_of_a_tool_that_is_being_changed_keeps_its_new_words(
    search_and_call, organization, names, monkeypatch
):
    search_and_call("wherewithal", after=False)
    monkeypatch.setattr(tool_words, "DUE_AFTER", timedelta(0))
    tool = find_tool(organization, "read_lines")
    definition = tool.version.definition | {"description": "Says farewell."}
    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            update_tool(tool=tool, definition=definition, by=factories.actor(organization))
            learning = other.submit(_learn_apart)
            until(blocks_another_connection)
        assert learning.result(60) >= 1
    assert names("farewell") == names("wherewithal") == ["read_lines"]


def _learn_apart():
    try:
        return tool_words.learn_questions()
    finally:
        connection.close()
