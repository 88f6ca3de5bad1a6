"""An upstream on loopback for `tests.benchmarks.pipeline`, as cheap as Python can have it.

    python -m tests.benchmarks.echo_server PORT

Answers each GET with a small document of JSON, and each message of MCP with what the protocol says.
"""

import asyncio
import json
import sys
from typing import Any

MODERN = "2026-07-28"
TOOL = {
    "name": "echo",
    "description": "Returns a word.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
}
SERVER = {"name": "echo", "version": "1"}
ANSWERS: dict[str, dict[str, Any]] = {
    "server/discover": {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}},
        "serverInfo": SERVER,
        "ttlMs": 3_600_000,
    },
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": SERVER,
    },
    "tools/list": {"tools": [TOOL], "ttlMs": 3_600_000},
    "tools/call": {"content": [{"type": "text", "text": "7"}]},
}


class Exchange(asyncio.Protocol):
    """One connection, on which requests come one after the other."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            size = _content_length(head)
            if len(rest) < size:
                return
            body, self._received = rest[:size], rest[size:]
            self._transport.write(_answer(body))


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def _answer(body: bytes) -> bytes:
    if not body:
        return _response(b'{"id": 7}')
    message = json.loads(body)
    if "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    result = {"resultType": "complete", **ANSWERS[message["method"]]}
    return _response(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


def _response(content: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Exchange, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
