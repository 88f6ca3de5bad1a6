"""Types and messages of ASGI that a stream of server-sent events uses."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_SEND_TIMEOUT_S = 30.0  # for a client that reads nothing

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): said.decode("latin-1") for name, said in scope["headers"]}


async def send_end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_body(send: Send, body: bytes) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


def response_start(status: int, origin: str | None) -> MutableMapping[str, Any]:
    headers = [
        (b"content-type", b"text/event-stream" if status == 200 else b"text/plain"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
        (b"vary", b"Origin, Cookie"),
    ]
    if origin:
        headers += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
        ]
    return {"type": "http.response.start", "status": status, "headers": headers}


async def refuse(send: Send, status: int) -> None:
    await send(response_start(status, None))
    await send_end(send)
