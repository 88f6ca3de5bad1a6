"""Code snippets for a call: for a shell, for Python, and as an MCP message.

They contain no token: each reads it from the environment of the user.
"""

import json
import shlex
from dataclasses import dataclass
from typing import Any

TOKEN_VARIABLE = "TOOLCRIB_TOKEN"  # noqa: S105 - the name of a variable
_PYTHON = """\
import json
import os
import urllib.error
import urllib.request

body = {body}
request = urllib.request.Request(
    {address},
    data=json.dumps(body).encode(),
    headers={{
        "Authorization": "Bearer " + os.environ["{token}"],
        "Content-Type": "application/json",
    }},
)
try:
    with urllib.request.urlopen(request) as response:
        print(response.status, json.load(response))
except urllib.error.HTTPError as refusal:
    print(refusal.code, json.load(refusal))
"""


@dataclass(frozen=True)
class Snippet:
    key: str
    title: str
    about: str
    text: str


def code_snippets(
    address: str, *, tool: str, parameters: dict[str, Any], groups: list[str], state: str
) -> list[Snippet]:
    """`address` is where the tool is called over REST."""
    body = {"parameters": parameters, "group": groups, "state": state}
    token = f"It reads the token from the variable {TOKEN_VARIABLE}."
    return [
        Snippet("curl", "curl", token, curl_snippet(address, body)),
        Snippet("python", "Python", f"Nothing to install. {token}", python_snippet(address, body)),
        Snippet(
            "mcp",
            "MCP",
            "The message of a client. It names no groups and no state: the connection has them.",
            mcp_snippet(tool, parameters),
        ),
    ]


def curl_snippet(address: str, body: dict[str, Any]) -> str:
    lines = [
        f"curl {shlex.quote(address)}",
        f'--header "Authorization: Bearer ${TOKEN_VARIABLE}"',
        "--header 'Content-Type: application/json'",
        f"--data-raw {shlex.quote(_json_text(body))}",
    ]
    return " \\\n  ".join(lines)


def python_snippet(address: str, body: dict[str, Any]) -> str:
    return _PYTHON.format(body=_python_literal(body), address=ascii(address), token=TOKEN_VARIABLE)


def mcp_snippet(tool: str, parameters: dict[str, Any]) -> str:
    """The JSON-RPC message of the MCP specification."""
    call = {"name": tool, "arguments": parameters}
    return _json_text({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, indent=2)


def _json_text(value: Any, indent: int | None = None) -> str:
    """JSON with letters unescaped, and with invisible characters escaped, so that none is hidden
    in a shell."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _python_literal(value: Any, margin: str = "") -> str:
    """A Python literal: `repr` escapes invisible characters."""
    if not value or not isinstance(value, dict | list):
        return repr(value)
    within = margin + "    "
    if isinstance(value, dict):
        lines = [f"{name!r}: {_python_literal(item, within)}" for name, item in value.items()]
    else:
        lines = [_python_literal(item, within) for item in value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{''.join(f'{within}{line},\n' for line in lines)}{margin}{closed}"
