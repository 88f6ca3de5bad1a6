import pytest

from tests import factories
from tests.api import Api
from tools.catalog.actions import save_group, set_enabled


def names(ran):
    return [tool["name"] for tool in ran.json["results"]]


def test_without_an_agent_every_tool_is_listed(typed, organization, here):
    tool = factories.tool(organization, "hidden", group=[])
    set_enabled(tool=tool, enabled=False, by=factories.by(organization))
    every = sorted([*factories.BUILTIN_NAMES, "hidden"])
    assert names(typed("list_tools", *here, "--json")) == every


def test_each_line_has_the_price_in_tokens_that_the_api_tells(typed, organization, here, agent):
    factories.tool(organization, "echo")
    shown = Api(factories.token(agent.service_account)).get("/tools/echo").json()
    heading, *lines = typed("list_tools", *here).out.splitlines()
    line = next(line for line in lines if line.startswith("echo "))
    assert "TOKENS" in heading and shown["token_estimate"] > 10
    assert str(shown["token_estimate"]) in line.split()


def test_groups_and_a_state_narrow_the_list(typed, organization, here):
    factories.tool(organization, "late", group=["x"], available_in_states=["done"])
    factories.tool(organization, "early", group=["x"])
    assert names(typed("list_tools", *here, "--group", "x", "--state", "new", "--json")) == [
        "early"
    ]


@pytest.mark.parametrize("query", ["", "?group=read-only&group=write", "?group=", "?state=done"])
def test_an_agents_list_is_what_the_api_shows_it(typed, organization, agent, here, query):
    factories.tool(organization, "late", available_in_states=["done"])
    words = {
        "?group=read-only&group=write": ["--group", "read-only", "write"],
        "?group=": ["--group"],
        "?state=done": ["--state", "done"],
    }.get(query, [])
    ran = typed("list_tools", *here, "--agent", agent.slug, *words, "--json")
    shown = Api(factories.token(agent.service_account)).get(f"/tools{query}").json()
    assert ran.json["results"] == shown["results"]
    assert ran.json["warnings"] == shown["warnings"]


def test_an_agent_is_refused_groups_it_was_not_granted(typed, agent, here):
    ran = typed("list_tools", *here, "--agent", agent.slug, "--group", "*", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "group_not_granted"


def test_a_suspended_agent_sees_nothing(typed, organization, here):
    quiet = factories.agent(organization)
    quiet.active = False
    quiet.save()
    ran = typed("list_tools", *here, "--agent", quiet.slug)
    assert (ran.code, ran.out) == (1, "")
    assert "suspended" in ran.err


def test_an_unknown_group_is_a_warning(typed, organization, here):
    agent = factories.agent(organization, groups=["*"])
    ran = typed("list_tools", *here, "--agent", agent.slug, "--group", "nope")
    assert ran.code == 0
    assert ran.out == "There is no group nope; it was ignored.\nNo tools.\n"


def test_the_columns_of_the_table_stand_below_each_other(typed, here):
    lines = typed("list_tools", *here).out.splitlines()
    places = [line.index("builtin") for line in lines[1:]]
    assert set(places) == {lines[0].index("TYPE")}


def test_an_unknown_agent_or_organization_is_refused(typed, here):
    assert typed("list_tools", *here, "--agent", "nobody").code == 1
    assert "only:" in typed("list_tools", "--organization", "nowhere").err


def test_an_unknown_option_is_bad_usage(typed):
    assert typed("list_tools", "--colour").code == 2


def test_a_parent_lists_what_its_groups_hold(typed, organization, here):
    factories.tool(organization, "ask", group=["reading"])
    by = factories.by(organization)
    save_group(organization=organization, name="knowledge", by=by)
    save_group(organization=organization, name="reading", by=by, parent="knowledge")
    ran = typed("list_tools", *here, "--group", "knowledge")
    assert "ask" in ran.out
    assert "knowledge, reading" in ran.out
