"""The HTTP+SSE transport of 2024: a lasting stream, and an address for our messages."""

import json
import queue
from contextlib import contextmanager

import pytest

from sandbox.egress.rules.grammar import Url
from tests.conditions import until
from tests.stubs.web import Reply, serving
from tools.mcpclient.client_pool import CallStopped
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    ToolChanged,
    UpstreamRefused,
    UpstreamUnavailable,
)
from tools.mcpclient.http_transports import HttpSseTransport

ENDED = object()


class OldServer:
    def __init__(self, web):
        self.web, self.messages, self.streams = web, [], []
        self.endpoint = "/messages?session=1"
        self.description = "A tool."
        self.mute = set()
        web.replies["/sse"] = self._stream
        web.replies["/messages"] = self._take

    @property
    def url(self):
        return self.web.url("/sse")

    def say(self, message):
        self.streams[-1].put(b"event: message\r\ndata: %s\r\n\r\n" % json.dumps(message).encode())

    def end(self):
        for stream in self.streams:
            stream.put(ENDED)

    def _stream(self, seen):
        stream = queue.Queue()
        self.streams.append(stream)
        stream.put(b"event: endpoint\ndata: %s\n\n" % self.endpoint.encode())
        return Reply(200, [("Content-Type", "text/event-stream")], iter(stream.get, ENDED))

    def _take(self, seen):
        message = json.loads(seen.body)
        self.messages.append(message)
        if "id" in message and message.get("method") not in self.mute:
            result = self._result(message)
            if result is not None:
                self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return Reply(202, body=b"Accepted")

    def _result(self, message):
        listed = {"name": "echo", "description": self.description, "inputSchema": {}}
        return {
            "initialize": {"protocolVersion": "2024-11-05", "capabilities": {}},
            "tools/list": {"tools": [listed]},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }.get(message.get("method"))

    def requests_for(self, method):
        return [one for one in self.messages if one.get("method") == method]


@contextmanager
def old_server():
    with serving() as web:
        server = OldServer(web)
        try:
            yield server
        finally:
            server.end()


@pytest.fixture
def server():
    with old_server() as old:
        yield old


@pytest.fixture
def connection(server, connect, monkeypatch):
    made = connect(server)
    monkeypatch.setattr(
        type(made),
        "_transport",
        lambda self: HttpSseTransport(
            Url.parse(self.server.url), [("X-Key", "secret")], self._dialer
        ),
    )
    made.endpoint = type(made.endpoint)("s", "s:2", made._transport, list_max_age_s=0.0)
    return made


def test_a_call_over_a_lasting_stream(connection, server):
    assert connection.call().output == "hello"
    assert connection.call().output == "hello"
    assert connection.pool.version(connection.endpoint) == "2024-11-05"
    assert len(server.streams) == 1
    assert {seen.headers["x-key"] for seen in server.web.seen} == {"secret"}


def test_a_stream_that_ended_is_begun_again_before_the_next_call(connection, server):
    connection.call()
    server.end()
    assert connection.call().output == "hello"
    assert len(server.streams) == 2


def test_a_stream_that_ends_during_a_call_loses_it(connection, server):
    connection.tools()
    server.mute = {"tools/call"}
    server._result_of = server._result

    def result(message):
        if message.get("method") == "tools/call":
            server.end()
        return None if message.get("method") == "tools/call" else server._result_of(message)

    server._result, server.mute = result, set()
    with pytest.raises(AnswerLost):
        connection.call()


def test_a_call_that_is_given_up_is_cancelled(connection, server):
    connection.tools()
    server.mute = {"tools/call"}
    with pytest.raises(CallStopped) as stopped:
        connection.call(should_stop=lambda: bool(server.requests_for("tools/call")))
    assert stopped.value.sent
    assert until(lambda: server.requests_for("notifications/cancelled"))


def test_a_tool_that_changed_is_not_called(connection, server):
    pin = connection.tools()["echo"].digest
    server.description = "Other."
    with pytest.raises(ToolChanged):
        connection.call(pin=pin)


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1/x", "https://evil.example/x", "//evil.example/x", "ftp:x"]
)
def test_credentials_go_to_no_other_host(connection, server, endpoint):
    server.endpoint = endpoint
    with pytest.raises(InvalidAnswer):
        connection.call()
    assert server.messages == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, UpstreamRefused), (404, InvalidAnswer), (302, InvalidAnswer), (200, InvalidAnswer)],
)
def test_what_is_no_stream_is_refused(connection, server, status, kind):
    server.web.replies["/sse"] = Reply(status, body=b"x")
    with pytest.raises(kind):
        connection.call()


def test_a_message_that_the_server_rejects_was_not_started(connection, server):
    connection.tools()
    server.web.replies["/messages"] = Reply(500)
    with pytest.raises(UpstreamUnavailable):
        connection.call()


def test_a_message_that_cannot_be_read_ends_the_stream(connection, server):
    connection.tools()
    server._result = lambda message: server.streams[-1].put(b"data: {\n\n")
    with pytest.raises(InvalidAnswer):
        connection.call()


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("number", [[], {}, None, True, 1.0, "1", 99])
def test_an_answer_without_a_request_is_ignored(connection, server, number):
    connection.tools()
    server.say({"jsonrpc": "2.0", "id": number, "result": {}})
    assert connection.call().output == "hello"
    assert len(server.streams) == 1
