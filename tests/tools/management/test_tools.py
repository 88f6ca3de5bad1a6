import pytest

from tests import factories
from tests.api import Api
from tests.tools import catalogs
from tests.tools.database import tamper
from tools.catalog.actions import find_tool, set_enabled
from tools.catalog.groups import save_group
from tools.models import Tool


@pytest.fixture
def set_tool(typed, organization):
    return lambda *words: typed("set_tool", *words, "--organization", organization.slug)


@pytest.fixture
def stored(organization):
    return lambda name="w": find_tool(organization, name).version.definition


NEW = ("--name", "w", "--type", "mcp-tool", "--description", "Weather.", "--mcp-tool", "get")


def test_a_tool_is_created_with_arguments_in_their_order(set_tool, stored):
    ran = set_tool(
        *NEW, "--argument", "city:string:Where: the city", "--argument", "days:INTEGER:How"
    )
    assert (ran.code, ran.err) == (0, "")
    found = [(one["name"], one["type"], one["description"]) for one in stored()["parameters"]]
    assert found == [("city", "String", "Where: the city"), ("days", "Integer", "How")]
    assert stored()["argument_validation"] == "off"
    assert stored()["implementation"] == {"server": "get", "tool": "get"}


def test_what_is_not_given_stays(set_tool, stored):
    set_tool(*NEW, "--argument", "city:string:Where", "--group", "a", "b", "--state", "done")
    ran = set_tool("--name", "w", "--available-in", "start", "--title", "W", "--json")
    assert ran.json["items"][0]["result"] == "updated"
    definition = stored()
    assert (definition["group"], definition["state"]) == (["a", "b"], "done")
    assert definition["available_in_states"] == ["start"]
    assert len(definition["parameters"]) == 1
    assert (
        set_tool("--name", "w", "--title", "W", "--json").json["items"][0]["result"] == "unchanged"
    )


def test_a_required_argument_makes_the_tool_check_them(set_tool, stored):
    set_tool(*NEW, "--argument", "city:string:Where")
    assert (
        set_tool("--name", "w", "--argument", "city:string:Where", "--required", "city").code == 0
    )
    assert stored()["argument_validation"] == "enforce"
    assert stored()["input_schema"]["required"] == ["city"]
    assert stored()["input_schema"]["additionalProperties"] is False


def test_lists_and_the_state_can_be_emptied(set_tool, stored):
    set_tool(*NEW, "--group", "a", "--state", "done")
    assert set_tool("--name", "w", "--group", "--state", "").code == 0
    assert (stored()["group"], stored()["state"]) == ([], None)


def test_a_part_of_the_implementation_is_changed_alone(set_tool, stored):
    set_tool("--name", "w", "--type", "knowledge-query", "--description", "d", "--collection", "c")
    set_tool("--name", "w", "--limit", "5")
    assert stored()["implementation"] == {"collection": "c", "limit": 5}


def test_code_is_given_as_json(set_tool, stored):
    made = '{"source": "def main(parameters):\\n    return 1"}'
    ran = set_tool("--name", "w2", "--type", "code", "--description", "d", "--implementation", made)
    assert ran.code == 0
    assert stored("w2")["implementation"]["entry_point"] == "main"


@pytest.mark.parametrize(
    "words",
    [
        ("--argument", "city"), ("--argument", "city:string"), ("--argument", "city:text:d"),
        ("--argument", ":string:d"), ("--type", "magic"), ("--config", "x"), ("--limit", "many"),
        ("--implementation", "[]"),
    ],
)  # fmt: skip
def test_what_the_words_show_to_be_wrong_is_bad_usage(set_tool, words):
    assert set_tool("--name", "w", *words).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "mcp-tool"), "description: is required"),
        (("--type", "mcp-tool", "--template", "x"), "template: is nothing a mcp-tool is made of"),
        (("--type", "tool-service", "--service", "nowhere"), "names no tool service"),
        (("--type", "mcp-tool", "--argument", "a:string:d", "--required", "b"), "no argument: b"),
    ],
)
def test_what_is_refused_is_said(set_tool, words, said):
    ran = set_tool("--name", "w", *words)
    assert ran.code == 1
    assert said in ran.err


def test_nothing_builds_on_an_edited_row(set_tool, organization):
    tamper(factories.tool(organization).version, group=["everybody"])
    assert set_tool("--name", "echo", "--title", "E").code == 1


def names(ran):
    return [tool["name"] for tool in ran.json["results"]]


def test_without_an_agent_every_tool_is_listed(typed, organization, organization_arguments):
    tool = factories.tool(organization, "hidden", group=[])
    set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    every = sorted([*factories.BUILTIN_NAMES, "hidden"])
    assert names(typed("list_tools", *organization_arguments, "--json")) == every


def test_each_line_has_the_price_in_tokens_that_the_api_tells(
    typed, organization, organization_arguments, agent
):
    factories.tool(organization, "echo")
    shown = Api(factories.token(agent.service_account)).get("/tools/echo").json()
    heading, *lines = typed("list_tools", *organization_arguments).out.splitlines()
    line = next(line for line in lines if line.startswith("echo "))
    assert "TOKENS" in heading and shown["token_estimate"] > 10
    assert str(shown["token_estimate"]) in line.split()


def test_groups_and_a_state_narrow_the_list(typed, organization, organization_arguments):
    factories.tool(organization, "late", group=["x"], available_in_states=["done"])
    factories.tool(organization, "early", group=["x"])
    assert names(
        typed("list_tools", *organization_arguments, "--group", "x", "--state", "new", "--json")
    ) == ["early"]


@pytest.mark.parametrize("query", ["", "?group=read-only&group=write", "?group=", "?state=done"])
def test_an_agents_list_is_what_the_api_shows_it(
    typed, organization, agent, organization_arguments, query
):
    factories.tool(organization, "late", available_in_states=["done"])
    words = {
        "?group=read-only&group=write": ["--group", "read-only", "write"],
        "?group=": ["--group"],
        "?state=done": ["--state", "done"],
    }.get(query, [])
    ran = typed("list_tools", *organization_arguments, "--agent", agent.slug, *words, "--json")
    shown = Api(factories.token(agent.service_account)).get(f"/tools{query}").json()
    assert ran.json["results"] == shown["results"]
    assert ran.json["warnings"] == shown["warnings"]


def test_an_agent_is_refused_groups_it_was_not_granted(typed, agent, organization_arguments):
    ran = typed(
        "list_tools", *organization_arguments, "--agent", agent.slug, "--group", "*", "--json"
    )
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "group_not_granted"


def test_a_suspended_agent_sees_nothing(typed, organization, organization_arguments):
    quiet = factories.agent(organization)
    quiet.active = False
    quiet.save()
    ran = typed("list_tools", *organization_arguments, "--agent", quiet.slug)
    assert (ran.code, ran.out) == (1, "")
    assert "suspended" in ran.err


def test_an_unknown_group_is_a_warning(typed, organization, organization_arguments):
    agent = factories.agent(organization, groups=["*"])
    ran = typed("list_tools", *organization_arguments, "--agent", agent.slug, "--group", "nope")
    assert ran.code == 0
    assert ran.out == "There is no group nope; it was ignored.\nNo tools.\n"


def test_the_columns_of_the_table_stand_below_each_other(typed, organization_arguments):
    lines = typed("list_tools", *organization_arguments).out.splitlines()
    places = [line.index("builtin") for line in lines[1:]]
    assert set(places) == {lines[0].index("TYPE")}


def test_an_unknown_agent_or_organization_is_refused(typed, organization_arguments):
    assert typed("list_tools", *organization_arguments, "--agent", "nobody").code == 1
    assert "only:" in typed("list_tools", "--organization", "nowhere").err


def test_an_unknown_option_is_bad_usage(typed):
    assert typed("list_tools", "--colour").code == 2


def test_a_parent_lists_what_its_groups_hold(typed, organization, organization_arguments):
    factories.tool(organization, "ask", group=["reading"])
    by = factories.actor(organization)
    save_group(organization=organization, name="knowledge", by=by)
    save_group(organization=organization, name="reading", by=by, parent="knowledge")
    ran = typed("list_tools", *organization_arguments, "--group", "knowledge")
    assert "ask" in ran.out
    assert "knowledge, reading" in ran.out


def test_a_catalog_in_order_is_done(typed, organization_arguments):
    assert (
        typed("lint_tools", *organization_arguments).code,
        typed("lint_tools", *organization_arguments).out,
    ) == (
        0,
        "Nothing to say.\n",
    )


def test_warnings_alone_are_no_failure(typed, organization, organization_arguments):
    catalogs.workflow(organization)
    ran = typed("lint_tools", *organization_arguments)
    assert (ran.code, ran.err) == (0, "")
    assert "WARNING  silent_reset\n  text-completion moves a workflow back" in ran.out
    assert ran.out.endswith("0 errors, 3 warnings, 2 for your information.\n")


def test_an_error_for_these_groups_is_a_failure(typed, organization, organization_arguments):
    catalogs.workflow(organization)
    for tool in Tool.objects.present().filter(organization=organization, type="builtin"):
        set_enabled(
            tool=tool, enabled=False, by=factories.actor(organization)
        )  # some are part of the graph
    ran = typed("lint_tools", *organization_arguments, "--group", "library", "compute", "--json")
    assert ran.code == 1
    first = ran.json["results"][0]
    assert (first["code"], first["state"]) == ("dead_end", "results")


def test_groups_of_agents_count(typed, organization, organization_arguments):
    factories.tool(organization, "lonely", group=["x"])
    factories.agent(organization, groups=["*"])
    assert "seen_by_nobody" not in typed("lint_tools", *organization_arguments).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--organization", "No Slug"], 2),
        (["--group"], 2),
        (["--colour"], 2),
        (["--organization", "nowhere"], 1),
    ],
)
def test_bad_usage_is_two_and_a_refusal_one(typed, db, words, code):
    assert typed("lint_tools", *words).code == code


def failed(ran):
    return {gate["gate"]: gate["code"] for gate in ran.json["gates"] if not gate["passed"]}


@pytest.fixture
def explained(typed, organization, agent):
    def run(tool, *words, of=agent):
        where = ("--agent", of.slug, "--organization", organization.slug)
        return typed("explain_tool", tool, *where, *words)

    return run


def test_every_gate_answers_when_all_say_yes(explained):
    ran = explained("read_file", "--group", "read-only", "--json")
    assert [gate["gate"] for gate in ran.json["gates"]] == [
        *("standing", "granted_groups", "status", "source_open", "group", "group_open", "state"),
        *("object_permission", "required_permissions", "license"),
        *("sandbox_profile", "isolation_license", "isolation", "network"),
        *("load", "rate", "budget", "confirmation"),
    ]
    assert (ran.code, ran.json["available"]) == (0, True)


def test_every_gate_answers_after_one_has_refused(explained, organization):
    tool = factories.tool(
        organization,
        "shut",
        group=["x"],
        available_in_states=["y"],
        required_permissions=["z"],
    )
    set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    assert failed(explained("shut", "--group", "q", "--json")) == {
        "granted_groups": "group_not_granted",
        "status": "tool_disabled",
        "group": "tool_not_in_group",
        "state": "tool_not_in_state",
        "required_permissions": "permission_missing",
    }


@pytest.mark.parametrize(
    ("tools", "active", "gates"),
    [
        (["write_file"], True, {"object_permission": "tool_not_granted"}),
        (["*"], False, {"standing": "agent_suspended"}),
    ],
)
def test_a_tool_that_was_not_granted_and_a_suspended_agent_are_explained_too(
    explained, organization, tools, active, gates
):
    agent = factories.agent(organization, groups=["read-only"], tools=tools)
    agent.active = active
    agent.save()
    ran = explained("read_file", "--group", "read-only", "--json", of=agent)
    assert failed(ran) == gates


def test_the_text_begins_with_the_answer(explained):
    ran = explained("read_file")
    assert ran.code == 0
    assert " may not use read_file (groups: default; state: undefined)." in ran.out
    assert "group                 no      tool_not_in_group" in ran.out


def test_an_unknown_tool_is_refused(explained):
    ran = explained("no_such_tool")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("There is no tool 'no_such_tool' in the organization")


def test_an_agent_must_be_named(typed):
    assert typed("explain_tool", "read_file").code == 2


def test_what_would_change_a_no_is_said(explained, agent):
    ran = explained("read_file")
    assert "What would change it:\n  group: Request the group read-only." in ran.out
    assert f"Leave out the group admin, or grant {agent.slug} it." in (
        explained("read_file", "--group", "admin").out
    )


def test_the_document_has_a_remedy_for_every_no(explained):
    gates = explained("read_file", "--group", "admin", "--state", "x", "--json").json["gates"]
    assert {bool(gate["remedy"]) for gate in gates if not gate["passed"]} == {True}
    assert {gate["remedy"] for gate in gates if gate["passed"]} == {""}


def test_a_call_that_waits_for_a_person_is_reported_as_such(explained, organization):
    factories.tool(organization, "grave", requires_confirmation=True)
    ran = explained("grave", "--json")
    assert (ran.json["available"], ran.json["refused_by"], ran.json["held"]) == (True, None, True)
    assert " may, once a person agrees, use grave " in explained("grave").out
