"""Every route, method and caller with random bodies: never a 500, and unauthenticated callers are
refused."""

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests import factories
from tests.api import Api
from tests.properties import examples
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.api.document import AS_JSON
from tests.tools.shapes import is_json
from tools.catalog.signatures.drift import note_upstream
from tools.models import Execution, McpServer, Organization

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
OPEN = {"api/schema/", "api/docs/", "api/v1/tokens"}  # the last one accepts a password
SIGNED = {"api/v1/channels/<uuid:channel_id>/bounces"}  # with the channel's own key
NOBODYS = "01890000-0000-7000-8000-000000000000"
VALUES = [
    None, True, False, 0, -1, 2**53, 1.5, "", "x", "*", "default", "echo", "PT5S", "é" * 300,
    "a\u202eb",
    "../..", "' OR 1=1 --", "{{7*7}}", "__class__", [], ["default"], ["*"], [None], [[]], {},
    {"a": 1},
    {"$ref": "#"}, {"__proto__": {}}, "00000000-0000-0000-0000-000000000000",
]  # fmt: skip
KEYS = [
    "name", "type", "description", "parameters", "input_schema", "output_schema", "constraints",
    "group",
    "state", "available_in_states", "implementation", "metadata", "tool_name", "options",
    "session", "slug",
    "groups", "tools", "permissions", "strict", "active", "label", "scopes", "days", "tier",
    "builtin_tools", "max_custom_tools", "custom_sandbox_profiles", "username", "password",
    "enabled",
    "version", "delivery", "cache_ttl", "required_permissions", "rate_limit_per_minute",
    "allowed_paths", "allowed_hosts", "allow_network", "backend", "minimum_isolation", "header",
    "value", "max_cpu_time", "isolation_levels", "change", "since",
    "budget", "quotas", "max_concurrency", "max_queue_depth", "max_in_flight",
    "bound_hash", "approve", "decisions", "every_call", "min_cost", "first_use", "reason",
    "inputs", "mode", "max_parallel", "stop_on_error", "positions", "steps", "output", "on_cancel",
    "document", "kind", "note", "workspace_max_files", "workspace_max_bytes",
    "output_days", "transform",
]  # fmt: skip
NAMES = [
    "echo",
    "read_file",
    "ghost",
    "..",
    "%00",
    "*",
    "é",
    "default",
    "x" * 300,
    "a%2Fb",
    "Core",
    "1.0.0",
]
QUERIES = ["", "?group=*", "?group=&state=", "?page_size=0", "?cursor=%00", "?q=%00", "?format=xml",
           "?status=%00", "?since=x", "?execution=x",
           "?group=a&group=b&state=%F0%9F%99%82"]  # fmt: skip


def addresses(below: str = "api/") -> list[str]:
    """Every route of the API, or below another prefix, as the resolver has it."""

    def walk(patterns, prefix: str) -> Iterator[str]:
        for pattern in patterns:
            whole = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, whole)
            elif isinstance(pattern, URLPattern):
                yield whole

    return sorted(
        {found for found in walk(get_resolver().url_patterns, "") if found.startswith(below)}
    )


def filled(pattern: str, name: Callable[[], str], known: dict[str, str]) -> str:
    """The path with a value for each parameter, often one that exists."""
    parts = []
    for part in pattern.split("/"):
        if part.startswith("<uuid:"):
            parts.append(known.get(part, NOBODYS))
        elif part.startswith("<int:"):
            parts.append(known.get(part, "1"))
        elif part.startswith("<"):
            parts.append(name())
        else:
            parts.append(part)
    return "/" + "/".join(parts)


def body(dice: random.Random) -> bytes:
    if dice.random() < 0.15:
        return dice.choice(
            [b"", b"[]", b"null", b"{", b'"x"', b"\xff", b'{"a":1,"a":2}', b"[" * 100]
        )
    return json.dumps(
        {dice.choice(KEYS): dice.choice(VALUES) for _ in range(dice.randint(0, 5))}
    ).encode()


@pytest.fixture
def callers(organization, agent, admin_user):
    """The headers of each kind of caller."""
    factories.tool(organization)
    scopes = ["read", "execute", "manage"]
    users = {
        "agent": agent.service_account,
        "person": factories.person(organization),
        "superuser": admin_user,
    }
    return {"nobody": {}} | {
        kind: {"Authorization": f"Bearer {factories.token(user, scopes=scopes)}"}
        for kind, user in users.items()
    }


def test_the_matrix_knows_every_address():
    found = addresses()
    assert len(found) > 25
    assert "api/v1/tools/<str:name>/execute" in found and "api/v1/audit/records" in found


@pytest.mark.usefixtures("db", "document_made_once")
@pytest.mark.parametrize("method", METHODS)
def test_a_caller_who_is_unknown_gets_in_nowhere(method):
    client, wrong = Client(), []
    for pattern in addresses():
        path = filled(pattern, lambda: "echo", {})
        headers = AS_JSON if pattern == "api/schema/" else {}
        got = client.generic(method, path, b"{}", "application/json", headers=headers).status_code
        if got not in refusals(pattern, method):
            wrong.append((pattern, got))
    assert wrong == []


def refusals(pattern: str, method: str) -> set[int]:
    """The status codes that an unauthenticated caller may get."""
    if pattern == "api/v1/tokens" and method in {"GET", "HEAD"}:
        return {401}  # the list of the caller's own tokens
    if pattern in OPEN:
        return {200, 400, 405}
    if pattern in SIGNED:
        return {200} if method == "OPTIONS" else {401, 405}
    return {401}


@pytest.fixture
def known_values(callers, agent):
    """Existing values by path parameter."""
    known = {
        "<uuid:execution_id>": str(factories.execution(agent).pk),
        "<uuid:session_id>": factories.api(agent).post("/sessions", {}).json()["id"],
    }
    read_catalogs(agent.organization)
    return known


@pytest.mark.usefixtures("document_made_once")
@pytest.mark.parametrize("draws", [1, pytest.param(3, marks=pytest.mark.part("matrices"))])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_a_client_can_send_is_a_fault_of_ours(callers, known_values, method, draws):
    """Each request starts from the same rows, whatever the previous one changed."""
    client, wrong = Client(raise_request_exception=False), []
    for pattern in addresses():
        dice = random.Random(f"{method} {pattern}")
        for kind in ["nobody", *["agent", "person", "superuser"] * draws]:
            path = filled(pattern, partial(dice.choice, NAMES), known_values) + dice.choice(QUERIES)
            if path.partition("?")[0].endswith("/events"):
                continue  # the stream of an open call does not end
            headers = {**callers[kind], "X-Organization": dice.choice(["", "ghost", "\u00fc"])}
            if pattern == "api/schema/":
                headers |= AS_JSON
            with rolled_back():
                response = client.generic(
                    method, path, body(dice), "application/json", headers=headers
                )
            if not well_answered(method, response):
                wrong.append((kind, path, response.status_code, response.content[:500]))
    assert wrong == []


def well_answered(method: str, response: Any) -> bool:
    """No 500; a refusal has the one shape of errors."""
    if response.status_code < 400:
        return True
    if response.status_code >= 500 or b"Traceback" in response.content:
        return False
    if method == "HEAD":
        return True
    fields = {"code", "message", "details", "request_id"}
    return is_json(response.content) and fields <= set(json.loads(response.content))


# Only a person with the right permission may do these, as (method, path, body).
MANAGED = [
    ("post", "/tools", {}), ("put", "/tools/echo", {}), ("patch", "/tools/echo", {"title": "x"}),
    ("get", "/tools/explain?agent=x", None), ("get", "/tools/explain?tier=Core", None),
    ("post", "/tools/what-if", {"change": {"kind": "tier", "tier": "Core"}}),
    ("post", "/tools/what-if", {"change": {"kind": "grant", "agent": "x", "groups": []}}),
    ("get", "/tools/lint", None), ("post", "/tools/lint", {}),
    ("patch", "/tools/ghost", {}), ("put", "/tools/ghost", {}), ("delete", "/tools/ghost", None),
    ("delete", "/tools/echo", None), ("post", "/tools/echo/enable", None),
    ("post", "/tools/echo/disable", None), ("get", "/tools/echo/versions", None),
    ("post", "/tools/echo/versions/1.0.0/restore", None), ("post", "/groups", {"name": "n"}),
    ("patch", "/groups/default", {}), ("put", "/groups/default", {}), ("delete", "/groups/default",
    None),
    ("get", "/agents", None), ("post", "/agents", {"slug": "n"}), ("get", "/agents/x", None),
    ("patch", "/agents/x", {}), ("post", "/agents/x/suspend", None), ("get", "/agents/x/tokens",
    None),
    ("post", "/agents/x/tokens", {}), ("get", "/organizations", None),
    ("post", "/organizations", {"slug": "n", "name": "n"}), ("get", "/organizations/x", None),
    ("post", "/organizations/x/tier/preview", {"tier": "Core"}),
    ("post", "/tiers/Core/preview", {"max_custom_tools": 1}),
    ("patch", "/organizations/x", {}), ("get", "/tiers", None), ("get", "/tiers/Core", None),
    ("patch", "/tiers/Core", {"max_custom_tools": 1}), ("get", "/audit/records", None),
    ("get", "/confirmations", None), ("get", f"/confirmations/{NOBODYS}", None),
    ("post", f"/confirmations/{NOBODYS}/approve", {"bound_hash": "x"}),
    ("post", f"/confirmations/{NOBODYS}/reject", {"bound_hash": "x"}),
    (
        "post",
        "/confirmations/decide",
        {"decisions": [{"id": NOBODYS, "bound_hash": "x", "approve": True}]},
    ),
    ("get", "/confirmation-rules", None),
    ("post", "/confirmation-rules", {"name": "n", "every_call": True}),
    ("get", "/confirmation-rules/x", None), ("delete", "/confirmation-rules/x", None),
    ("put", "/confirmation-rules/x", {"every_call": True}),
    ("patch", "/confirmation-rules/x", {"enabled": False}),
    ("get", "/audit/records/01890000-0000-7000-8000-000000000000", None),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["agent", "person"])
def test_only_who_was_permitted_manages(callers, organization, kind):
    wrong = []
    before = Organization.objects.get(pk=organization.pk).revision
    read_catalogs(organization)
    api = Api(callers[kind]["Authorization"].removeprefix("Bearer "))
    for method, path, content in MANAGED:
        with rolled_back():
            response = getattr(api, method)(path, content)
            after = Organization.objects.get(pk=organization.pk).revision
            ran = Execution.objects.filter(organization=organization).exists()
        if (response.status_code, after, ran) != (403, before, False):
            wrong.append((method, path, response.status_code, response.content, after, ran))
    assert wrong == []


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
    change = note_upstream(tool=tool, seen=seen, by=factories.actor(organization))
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
