import pytest

from tests import factories
from tests.tools.database import tamper
from tools.catalog.actions import find_tool


@pytest.fixture
def put(typed, organization):
    return lambda *words: typed("set_tool", *words, "--organization", organization.slug)


@pytest.fixture
def stored(organization):
    return lambda name="w": find_tool(organization, name).version.definition


NEW = ("--name", "w", "--type", "mcp-tool", "--description", "Weather.", "--mcp-tool", "get")


def test_a_tool_is_created_with_arguments_in_their_order(put, stored):
    ran = put(*NEW, "--argument", "city:string:Where: the city", "--argument", "days:INTEGER:How")
    assert (ran.code, ran.err) == (0, "")
    found = [(one["name"], one["type"], one["description"]) for one in stored()["parameters"]]
    assert found == [("city", "String", "Where: the city"), ("days", "Integer", "How")]
    assert stored()["argument_validation"] == "off"
    assert stored()["implementation"] == {"server": "get", "tool": "get"}


def test_what_is_not_given_stays(put, stored):
    put(*NEW, "--argument", "city:string:Where", "--group", "a", "b", "--state", "done")
    ran = put("--name", "w", "--available-in", "start", "--title", "W", "--json")
    assert ran.json["items"][0]["result"] == "updated"
    definition = stored()
    assert (definition["group"], definition["state"]) == (["a", "b"], "done")
    assert definition["available_in_states"] == ["start"]
    assert len(definition["parameters"]) == 1
    assert put("--name", "w", "--title", "W", "--json").json["items"][0]["result"] == "unchanged"


def test_a_required_argument_makes_the_tool_check_them(put, stored):
    put(*NEW, "--argument", "city:string:Where")
    assert put("--name", "w", "--argument", "city:string:Where", "--required", "city").code == 0
    assert stored()["argument_validation"] == "enforce"
    assert stored()["input_schema"]["required"] == ["city"]
    assert stored()["input_schema"]["additionalProperties"] is False


def test_lists_and_the_state_can_be_emptied(put, stored):
    put(*NEW, "--group", "a", "--state", "done")
    assert put("--name", "w", "--group", "--state", "").code == 0
    assert (stored()["group"], stored()["state"]) == ([], None)


def test_a_part_of_the_implementation_is_changed_alone(put, stored):
    put("--name", "w", "--type", "knowledge-query", "--description", "d", "--collection", "c")
    put("--name", "w", "--limit", "5")
    assert stored()["implementation"] == {"collection": "c", "limit": 5}


def test_code_is_given_as_json(put, stored):
    made = '{"source": "def main(parameters):\\n    return 1"}'
    ran = put("--name", "w2", "--type", "code", "--description", "d", "--implementation", made)
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
def test_what_the_words_show_to_be_wrong_is_bad_usage(put, words):
    assert put("--name", "w", *words).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "mcp-tool"), "description: is required"),
        (("--type", "mcp-tool", "--template", "x"), "template: is nothing a mcp-tool is made of"),
        (("--type", "tool-service", "--service", "nowhere"), "names no tool service"),
        (("--type", "mcp-tool", "--argument", "a:string:d", "--required", "b"), "no argument: b"),
    ],
)
def test_what_is_refused_is_said(put, words, said):
    ran = put("--name", "w", *words)
    assert ran.code == 1
    assert said in ran.err


def test_nothing_builds_on_an_edited_row(put, organization):
    tamper(factories.tool(organization).version, group=["everybody"])
    assert put("--name", "echo", "--title", "E").code == 1
