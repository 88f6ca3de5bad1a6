"""Every route, method and caller with random bodies: never a 500, and unauthenticated callers are
refused."""

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests import factories
from tests.api import Api
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.api.document import AS_JSON
from tests.tools.shapes import is_json
from tools.models import Execution, Organization

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
def test_whoever_is_unknown_gets_in_nowhere(method):
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
def known(callers, agent):
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
def test_nothing_a_client_can_send_is_a_fault_of_ours(callers, known, method, draws):
    """Each request starts from the same rows, whatever the previous one changed."""
    client, wrong = Client(raise_request_exception=False), []
    for pattern in addresses():
        dice = random.Random(f"{method} {pattern}")
        for kind in ["nobody", *["agent", "person", "superuser"] * draws]:
            path = filled(pattern, partial(dice.choice, NAMES), known) + dice.choice(QUERIES)
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
