"""Group recommendations for a question, and the ranked search of tools."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import factories
from tests.api import Api
from tools.models import ToolSearch

pytestmark = pytest.mark.own_organization


@pytest.fixture
def _library(organization):
    factories.tool(organization, "csv_summary", group=["tables"], description="Sums up a table.")
    factories.tool(
        organization, "csv_join", group=["tables", "admin"], description="Joins two tables."
    )
    factories.tool(organization, "send_mail", group=["mail"], description="Sends a message.")
    factories.tool(
        organization, "late_table", group=["later"], description="A table for later.",
        available_in_states=["done"],
    )  # fmt: skip


@pytest.fixture
def reader_api(organization, _library):
    reader = factories.agent(organization, groups=["default", "tables", "mail", "later"])
    return Api(factories.token(reader.service_account))


def groups(response):
    assert response.status_code == 200, response.content
    return [row["group"] for row in response.json()["results"]]


def succeed(agent, name, times=1, **fields):
    for _ in range(times):
        factories.end_execution(factories.execution(agent, name, text="x", **fields))


def test_the_group_whose_tools_fit_best_stands_first_with_its_reason(reader_api):
    answer = reader_api.get("/groups/recommendations?question=sum up a table")
    assert groups(answer)[0] == "tables"
    first = answer.json()["results"][0]
    assert (first["score"], first["tools"][0]["name"]) == (1.0, "csv_summary")
    assert first["reason"] == "csv_summary, csv_join fit the question."


def test_only_groups_the_caller_may_request_are_named(reader_api):
    assert "admin" not in groups(reader_api.get("/groups/recommendations?question=join tables"))


@pytest.mark.usefixtures("_library")
def test_a_tool_the_caller_was_not_granted_speaks_for_no_group(organization):
    agent = factories.agent(organization, groups=["tables", "mail"], tools=["send_mail"])
    api = Api(factories.token(agent.service_account))
    assert groups(api.get("/groups/recommendations?question=sum up a table")) == []
    assert groups(api.get("/groups/recommendations?question=a message")) == ["mail"]


def test_a_tool_the_caller_may_not_have_takes_no_place_of_one_it_may(reader_api, organization):
    asked = "/groups/recommendations?question=keep a wherewithal of messages"
    before = reader_api.get(asked).json()
    for at in range(3):
        factories.tool(
            organization, f"wherewithal_{at}", group=["vault"], title="Wherewithal of messages",
            description="Keeps a wherewithal of messages.",
        )  # fmt: skip
    assert [row["group"] for row in before["results"]] == ["mail"]
    assert reader_api.get(asked).json() == before


def test_a_word_that_every_tool_has_is_answered(organization):
    for name in ("one", "two"):
        factories.tool(organization, name, group=["notes"], description="Keeps notes.")
    agent = factories.agent(organization, groups=["notes"])
    api = Api(factories.token(agent.service_account))
    assert groups(api.get("/groups/recommendations?question=keeps")) == ["notes"]


def test_a_state_leaves_only_what_is_available_in_it(reader_api):
    asked = "/groups/recommendations?question=later"
    assert groups(reader_api.get(asked)) == ["later"]
    assert groups(reader_api.get(f"{asked}&state=done")) == ["later"]
    assert groups(reader_api.get(f"{asked}&state=undefined")) == []


@pytest.mark.usefixtures("_library")
def test_people_who_view_tools_are_shown_every_group(admin_api):
    found = groups(admin_api.get("/groups/recommendations?question=join tables"))
    assert {"admin", "tables"} <= set(found)


def test_success_lifts_a_group_and_is_given_as_a_reason(organization):
    for group in ("first", "second"):
        factories.tool(organization, f"note_{group}", group=[group], description="Keeps notes.")
    agent = factories.agent(organization, groups=["first", "second"])
    succeed(agent, "note_second", times=3, group=["second"])
    api = Api(factories.token(agent.service_account))
    answer = api.get("/groups/recommendations?question=notes")
    assert groups(answer) == ["second", "first"]
    best, other = answer.json()["results"]
    assert best["tools"][0]["proven"] and not other["tools"][0]["proven"]
    assert "used with success lately: note_second" in best["reason"]


def test_success_elsewhere_teaches_nothing_here(reader_api):
    other = factories.organization("other-teacher")
    factories.tool(other, "csv_summary", group=["tables"])
    succeed(factories.agent(other, groups=["tables"]), "csv_summary", group=["tables"])
    found = reader_api.get("/groups/recommendations?question=table").json()["results"]
    assert not any(tool["proven"] for row in found for tool in row["tools"])


def test_usage_is_counted_once_a_minute_and_not_per_question(reader_api):
    reader_api.get("/groups/recommendations?question=table")
    with CaptureQueriesContext(connection) as asked:
        reader_api.get("/groups/recommendations?question=message")
    assert not any("tools_execution" in query["sql"] for query in asked.captured_queries)


@pytest.mark.parametrize("query", ["", "?question=", "?question=%20", "?question=" + "x" * 4001])
def test_without_a_question_there_is_no_answer(api, query):
    assert api.get(f"/groups/recommendations{query}").status_code == 400


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("question", ["🙂", "---", "x" * 4000, "zzz " * 900])
def test_an_odd_question_is_answered(api, question):
    assert groups(api.get(f"/groups/recommendations?question={question}")) == []


def names(response):
    return [tool["name"] for tool in response.json()["results"]]


def test_a_search_of_tools_is_ranked(reader_api):
    found = reader_api.get("/tools?group=tables&group=mail&q=join+the+tables")
    assert names(found) == ["csv_join", "csv_summary"]


def test_each_tool_has_its_price_in_tokens(reader_api, organization):
    factories.tool(organization, "short", description="Gem.")
    factories.tool(organization, "long", description="Gem. " + "So much is said of it. " * 20)
    found = reader_api.get("/tools?q=gem").json()["results"]
    prices = {tool["name"]: tool["token_estimate"] for tool in found}
    assert 10 < prices["short"] < prices["long"]
    alone = reader_api.get("/tools/long").json()
    assert alone["token_estimate"] == prices["long"]


def test_pages_of_a_search_follow_each_other_and_lead_back(reader_api, organization):
    for number in range(5):
        factories.tool(organization, f"n{number}", description="gem " * (5 - number) + "x " * 9)
    first = reader_api.get("/tools?q=gem&page_size=2").json()
    second = reader_api.get(first["next"].partition("/api/v1")[2]).json()
    back = reader_api.get(second["previous"].partition("/api/v1")[2]).json()
    assert [tool["name"] for tool in second["results"]] == ["n2", "n3"]
    assert back["results"] == first["results"]


def test_a_search_is_noted_once_however_many_pages_are_read(reader_api, organization):
    for number in range(3):
        factories.tool(organization, f"n{number}", description="gem")
    following = reader_api.get("/tools?q=gem&page_size=1").json()["next"].partition("/api/v1")[2]
    assert reader_api.get(following).status_code == 200
    assert ToolSearch.objects.filter(organization=organization).count() == 1


def test_a_page_of_a_search_that_has_changed_is_400(reader_api, organization):
    factories.tool(organization, "a", description="gem")
    factories.tool(organization, "b", description="gem")
    following = reader_api.get("/tools?q=gem&page_size=1").json()["next"].partition("/api/v1")[2]
    assert reader_api.get(following).status_code == 200
    assert reader_api.get(following.replace("q=gem", "q=nothing")).status_code == 400


def test_a_search_finds_only_what_the_caller_may_use(reader_api):
    assert names(reader_api.get("/tools?group=tables&q=message")) == []
