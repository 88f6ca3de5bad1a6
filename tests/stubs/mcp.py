"""An MCP server on loopback, over real HTTP, of either era; also one that misbehaves.

with mcp_serving() as server:
    server.tools["add"] = Tool(lambda arguments: text(str(arguments["a"] + 1)))
    ...
    assert server.requests_for("tools/call")[0]["params"]["name"] == "add"
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.stubs.web import Raw, Reply, Seen, Web, serving

MODERN = "2026-07-28"
Message = dict[str, Any]
Given = Callable[[Message], Any]


def text(words: str, **more: Any) -> Message:
    return {"content": [{"type": "text", "text": words}], **more}


@dataclass
class Tool:
    """`does` gives a result, a `Reply` or `Raw` instead, or an exception to answer with."""

    does: Given = lambda arguments: text("done")
    description: str = "A tool."
    input_schema: Message = field(default_factory=lambda: {"type": "object"})
    more: Message = field(default_factory=dict)

    def listed(self, name: str) -> Message:
        return {
            "name": name,
            "description": self.description,
            "inputSchema": self.input_schema,
            **self.more,
        }


class Error(Exception):
    def __init__(self, number: int, words: str, data: Any = None) -> None:
        super().__init__(words)
        self.said = {"code": number, "message": words} | ({"data": data} if data else {})


class McpStub:
    """`instead` answers a method in place of what the protocol says: a Reply, a Raw, or what is
    called with the message. `before` are messages that come in the stream before the answer."""

    def __init__(self, web: Web, era: str, streamed: bool) -> None:
        self.web, self.era, self.streamed = web, era, streamed
        self.tools: dict[str, Tool] = {"echo": Tool(lambda given: text(json.dumps(given)))}
        self.instead: dict[str, Any] = {}
        self.before: Callable[[Message], list[Message]] = lambda message: []
        self.messages: list[Message] = []
        self.sessions: set[str] = set()
        self.deleted: list[str] = []
        self.page_size = 1000
        self.list_more: Message = {}
        self.cancelled = threading.Event()
        web.replies["/mcp"] = self._reply

    @property
    def url(self) -> str:
        return self.web.url("/mcp")

    def requests_for(self, method: str) -> list[Message]:
        return [one for one in self.messages if one.get("method") == method]

    def _reply(self, seen: Seen) -> Reply | Raw:
        if seen.method == "DELETE":
            self.deleted.append(seen.headers["mcp-session-id"])
            return Reply(200)
        if seen.method != "POST":
            return Reply(405)
        message = json.loads(seen.body)
        self.messages.append(message)
        instead = self.instead.get(message.get("method"))
        if callable(instead):
            instead = instead(message)
        if isinstance(instead, Reply | Raw):
            return instead
        return (
            self._answer_request(message, seen)
            if "id" in message and "method" in message
            else (self._take_notification(message))
        )

    def _take_notification(self, message: Message) -> Reply:
        if message.get("method") == "notifications/cancelled":
            self.cancelled.set()
        return Reply(202)

    def _answer_request(self, message: Message, seen: Seen) -> Reply | Raw:
        refused = self._check(message, seen)
        if refused is not None:
            return refused
        headers = []
        try:
            result = self._result(message)
        except Error as error:
            return as_json({"jsonrpc": "2.0", "id": message["id"], "error": error.said})
        if isinstance(result, Reply | Raw):
            return result
        if message["method"] == "initialize":
            session = f"session-{len(self.messages)}"
            self.sessions.add(session)
            headers.append(("Mcp-Session-Id", session))
        if self.era == MODERN:
            result.setdefault("resultType", "complete")
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if not self.streamed or message["method"] != "tools/call":
            return as_json(answer, headers)
        return streamed([*self.before(message), answer], headers)

    def _check(self, message: Message, seen: Seen) -> Reply | None:
        if self.era == MODERN:
            return self._check_modern(message, seen)
        if message["method"] == "initialize":
            return None
        session = seen.headers.get("mcp-session-id")
        if session is None:
            return Reply(400, body=b"Bad Request: no session")
        return None if session in self.sessions else Reply(404)

    def _check_modern(self, message: Message, seen: Seen) -> Reply | None:
        meta = message.get("params", {}).get("_meta", {})
        version = meta.get("io.modelcontextprotocol/protocolVersion")
        same = (
            version == seen.headers.get("mcp-protocol-version") == MODERN
            and message["method"] == seen.headers.get("mcp-method")
            and message["params"].get("name") == seen.headers.get("mcp-name")
            and "io.modelcontextprotocol/clientCapabilities" in meta
        )
        if same:
            return None
        said = {"code": -32020, "message": "headers and body differ"}
        return as_json({"jsonrpc": "2.0", "id": message["id"], "error": said}, status=400)

    def _result(self, message: Message) -> Any:
        method, params = message["method"], message.get("params", {})
        if method == "server/discover" and self.era == MODERN:
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        if method == "initialize" and self.era != MODERN:
            info = {"name": "stub", "version": "1"}
            return {"protocolVersion": self.era, "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return self._page(int(params.get("cursor") or "0"))
        if method == "tools/call":
            tool = self.tools.get(params["name"])
            if tool is None:
                raise Error(-32602, f"Unknown tool: {params['name']}")
            return tool.does(params["arguments"])
        raise Error(-32601, "Method not found")

    def _page(self, start: int) -> Message:
        listed = [tool.listed(name) for name, tool in self.tools.items()]
        end = start + self.page_size
        more = {"nextCursor": str(end)} if end < len(listed) else {}
        return {"tools": listed[start:end], **more, **self.list_more}


def as_json(message: Message, headers: Any = (), status: int = 200) -> Reply:
    body = json.dumps(message).encode()
    return Reply(status, [("Content-Type", "application/json"), *headers], body)


def streamed(messages: list[Message], headers: Any = ()) -> Reply:
    events = [b"event: message\r\ndata: %s\r\n\r\n" % json.dumps(one).encode() for one in messages]
    return Reply(200, [("Content-Type", "text/event-stream"), *headers], events)


@contextmanager
def mcp_serving(era: str = MODERN, *, streamed: bool = False) -> Iterator[McpStub]:
    with serving() as web:
        yield McpStub(web, era, streamed)
