"""How a body arrives changes nothing of what it does, over real sockets (RFC 9112, 6 and 7.1)."""

import re
import socket
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from django.test.client import encode_multipart

from tests import factories
from tests.journeys.client import Http
from tests.tools.api.test_generated_bodies import addresses, filled
from tools.models import Agent, Execution, Token, ToolGroup

CHUNKED = {"Transfer-Encoding": "chunked"}
UNKNOWN = {"nonsense_7391": True}
WRITES = ("POST", "PUT", "PATCH", "DELETE")
ECHO = {"parameters": {"text": "whole"}, "options": {"wait_s": 60}}


def paths() -> list[str]:
    """Of everything there is: API, pages, administration and probes."""
    found = {filled(one, lambda: "x", {}) for one in addresses("")}
    return sorted(re.sub(r"\(\?P<\w+>.*\)\$?", "x", one) for one in found)


def status_of(
    crib: Any, head: str, body: bytes, *, token: str = "", more: str = "", cut: bool = False
) -> int | None:
    """What answers these very bytes; after a `cut` nothing comes. None where there is no answer."""
    place = urlsplit(crib.url)
    named = f"Host: {place.netloc}\r\nContent-Type: application/json\r\n{more}"
    named += f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(f"{head} HTTP/1.1\r\n{named}\r\n".encode() + body)
        if cut:
            connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").readline()
    return int(answer.split()[1]) if answer else None


def test_chunked_equals_sized_at_every_address_of_the_api(admin):
    differ = []
    for path in (one for one in paths() if one.startswith("/api/v1/")):
        for method in WRITES:
            sized, chunked = (admin(method, path, UNKNOWN, **how) for how in ({}, CHUNKED))
            errors = [(one.status_code, one.json()["code"], one.json()["details"])
                    for one in (sized, chunked)]  # fmt: skip
            if errors[0] != errors[1]:
                differ.append((method, path, errors))
    assert differ == []


def test_a_body_that_is_not_understood_is_refused_at_every_address(crib, admin):
    """Before anything happens: also where nothing would read it, and without authentication."""
    wrong = []
    for path in paths():
        for more, body, expected in (
            ("Transfer-Encoding: chunked\r\n", b'5\r\n{"a":', {400, None}),
            ("Content-Length: 9\r\n", b"{}", {400, None}),
            ("Content-Encoding: gzip\r\nContent-Length: 2\r\n", b"{}", {415}),
            ("Transfer-Encoding: gzip, chunked\r\n", b"2\r\n{}\r\n0\r\n\r\n", {411}),
        ):
            got = status_of(crib, f"POST {path}", body, more=more, cut=None in expected)
            if got not in expected:
                wrong.append((path, more, got))
    assert wrong == []


def test_a_chunked_call_runs_with_its_parameters(http, organization):
    factories.tool(organization)
    answer = http("POST", "/api/v1/tools/echo/execute", ECHO, **CHUNKED)
    assert answer.json()["output"] == {"echo": {"text": "whole"}}


def test_a_call_that_was_cut_off_does_not_run(crib, committed, agent, organization):
    factories.tool(organization)
    token = factories.token(agent.service_account)
    for more in ("Content-Length: 40\r\n", "Transfer-Encoding: chunked\r\n"):
        body = b'{"parameters": {}}' if "Length" in more else b'12\r\n{"parameters": {}'
        head = "POST /api/v1/tools/echo/execute"
        got = status_of(crib, head, body, token=token, more=more, cut=True)
        assert got in {400, None}
    assert not Execution.objects.filter(organization=organization).exists()


def test_a_chunked_change_says_what_it_said(admin, organization, agent):
    group = {"description": "those who read", "permissions": ["tool.filesystem.read"]}
    assert admin("POST", "/api/v1/groups", group | {"name": "gx"}).status_code == 201
    assert admin("PUT", "/api/v1/groups/gx", group, **CHUNKED).status_code == 200
    kept = ToolGroup.objects.get(organization=organization, name="gx")
    assert (kept.description, [*kept.permissions]) == (*group.values(),)
    factories.tool(organization)
    wanted = {"scopes": ["read"], "tools": ["echo"], "days": 1}
    made = admin("POST", f"/api/v1/agents/{agent.slug}/tokens", wanted, **CHUNKED).json()
    token = Token.objects.get(pk=made["id"])
    assert (token.scopes, token.tools) == (["read"], ["echo"])
    admin("PATCH", f"/api/v1/agents/{agent.slug}", {"active": False}, **CHUNKED)
    assert not Agent.objects.get(pk=agent.pk).active


def test_a_chunked_form_logs_in(crib, committed, admin_user):
    visitor = Http(crib.url)
    page = visitor("GET", "/login/")
    cookie = page.headers["Set-Cookie"].partition(";")[0]
    hidden = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.content)[1].decode()
    form = {"csrfmiddlewaretoken": hidden, "username": admin_user.username,
            "password": "correct horse"}  # fmt: skip
    parts = encode_multipart("x7391", form)
    head = {"Content-Type": "multipart/form-data; boundary=x7391", "Cookie": cookie, **CHUNKED}
    assert visitor("POST", "/login/", parts, **head).status_code == 302
    head["Content-Type"] = "application/x-www-form-urlencoded"
    assert visitor("POST", "/login/", urlencode(form).encode(), **head).status_code == 302


@pytest.mark.parametrize("path", ["/api/v1/tokens", "/csp-report"])
def test_little_is_read_without_authentication(crib, path):
    for more, body in (
        ("Content-Length: 20000\r\n", b" " * 20_000),
        ("Transfer-Encoding: chunked\r\n", b"4e20\r\n" + b" " * 20_000 + b"\r\n0\r\n\r\n"),
    ):
        assert status_of(crib, f"POST {path}", body, more=more) == 413
