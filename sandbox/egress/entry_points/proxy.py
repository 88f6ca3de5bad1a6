"""The second egress entry point: an HTTP proxy on 127.0.0.1 of the run's own network.

Its listening socket was made inside, so accepting here needs no process of ours in there.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NoReturn

import h11

from sandbox.egress.egress_checks import PROXY, TIRING, RunEgress
from sandbox.egress.entry_points.messages import (
    VERSIONS,
    EgressRequest,
    EgressResponse,
    decoded,
    gathered,
)
from sandbox.egress.entry_points.streams import Plain, accepted
from sandbox.egress.entry_points.tunnel import Tunnel
from sandbox.egress.rules.egress_policy import Code, Denied
from sandbox.egress.rules.host_rules import TLS_PORTS
from sandbox.egress.task_group import TaskGroup

IDLE_S = 30.0  # for a whole request head, and between two requests
_HEAD_BYTES = 32 * 1024  # of a program's request; reading one takes its time
_LINGER_S = 1.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_STATUS = {
    Code.REQUEST_LIMIT: 429,
    Code.CONNECTION_LIMIT: 429,
    Code.LOOKUP_LIMIT: 429,
    Code.REQUEST_INVALID: 400,
    Code.HOST_INVALID: 400,
    Code.NAME_NOT_RESOLVED: 502,
    Code.CONNECT_FAILED: 502,
    Code.TLS_FAILED: 502,
    Code.RESPONSE_INVALID: 502,
    Code.TOO_LARGE: 413,
    Code.TIMEOUT: 504,
}
_NOT_ALLOWED = 403


class Proxy:
    """Holds at most twice as many connections as may be in use; the kernel queues the others."""

    def __init__(self, listener: socket.socket, reach: RunEgress) -> None:
        listener.setblocking(False)
        self._listener, self._reach = listener, reach
        self._places = asyncio.Semaphore(2 * reach.limits.connections)

    async def serve(self) -> None:
        async with TaskGroup() as clients:
            while True:
                await self._places.acquire()
                client = await accepted(self._listener)
                clients.begin(self._hold(client))

    async def _hold(self, client: socket.socket) -> None:
        conversation = ProxyConnection(Plain(client), self._reach)
        with client, suppress(OSError):  # the program hung up
            await conversation.hold()
        if conversation.tiring:
            await self._reach.slow_down()
        self._places.release()


class ProxyConnection:
    """One connection of a program: requests one after the other, or a tunnel until its end."""

    def __init__(self, client: Plain, reach: RunEgress) -> None:
        self._client, self._reach = client, reach
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self.tiring = True  # until it has asked for something it may have

    async def hold(self) -> None:
        """Raises OSError."""
        try:
            while (request := await self._request()) is not None:
                await self._serve(request)
                self.tiring = False
                if (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
                    return
                self._http.start_next_cycle()
        except Denied as denied:
            self.tiring = denied.code in TIRING
            await self._refuse(denied)

    async def _request(self) -> h11.Request | None:
        """None when there is no other, or none in time. Raises Denied for what is not HTTP."""
        try:
            async with asyncio.timeout(IDLE_S):
                event = await self._event()
        except TimeoutError:
            return None
        except h11.RemoteProtocolError:
            self._refuse_nonsense()
        if isinstance(event, h11.Request) and event.http_version not in VERSIONS:
            self._refuse_nonsense()
        return event if isinstance(event, h11.Request) else None

    def _refuse_nonsense(self) -> NoReturn:
        """Counted like any other attempt, though its target is unknown."""
        with self._reach.ledger.attempt(PROXY):
            self._reach.ledger.check_share()
            raise Denied(Code.REQUEST_INVALID, "not an HTTP/1.1 request")

    async def _serve(self, request: h11.Request) -> None:
        if request.method == b"CONNECT":
            await self._tunnel(request.target.decode("ascii"))
        else:
            async with self._reach.request(PROXY, self._egress_request(request)) as answer:
                await self._pass_on(answer)

    def _egress_request(self, request: h11.Request) -> EgressRequest:
        fields = dict(request.headers)
        chunked = b"transfer-encoding" in fields
        return EgressRequest(
            method=request.method.decode("ascii"),
            url=request.target.decode("ascii"),
            headers=decoded(request.headers),
            length=None if chunked else int(fields.get(b"content-length", b"0")),
            body=self._body(),
        )

    async def _body(self) -> AsyncIterator[bytes]:
        """Raises Denied."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            async for chunk in gathered(self._http, self._receive):
                yield chunk
        except (h11.RemoteProtocolError, EOFError):
            raise Denied(Code.REQUEST_INVALID, "a body that is not HTTP/1.1") from None

    async def _pass_on(self, answer: EgressResponse) -> None:
        headers = [*answer.headers]
        if answer.length is not None:
            headers.append(("content-length", str(answer.length)))
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send(h11.Response(status_code=answer.status, headers=pairs))
        async for chunk in answer.body:
            await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())

    async def _tunnel(self, authority: str) -> None:
        async with self._reach.tunnel(authority) as (line, host, port, entry):
            await self._send(h11.Response(status_code=200, headers=[], reason=b"Connected"))
            ahead, _ = self._http.trailing_data
            tunnel = Tunnel(self._client, ahead, line.stream, entry)
            if port in TLS_PORTS:
                await tunnel.greet(host)
            await tunnel.carry()

    async def _refuse(self, denied: Denied) -> None:
        """Say why, where an answer is still possible; else cut it off so that it is noticed."""
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            reset = _RESET_ON_CLOSE
            self._client.channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            return
        body = f"{denied.code}: {denied}\n".encode("ascii", "replace")
        headers = [
            ("content-type", "text/plain; charset=us-ascii"),
            ("content-length", str(len(body))),
            ("x-toolcrib-egress", str(denied.code)),
            ("connection", "close"),
        ]
        status = _STATUS.get(denied.code, _NOT_ALLOWED)
        reason = denied.code.encode()  # all that some programs show of it
        await self._send(h11.Response(status_code=status, headers=headers, reason=reason))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())
        await self._hang_up()

    async def _hang_up(self) -> None:
        """Closing on unread bytes would take the answer away again."""
        self._client.finish()
        try:
            async with asyncio.timeout(_LINGER_S):
                while await self._client.receive():
                    continue
        except TimeoutError:
            return

    async def _event(self) -> h11.Event | None:
        """None where nothing can follow. Raises h11.RemoteProtocolError and OSError."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event if isinstance(event, h11.Event) else None

    async def _receive(self) -> None:
        self._http.receive_data(await self._client.receive())

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            await self._client.send(data)
