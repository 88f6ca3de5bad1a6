"""Requirements of the newest MCP protocol for clients, which the conformance suite checks."""

import json

import pytest

from tests.stubs.mcp import Error, Tool, mcp_serving, text
from tests.stubs.web import Reply
from tools.mcpclient.challenge import AuthenticationChallenge
from tools.mcpclient.errors import InputRequired, Unauthorized
from tools.mcpclient.headers import has_sendable_headers


def schema(*marks):
    return {
        "type": "object",
        "properties": {
            f"field{number}": {"type": kind, "x-mcp-header": token}
            for number, (kind, token) in enumerate(marks)
        },
    }


GOOD = [[], [("string", "Region")], [("integer", "A"), ("boolean", "B")]]
BAD = [
    [("string", "")],
    [("string", 7)],
    [("string", "My Region")],
    [("string", "Région")],
    [("string", "A\tB")],
    [("object", "A")],
    [("array", "A")],
    [("null", "A")],
    [("number", "A")],
    [("string", "Same"), ("string", "same")],
]


@pytest.mark.parametrize("marks", GOOD)
def test_a_tool_whose_headers_can_be_sent_is_offered(marks):
    assert has_sendable_headers(schema(*marks))


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("marks", BAD)
def test_a_tool_whose_headers_cannot_be_sent_is_not_offered(modern, talk, marks):
    modern.tools["bad"] = Tool(input_schema=schema(*marks))

    assert not has_sendable_headers(schema(*marks))
    assert set(talk(modern).tools()) == {"echo"}


def test_before_the_newest_protocol_the_mark_means_nothing(handshake, talk):
    handshake.tools["odd"] = Tool(input_schema=schema(("object", "A")))

    assert set(talk(handshake).tools()) == {"echo", "odd"}


def test_a_version_that_is_refused_and_named_is_tried_once_more(modern, talk):
    refusals = [Error(-32022, "Unsupported", {"supported": ["2026-07-28"]})]
    original = modern.web.replies["/mcp"]

    def once(seen):
        if refusals:
            said = refusals.pop().said
            number = 1
            body = f'{{"jsonrpc":"2.0","id":{number},"error":{json.dumps(said)}}}'.encode()
            return Reply(400, [("Content-Type", "application/json")], body)
        return original(seen)

    modern.web.replies["/mcp"] = once

    assert talk(modern).call() == talk(modern).call()
    assert modern.requests_for("initialize") == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_says_which_credentials_are_wanted(status, talk):
    said = [("WWW-Authenticate", "Basic"), ("WWW-Authenticate", 'Bearer scope="a b"')]
    with mcp_serving() as server:
        server.web.replies["/mcp"] = Reply(status, said)

        with pytest.raises(Unauthorized) as refusal:
            talk(server).call()

    assert refusal.value.challenge == AuthenticationChallenge(scope=("a", "b"))


def test_the_requested_input_is_reported(modern, talk):
    wanted = {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "s"}
    modern.tools["ask"] = Tool(lambda arguments: text("") | wanted)

    with pytest.raises(InputRequired) as asked:
        talk(modern).call("ask")

    assert (asked.value.requests, asked.value.state) == ({"a": {}}, "s")
