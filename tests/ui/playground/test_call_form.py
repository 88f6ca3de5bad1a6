"""The form that a schema becomes, without a browser or a database."""

import ast
import json
import shlex
import shutil
import subprocess
from typing import Any

import pytest

from tools.definitions.tool import read_definition
from tools.ui.playground.parameter_form import ParameterForm
from tools.ui.playground.snippets import code_snippets, curl_snippet, mcp_snippet, python_snippet


def form(*parameters: dict[str, Any], **given: str) -> ParameterForm:
    described = [{"description": "x", **parameter} for parameter in parameters]
    source = {"source": "def main(p): return p"}
    made = ParameterForm(
        read_definition(
            {
                "name": "t",
                "type": "code",
                "description": "d",
                "parameters": described,
                "implementation": source,
            }
        )
    )
    made.fill({f"p.{name}": value for name, value in given.items()})
    return made


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("String", "a\r\nb", "a\nb"),
        ("Integer", " 7 ", 7),
        ("Number", "1.5", 1.5),
        ("Number", "2", 2),
        ("Boolean", "true", True),
        ("Array", '["a"]', ["a"]),
        ("Object", '{"a": 1}', {"a": 1}),
    ],
)
def test_what_was_typed_becomes_a_value(kind: str, text: str, value: Any) -> None:
    assert form({"name": "x", "type": kind}, x=text).parameters() == {"x": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("Integer", "1.5"), ("Integer", "9" * 40), ("Number", "much"), ("Array", "[1,"),
     ("Object", '{"a": 1, "a": 2}')],
)  # fmt: skip
def test_an_unreadable_value_is_an_error_of_its_field(kind: str, text: str) -> None:
    filled = form({"name": "x", "type": kind}, x=text)
    assert filled.parameters() == {}
    assert filled["p.x"].errors


def test_an_empty_field_is_left_out_unless_it_is_a_required_text() -> None:
    required = {"name": "must", "type": "String", "required": True}
    filled = form({"name": "x", "type": "String"}, {"name": "n", "type": "Integer"}, required)
    assert filled.parameters() == {"must": ""}


def test_defaults_are_filled_in_and_choices_offered() -> None:
    made = ParameterForm(
        read_definition(
            {
                "name": "t",
                "type": "code",
                "description": "d",
                "implementation": {"source": "def main(p): return p"},
                "parameters": [
                    {"name": "n", "type": "Integer", "description": "d", "default": 3},
                    {"name": "e", "type": "String", "description": "d", "enum": ["a", "b"]},
                ],
            }
        )
    )
    number, choice = made["p.n"], made["p.e"]
    assert (number.field.control, number.value()) == ("number", "3")
    assert choice.field.options == [("", "– leave out –"), ('"a"', "a"), ('"b"', "b")]


def test_errors_of_the_pipeline_are_set_at_their_fields() -> None:
    filled = form({"name": "a", "type": "Object", "required": True}, {"name": "b", "type": "Array"})
    left = filled.place(
        [
            {"place": "/", "message": '"a" is a required property'},
            {"place": "/b/0", "message": "1 is not of type string"},
            {"place": "/elsewhere", "message": "odd"},
        ]
    )
    assert filled["p.a"].errors == ["This is required."]
    assert filled["p.b"].errors == ["/b/0: 1 is not of type string"]
    assert [flaw["place"] for flaw in left] == ["/elsewhere"]


def test_an_open_schema_takes_further_parameters() -> None:
    schema = {"type": "object", "properties": {"a": True}}
    made = ParameterForm({"input_schema": schema, "parameters": []})
    made.fill({"p.a": "1", "p.rest": '{"b": 2}'})
    assert made.parameters() == {"a": 1, "b": 2}
    made.fill({"p.rest": "[]"})
    assert made.parameters() == {} and made["p.rest"].errors


ADDRESS = "https://crib.example/api/v1/tools/echo/execute"
TEXTS = [
    "plain",
    'it\'s "quoted"',
    "`id` $(id) $HOME ${PATH} \\ \\n !! %s {braces} {{twice}}",
    "one\ntwo\r\nthree\ttabs",
    "Grüße, 日本語, 🦊",
    "zero\u200bwidth, turned \u202eround\u2069, \u2028 and \x1b[31m",
    "'; rm -rf / #",
    "'''\"\"\"",
    "x" * 500 + " " + "y " * 100,
    "@/etc/passwd",
]


def body_of(text: Any) -> dict[str, Any]:
    return {
        "parameters": {"text": text, text if isinstance(text, str) else "n": [1.5, None, True]},
        "group": ["default", "it's"],
        "state": "initial",
    }


@pytest.mark.parametrize("text", TEXTS)
def test_a_shell_sends_what_the_call_says(text: str) -> None:
    command = curl_snippet(ADDRESS, body_of(text))
    words = shlex.split(command.replace(" \\\n", " "))
    assert words[:2] == ["curl", ADDRESS]
    assert json.loads(words[words.index("--data-raw") + 1]) == body_of(text)


@pytest.mark.parametrize("text", TEXTS)
def test_bash_itself_reads_it_so(text: str) -> None:
    bash = shutil.which("bash")
    assert bash
    script = "curl() { printf '%s\\0' \"$@\"; }\n" + curl_snippet(ADDRESS, body_of(text))
    ran = subprocess.run(
        [bash, "-c", script], capture_output=True, check=True, env={"TOOLCRIB_TOKEN": "tcr_x"}
    )
    arguments = ran.stdout.decode().split("\0")
    assert json.loads(arguments[arguments.index("--data-raw") + 1]) == body_of(text)
    assert "Authorization: Bearer tcr_x" in arguments


@pytest.mark.parametrize("text", TEXTS)
def test_python_sends_what_the_call_says(text: str) -> None:
    program = ast.parse(python_snippet(ADDRESS, body_of(text)))
    assigned = [one for one in program.body if isinstance(one, ast.Assign)]
    assert ast.literal_eval(assigned[0].value) == body_of(text)


@pytest.mark.parametrize("text", TEXTS)
def test_mcp_says_it_as_json_rpc(text: str) -> None:
    said = json.loads(mcp_snippet("echo", {"text": text}))
    assert said["method"] == "tools/call"
    assert said["params"] == {"name": "echo", "arguments": {"text": text}}


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_hides_in_what_is_copied(text: str) -> None:
    made = code_snippets(
        ADDRESS, tool="echo", parameters={"t": text}, groups=["a"], state="initial"
    )
    for one in made:
        assert [sign for sign in one.text if not sign.isprintable() and sign != "\n"] == []


def test_a_token_is_named_and_never_written() -> None:
    assert '"Authorization: Bearer $TOOLCRIB_TOKEN"' in curl_snippet(ADDRESS, {})
    assert 'os.environ["TOOLCRIB_TOKEN"]' in python_snippet(ADDRESS, {})
