"""Valid bodies with one invalid value never cause a 500."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.properties import examples
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.shapes import is_json
from tools.catalog.signatures.drift import note_upstream
from tools.models import McpServer

ODD: list[Any] = [
    None, True, 0, -1, 2**53, 1.5, 1e300, "", "x", " ", "*", "a\u202eb", "\u0000", "x" * 5_000,
    "../..", "{{ 9 }}", "${x}", "{x}", "1.0.0-", "999999999999.0.0", "env:HOME", "http://[",
    "https://\u00e9.example:0/", [], [None], [[]], ["x", "x"], [{}], [True], {}, {"": ""},
    {"$ref": "#"}, {"a": {"b": [None]}}, {"name": None}, {"type": ["x", {}]},
]  # fmt: skip
BESIDE = ["x", "", "$ref", "group", "mcp-tool", "implementation"]
PARAMETER = {"name": "text", "type": "String", "description": "d", "required": True, "enum": ["a"]}
SCHEMA = {
    "type": "object", "properties": {"text": {"type": "string", "enum": ["a"], "maxLength": 3}},
    "required": ["text"], "additionalProperties": False,
}  # fmt: skip
WHOLE = {
    "name": "odd", "title": "t", "description": "d", "category": "ExternalApi", "group": ["a"],
    "state": "s", "available_in_states": ["s"], "required_permissions": ["p"],
    "requires_confirmation": True, "rate_limit_per_minute": 5, "cost_per_invocation": "0.5",
    "cost_per_cache_hit": "0.1", "cache_ttl": "PT5S", "delivery": "idempotent", "version": "1.0.0",
    "transform": {"select": "$.a[*]", "redact": ["$..b"], "observation": "{{ output }}"},
    "argument_validation": "enforce", "capabilities": ["c"], "metadata": {"a": [1]},
    "enabled": True, "critical": False, "max_concurrency": 3, "change_note": "n",
    "constraints": {"max_execution_time": "PT5S", "max_output_size": 5, "allow_side_effects": True,
                    "required_isolation": "Standard"},
}  # fmt: skip
HTTP = {
    "method": "POST", "url": "https://a.example/{text}", "headers": {"X-A": "{text}"},
    "query": {"q": {"value": "{text}", "separator": ","}}, "cookies": {"c": "{text}"},
    "body": {"a": ["{text}"]}, "select": "/a", "credential": "c",
}  # fmt: skip
IMPLEMENTATIONS = {
    "code": {"source": "def main(p):\n    return 1\n", "language": "python"},
    "http": HTTP,
    "prompt": {"template": "{{ text }}", "system": "s", "model": "m", "max_tokens": 5},
    "mcp-tool": {"server": "far", "tool": "t"},
    "tool-service": {"service": "rag", "config": {"collection": "c"}},
    "text-completion": {"system": "s", "model": "m", "max_prompt_bytes": 5},
    "knowledge-query": {"collection": "c", "limit": 5},
    "structured-query": {"collection": "c", "limit": 5},
    "graph-update": {"collection": "c", "limit": 5},
}
SERVICE = {
    "id": "rag", "request-queue": "non-persistent://tg/request/rag", "response-queue": "r",
    "config-params": [{"name": "collection", "required": True}],
}  # fmt: skip
OPENAPI = {
    "openapi": "3.0.1", "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://{h}.example", "variables": {"h": {"default": "a"}}}],
    "security": [{"key": []}],
    "paths": {"/a/{b}": {
        "parameters": [{"in": "path", "name": "b", "required": True, "schema": {"type": "string"}}],
        "post": {
            "operationId": "o", "summary": "s", "description": "d", "deprecated": False,
            "parameters": [{"in": "query", "name": "q", "style": "form", "explode": False,
                            "schema": {"type": "array", "items": {"type": "string"}}}],
            "requestBody": {"required": True, "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/S"}}}},
            "responses": {"200": {"description": "d", "content": {"application/json": {
                "schema": {"type": "object", "nullable": True}}}}},
        },
    }},
    "components": {
        "schemas": {"S": {"type": "object", "properties": {"a": {"type": "string",
                          "readOnly": True, "minimum": 1, "exclusiveMinimum": True}}}},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
}  # fmt: skip
ITEMS = [
    {"key": "tool-service/rag", "value": SERVICE},
    {"key": "prompt/p", "value": {"prompt": "{{ text }}"}},
    {"key": "tool/a", "value": {"type": "prompt", "description": "d", "template": "p",
                                "arguments": [PARAMETER], "applicable-states": ["s"]}},
    {"key": "tool/b", "value": {"type": "tool-service", "description": "d", "service": "rag",
                                "collection": "c"}},
    {"key": "mcp/m", "value": {"url": "https://m.example/mcp", "remote-name": "r"}},
    {"key": "tool/c", "value": {"type": "mcp-tool", "description": "d", "mcp-tool": "m"}},
]  # fmt: skip
LISTED = {
    "tools": [{"name": "a", "title": "t", "description": "d", "inputSchema": SCHEMA,
               "outputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]
}  # fmt: skip
MCP = {
    "name": "far", "url": "https://m.example/mcp", "transport": "sse", "headers": {"X-A": "v"},
    "group": ["a"],
}  # fmt: skip
DESKTOP = {
    "mcpServers": {
        "d": {"command": "x", "args": ["a"], "env": {"A": "b"}},
        "u": {"url": "https://u"},
    }
}


def tools() -> Iterator[Any]:
    for kind, implementation in IMPLEMENTATIONS.items():
        name = "triples" if kind == "graph-update" else "question" if "-" in kind else "text"
        shape = {"parameters": [PARAMETER | {"name": name}]}
        yield WHOLE | shape | {"type": kind, "implementation": implementation}
    yield WHOLE | {
        "type": "code", "implementation": IMPLEMENTATIONS["code"], "input_schema": SCHEMA,
        "output_schema": SCHEMA,
    }  # fmt: skip


BODIES: list[tuple[str, str, Any]] = [
    *(("POST", "tools", one) for one in tools()),
    *(("PUT", "tools/echo", one | {"name": "echo"}) for one in tools()),
    ("PATCH", "tools/echo", WHOLE | {"name": "echo", "parameters": [PARAMETER]}),
    ("POST", "tools/lint", next(tools())),
    ("POST", "tools/import", {"items": ITEMS, "group": ["g"], "server": "s", "atomic": False}),
    ("POST", "tools/import", {"document": OPENAPI, "source": "openapi", "pick": ["o"]}),
    ("POST", "tools/import", {"document": LISTED, "server": "far",
                              "pick": [{"name": "a", "as": "b", "arguments": [PARAMETER]}]}),
    ("POST", "tools/import", {"document": DESKTOP, "dry_run": True}),
    ("POST", "tools/import", {"document": json.dumps(ITEMS), "source": "items"}),
    ("POST", "tool-services", SERVICE),
    ("PATCH", "tool-services/rag", SERVICE),
    ("POST", "tool-services/rag/approve", {"digest": "sha256:0"}),
    ("POST", "mcp-servers", MCP),
    ("PATCH", "mcp-servers/far", MCP),
    ("POST", "mcp-servers/far/import", {"tools": [{"tool": "t", "name": "n", "arguments": []}],
                                        "dry_run": True}),
    ("PUT", "mcp-servers/far/credentials/organization:HERE", {"headers": {"X-A": "v"}}),
    ("PATCH", "agents/helper", {"pins": {"echo": "1.0.0"}}),
    ("POST", "sessions", {"pins": {"echo": "1.0.0"}, "group": ["default"], "state": "s"}),
    ("POST", "tools/changes/CHANGE/approve", {"digest": "sha256:0", "reason": "r"}),
    ("POST", "tools/changes/CHANGE/reject", {"digest": "sha256:0", "reason": "r"}),
    ("POST", "signing-keys", {"a": 1}),
    ("POST", "chains/proposals", {
        "have": {"text": {"schema": SCHEMA}, "page": {"example": {"a": [1, None]}}, "b": {}},
        "want": {"value": "echo", "schema": SCHEMA}, "group": ["default"], "state": "s",
    }),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members = value.items() if isinstance(value, dict) else ()
    for key, part in members or (enumerate(value) if isinstance(value, list) else ()):
        yield from places(part, (*path, key))


def spoilt(dice: random.Random, good: Any) -> Any:
    """One value replaced or removed, or another one added."""
    path = dice.choice([*places(good)][1:])
    made = deepcopy(good)
    holder = made
    for step in path[:-1]:
        holder = holder[step]
    how = dice.random()
    if how < 0.1:
        del holder[path[-1]]
    elif how < 0.2 and isinstance(holder, dict):
        holder[dice.choice(BESIDE)] = dice.choice(ODD)
    else:
        holder[path[-1]] = dice.choice(ODD)
    return made


@pytest.fixture
def change(admin_api, organization):
    """A change of a tool; everything that the bodies and paths name exists."""
    factories.agent(organization, "helper")
    tool = factories.tool(organization)
    seen = factories.definition(description="Other.")
    change = note_upstream(tool=tool, seen=seen, by=factories.by(organization))
    admin_api.post("/tool-services", SERVICE)
    admin_api.post("/mcp-servers", MCP)
    listed = [LISTED["tools"][0] | {"name": "t"}]
    McpServer.objects.filter(organization=organization).update(snapshot=listed)
    read_catalogs(organization)
    return change


@pytest.mark.part("generated", but_each=2)
@examples(4, 12)
@pytest.mark.parametrize("first", range(0, len(BODIES), 10))
def test_one_odd_value_is_no_fault_of_ours(admin_api, organization, change, first, max_examples):
    client = Client(raise_request_exception=False)
    wrong = []
    for at, (method, path, good) in enumerate(BODIES[first : first + 10], first):
        dice = random.Random(at)
        place = path.replace("CHANGE", str(change.pk)).replace("HERE", organization.slug)
        for _ in range(max_examples):
            body = spoilt(dice, good)
            with rolled_back():
                answer = client.generic(
                    method, f"/api/v1/{place}", json.dumps(body), content_type="application/json",
                    headers={"Authorization": f"Bearer {admin_api.token}"},
                )  # fmt: skip
            if answer.status_code >= 500 or not is_json(answer.content or b"null"):
                wrong.append((method, path, body, answer.status_code, answer.content[:500]))
    assert wrong == []
