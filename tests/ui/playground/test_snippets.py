"""A call as text for a shell, for Python and for MCP says what the call says, whatever is in it."""

import ast
import json
import shlex
import shutil
import subprocess
from typing import Any

import pytest

from tools.ui.playground.snippets import code_snippets, curl_snippet, mcp_snippet, python_snippet

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
