"""Valid and invalid definitions: one error for each invalid field, in every dialect (ruling 14)."""

import copy
import json

import pytest

from tests.factories import definition
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition
from tools.errors import InvalidDefinition

# Specification S3, section 6, literally.
READ_FILE = json.loads("""
{
  "name": "read_file",
  "description": "Read the contents of a file",
  "category": "FileSystem",
  "parameters": [
    {"name": "path", "description": "The file path to read", "type": "String", "required": true},
    {"name": "encoding", "description": "File encoding (default: utf-8)", "type": "String",
     "required": false, "default": "utf-8", "enum": ["utf-8", "ascii", "utf-16"]}
  ],
  "outputSchema": {
    "type": "object",
    "properties": {
      "content": {"type": "string"}, "size": {"type": "integer"}, "encoding": {"type": "string"}
    }
  },
  "constraints": {"maxExecutionTime": "PT30S", "maxOutputSize": 10485760,
                  "allowSideEffects": false, "requiredIsolation": "Standard"},
  "requiredPermissions": ["tool.filesystem.read"],
  "requiresConfirmation": false,
  "version": "1.0.0",
  "metadata": {"riskLevel": "low", "category": "file_operations"}
}
""")


def flaws(raw):
    with pytest.raises(InvalidDefinition) as caught:
        read_definition(raw)
    return {flaw["field"]: flaw["message"] for flaw in caught.value.details["errors"]}


def parameter(**fields):
    return {"name": "p", "type": "String", "description": "d", **fields}


RIGHT = [
    {},
    {"title": "Echo"},
    {"title": None},
    {"description": "Zeilen\nund Tabulatoren\t – und Umlaute äöü 漢字 🙂"},
    {"category": "Knowledge"},
    {"category": "computation"},
    {"parameters": []},
    {"parameters": None},
    {"parameters": [parameter(type="Integer", default=3, schema={"minimum": 1})]},
    {"parameters": [parameter(enum=["a", "b"], default="b")]},
    {"parameters": [parameter(type="Array", schema={"items": {"type": "string"}})]},
    {"parameters": [parameter(type="Object", default={})]},
    {"parameters": [parameter(type="Boolean", default=False)]},
    {"parameters": [], "input_schema": {"type": "object", "properties": {"a": {"minimum": 1}}}},
    {"output_schema": {"type": "object", "required": ["a"]}},
    {"constraints": {}},
    {"constraints": {"max_execution_time": "PT1M30S"}},
    {"constraints": {"max_execution_time": "PT0.5S", "max_output_size": 1}},
    {"constraints": {"required_isolation": "Restricted"}},
    {"constraints": {"sandbox_profile": "one.Profile_2-x"}},
    {
        "implementation": {
            "language": "javascript",
            "source": "export function main(p) { return 1 }",
        }
    },
    {"required_permissions": ["tool.network"]},
    {"requires_confirmation": True},
    {"group": None},
    {"group": []},
    {"group": ["a", "A", " a"]},
    {"group": ["*"]},
    {"state": "analysis"},
    {"available_in_states": []},
    {"available_in_states": ["*"]},
    {"rate_limit_per_minute": 1},
    {"cost_per_invocation": "0.000001"},
    {"cost_per_invocation": 2},
    {"delivery": "pure", "cache_ttl": "PT5M"},
    {"argument_validation": "off"},
    {"capabilities": ["read"]},
    {
        "implementation": {
            "language": "python",
            "source": "def f(p):\n  return 1",
            "entry_point": "f",
        }
    },
    {"metadata": {"anything": [1, 2.5, None, {"deep": True}]}},
    {"version": "2.0.0-rc.1+build"},
    {"name": "a"},
    {"name": "A-b_c.9" + "x" * 121},
]
WRONG = [
    ({"name": ""}, "name"),
    ({"name": None}, "name"),
    ({"name": 5}, "name"),
    ({"name": "with space"}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": "a" * 129}, "name"),
    ({"name": ".."}, "name"),
    ({"name": "explain"}, "name"),
    ({"name": "naïve"}, "name"),
    ({"name": "a\u200b"}, "name"),
    ({"type": "magic"}, "type"),
    ({"type": None}, "type"),
    ({"type": ["code"]}, "type"),
    ({"title": 1}, "title"),
    ({"title": "x" * 201}, "title"),
    ({"description": ""}, "description"),
    ({"description": "   "}, "description"),
    ({"description": None}, "description"),
    ({"description": "x" * 10_001}, "description"),
    ({"description": "hidden \u202e order"}, "description"),
    ({"description": "tag \U000e0041"}, "description"),
    ({"description": "bell \x07"}, "description"),
    ({"description": "c1 \x85"}, "description"),
    ({"category": "filesystem"}, "category"),
    ({"parameters": {}}, "parameters"),
    ({"parameters": ["x"]}, "parameters[0]"),
    ({"parameters": [parameter(name="")]}, "parameters[0].name"),
    ({"parameters": [parameter(name="1a")]}, "parameters[0].name"),
    ({"parameters": [parameter(), parameter()]}, "parameters[1].name"),
    ({"parameters": [parameter(type="string")]}, "parameters[0].type"),
    ({"parameters": [parameter(description=None)]}, "parameters[0].description"),
    ({"parameters": [parameter(required="yes")]}, "parameters[0].required"),
    ({"parameters": [parameter(enum=[])]}, "parameters[0].enum"),
    ({"parameters": [parameter(enum="a")]}, "parameters[0].enum"),
    ({"parameters": [parameter(default=5)]}, "parameters[0].default"),
    ({"parameters": [parameter(enum=["a"], default="b")]}, "parameters[0].default"),
    ({"parameters": [parameter(schema="x")]}, "parameters[0].schema"),
    ({"parameters": [parameter(schema={"type": "integer"})]}, "parameters[0].schema"),
    ({"parameters": [parameter(requred=True)]}, "parameters[0].requred"),
    ({"parameters": [parameter(name=f"p{i}") for i in range(201)]}, "parameters"),
    ({"input_schema": {"type": "object"}}, "input_schema"),
    ({"parameters": [], "input_schema": {"type": "array"}}, "input_schema"),
    ({"parameters": [], "input_schema": []}, "input_schema"),
    ({"parameters": [], "input_schema": {"properties": []}}, "input_schema"),
    ({"output_schema": {"type": "nonsense"}}, "output_schema"),
    ({"output_schema": 5}, "output_schema"),
    ({"constraints": []}, "constraints"),
    ({"constraints": {"max_execution_time": "30"}}, "constraints.max_execution_time"),
    ({"constraints": {"max_execution_time": 30}}, "constraints.max_execution_time"),
    ({"constraints": {"max_execution_time": "PT0S"}}, "constraints.max_execution_time"),
    ({"constraints": {"max_execution_time": "PT2H"}}, "constraints.max_execution_time"),
    ({"constraints": {"max_output_size": 0}}, "constraints.max_output_size"),
    ({"constraints": {"max_output_size": True}}, "constraints.max_output_size"),
    ({"constraints": {"max_output_size": 1.5}}, "constraints.max_output_size"),
    ({"constraints": {"allow_side_effects": "no"}}, "constraints.allow_side_effects"),
    ({"constraints": {"required_isolation": "none"}}, "constraints.required_isolation"),
    ({"constraints": {"sandbox_profile": ""}}, "constraints.sandbox_profile"),
    ({"constraints": {"sandbox_profile": "a/b"}}, "constraints.sandbox_profile"),
    ({"constraints": {"sandbox_profile": ".."}}, "constraints.sandbox_profile"),
    ({"constraints": {"sandbox_profile": "x" * 64}}, "constraints.sandbox_profile"),
    ({"constraints": {"sandbox_profile": ["mine"]}}, "constraints.sandbox_profile"),
    ({"constraints": {"max_memory": 1}}, "constraints.max_memory"),
    ({"required_permissions": "all"}, "required_permissions"),
    ({"required_permissions": [1]}, "required_permissions"),
    ({"requires_confirmation": 1}, "requires_confirmation"),
    ({"group": "default"}, "group"),
    ({"group": [""]}, "group"),
    ({"group": ["a", "a"]}, "group"),
    ({"group": [None]}, "group"),
    ({"group": ["a\u200d"]}, "group"),
    ({"group": ["e\u0301"]}, "group"),
    ({"group": ["x" * 101]}, "group"),
    ({"group": [str(i) for i in range(101)]}, "group"),
    ({"state": ""}, "state"),
    ({"state": ["a"]}, "state"),
    ({"available_in_states": "analysis"}, "available_in_states"),
    ({"rate_limit_per_minute": 0}, "rate_limit_per_minute"),
    ({"cost_per_invocation": "free"}, "cost_per_invocation"),
    *[
        ({"cost_per_invocation": text}, "cost_per_invocation")
        for text in (
            *("1_000", "\uff11", " 1", "1 ", "1\n", "1e3", "NaN", "Infinity", "-0", "+1", "0,5"),
            *(".5", "5.", "0x1", ""),
        )
    ],
    ({"cost_per_cache_hit": "1_0"}, "cost_per_cache_hit"),
    ({"cost_per_invocation": -1}, "cost_per_invocation"),
    ({"cost_per_invocation": "NaN"}, "cost_per_invocation"),
    ({"cost_per_invocation": "sNaN"}, "cost_per_invocation"),
    ({"cost_per_invocation": "1e-400"}, "cost_per_invocation"),
    ({"cost_per_invocation": "0.0000001"}, "cost_per_invocation"),
    ({"cost_per_invocation": True}, "cost_per_invocation"),
    ({"cache_ttl": "PT5M"}, "cache_ttl"),
    ({"delivery": "pure", "cache_ttl": "P31D"}, "cache_ttl"),
    ({"delivery": "pure", "constraints": {"allow_side_effects": True}}, "delivery"),
    ({"delivery": "maybe"}, "delivery"),
    ({"argument_validation": "strict"}, "argument_validation"),
    ({"capabilities": [["read"]]}, "capabilities"),
    ({"implementation": None}, "implementation"),
    ({"implementation": {}}, "implementation.source"),
    ({"implementation": {"source": "def main(p: return"}}, "implementation.source"),
    ({"implementation": {"source": "x = 1"}}, "implementation.source"),
    ({"implementation": {"source": "#" * 300_000}}, "implementation.source"),
    ({"implementation": {"source": "def main(p): pass", "language": "bash"}},
    "implementation.language"),
    ({"implementation": {"source": "def main(p): pass", "language": "JavaScript"}},
    "implementation.language"),
    ({"implementation": {"source": " ", "language": "javascript"}}, "implementation.source"),
    ({"implementation": {"source": "//" * 200_000, "language": "javascript"}},
    "implementation.source"),
    ({"implementation": {"source": "x", "language": "javascript", "entry_point": "run"}},
    "implementation.entry_point"),
    ({"implementation": {"source": "def main(p): pass", "command": "id"}},
    "implementation.command"),
    ({"metadata": []}, "metadata"),
    ({"enabled": "yes"}, "enabled"),
    ({"version": 1}, "version"),
    ({"version": "a/b"}, "version"),
    ({"version": "9" * 33}, "version"),
    ({"unknown": 1}, "unknown"),
]  # fmt: skip
# An unknown key that looks like a group or a state would make the tool visible everywhere.
NEAR_MISSES = ["groups", "tool_group", "availableStates", "available_states", "states", "Group",
               "group ", "applicable-state", "availableInState", "toolGroups"]  # fmt: skip
SPELLINGS = [
    ("available_in_states", "available_in_states"),
    ("availableInStates", "available_in_states"),
    ("available-in-states", "available_in_states"),
    ("applicable-states", "available_in_states"),
    ("applicable_states", "available_in_states"),
    ("applicableStates", "available_in_states"),
    ("requiredPermissions", "required_permissions"),
    ("required-permissions", "required_permissions"),
]


@pytest.mark.parametrize("fields", RIGHT, ids=lambda fields: json.dumps(fields)[:60])
def test_a_right_definition_is_read(fields):
    read = read_definition(definition(**fields))
    assert read_definition(copy.deepcopy(read)) == read


@pytest.mark.parametrize(("fields", "place"), WRONG, ids=lambda part: json.dumps(part)[:60])
def test_a_wrong_field_is_named_alone(fields, place):
    assert list(flaws(definition(**fields))) == [place]


def test_every_wrong_field_is_named_at_once():
    wrong = definition(name="", group="x", cache_ttl="PT5M", constraints={"max_output_size": 0})
    assert set(flaws(wrong)) == {"name", "group", "cache_ttl", "constraints.max_output_size"}


@pytest.mark.parametrize("raw", [None, [], "x", 5, True])
def test_what_is_no_object_is_no_definition(raw):
    with pytest.raises(InvalidDefinition):
        read_definition(raw)


@pytest.mark.parametrize("key", NEAR_MISSES)
def test_a_key_that_almost_names_groups_or_states_is_an_error(key):
    assert len(flaws(definition(**{key: ["admin"]}))) == 1


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS)
def test_every_dialect_is_read_as_the_same_field(spelling, name):
    assert read_definition(definition(**{spelling: ["a"]}))[name] == ["a"]


def test_two_spellings_of_one_key_are_an_error():
    both = definition(available_in_states=["a"], availableInStates=["b"])
    assert list(flaws(both)) == ["available_in_states"]


def test_the_example_of_the_specification_is_read_as_it_stands():
    read = read_definition(READ_FILE | {"type": "builtin"})
    assert read["constraints"]["max_execution_time"] == "PT30S"
    assert read["required_permissions"] == ["tool.filesystem.read"]
    assert read["parameters"][1]["enum"] == ["utf-8", "ascii", "utf-16"]
    assert ToolDefinition(read).defaults == {"encoding": "utf-8"}


def test_the_example_of_the_specification_lacks_only_its_type():
    assert set(flaws(READ_FILE)) == {"type", "implementation"}


def test_the_categories_of_shared_tool_access_are_read():
    found = [
        read_definition(definition(category=name))["category"]
        for name in ("data_access", "computation", "external_api", "file_system")
    ]
    assert found == ["Database", "CodeExecution", "ExternalApi", "FileSystem"]


def test_absent_null_and_empty_groups_stay_three_things():
    absent, null = definition(), definition(group=None)
    assert read_definition(absent)["group"] is read_definition(null)["group"] is None
    assert read_definition(definition(group=[]))["group"] == []


def test_a_definition_without_a_profile_says_nothing_of_one():
    constraints = read_definition(definition(constraints={"sandbox_profile": None}))["constraints"]
    assert "sandbox_profile" not in constraints
    assert ToolDefinition(read_definition(definition())).sandbox_profile is None


def test_the_digest_of_a_definition_is_what_it_always_was():
    """Signatures of versions that were written before profiles existed must stay valid."""
    assert definition_digest(read_definition(definition())) == (
        "sha256:24b21a282f51ffea83a9ed4fd089a267b17fb303a5b5d5872fcde6628fc295ed"
    )


def test_a_javascript_module_is_not_read_as_python():
    source = "export const main = async (p) => ({ text: `${p.text}` })"
    read = read_definition(definition(implementation={"language": "javascript", "source": source}))
    assert read["implementation"] == {
        "language": "javascript", "source": source, "entry_point": "main",
    }  # fmt: skip


def test_a_source_with_a_nul_is_refused_in_every_language():
    for language in ("python", "javascript"):
        with pytest.raises(InvalidDefinition):
            read_definition(definition(implementation={"language": language, "source": "a\0b"}))


def test_a_definition_may_not_be_enormous():
    with pytest.raises(InvalidDefinition, match="larger"):
        read_definition(definition(metadata={"x": "y" * 1_100_000}))


@pytest.mark.parametrize(
    "value", [float("nan"), 10**300, "\x00", "\ud800", {1, 2}], ids=lambda one: repr(one)[:20]
)
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(InvalidDefinition):
        read_definition(definition(metadata={"x": value}))


def test_a_definition_nested_without_end_is_refused():
    deep: dict = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(InvalidDefinition):
        read_definition(definition(output_schema=deep))


def test_the_digest_does_not_depend_on_the_order_of_keys():
    one = definition(group=["a"], metadata={"x": 1, "y": 2})
    other = dict(reversed([*one.items()])) | {"metadata": {"y": 2, "x": 1}}
    assert definition_digest(read_definition(one)) == definition_digest(read_definition(other))


def test_the_digest_does_not_depend_on_the_dialect():
    snake = definition(requires_confirmation=True, constraints={"max_execution_time": "PT90S"})
    camel = definition(requiresConfirmation=True, constraints={"maxExecutionTime": "PT1M30S"})
    assert definition_digest(read_definition(snake)) == definition_digest(read_definition(camel))


def test_the_digest_changes_with_the_definition():
    assert definition_digest(read_definition(definition())) != definition_digest(
        read_definition(definition(group=[]))
    )
