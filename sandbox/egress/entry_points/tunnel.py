"""Tunnel bytes between a run and a host. With TLS, the ClientHello is checked before it is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from sandbox.egress.entry_points import hello
from sandbox.egress.entry_points.streams import Plain
from sandbox.egress.ledger import EgressLedgerEntry
from sandbox.egress.rules.denials import Code, Denied
from sandbox.egress.rules.grammar import Host


class MeasuredStream:
    """A stream that can be read in measured parts. `ahead` came with something else before."""

    def __init__(self, stream: Plain, ahead: bytes = b"") -> None:
        self._stream, self._ahead = stream, ahead

    async def at_least(self, count: int) -> bytes:
        """What is there, without taking it; less than `count` only at the end."""
        while len(self._ahead) < count and (more := await self._stream.receive()):
            self._ahead += more
        return self._ahead

    async def peek(self, count: int) -> bytes:
        """At least so much of what comes next. Raises BadHello when there is less."""
        if len(await self.at_least(count)) < count:
            raise hello.BadHello("the tunnel ended before its first words")
        return self._ahead

    async def exactly(self, count: int) -> bytes:
        await self.peek(count)
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken

    async def receive(self) -> bytes:
        if self._ahead:
            taken, self._ahead = self._ahead, b""
            return taken
        return await self._stream.receive()


class Tunnel:
    """`client` and `ahead` are the run's side. Raises Denied and OSError."""

    def __init__(
        self, client: Plain, ahead: bytes, upstream: Plain, entry: EgressLedgerEntry
    ) -> None:
        self._client, self._upstream, self._entry = client, upstream, entry
        self._from_client, self._from_host = MeasuredStream(client, ahead), MeasuredStream(upstream)

    async def greet(self, host: Host) -> None:
        """Let TLS begin: nothing is sent before it is clear that it is for this host.

        A server may ask for a second ClientHello; whether it does is read from its first answer.
        """
        with _as_denied():
            await self._pass_hello(host, await self._record())
            if hello.is_retry(await self._from_host.at_least(hello.RETRY_BYTES)):
                await self._down(await self._from_host.receive())
                while hello.may_precede_hello(record := await self._record()):
                    await self._up(record)
                await self._pass_hello(host, record)

    async def carry(self) -> None:
        """Until both sides have said all."""
        ways = (
            self._pump(self._from_client, self._up, self._upstream),
            self._pump(self._from_host, self._down, self._client),
        )
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_hello(self, host: Host, record: bytes) -> None:
        hello.check(record, host)
        await self._up(record)

    async def _record(self) -> bytes:
        header = await self._from_client.peek(hello.HEADER_BYTES)
        return await self._from_client.exactly(hello.record_bytes(header))

    async def _up(self, data: bytes) -> None:
        self._entry.sent(len(data))
        await self._upstream.send(data)

    async def _down(self, data: bytes) -> None:
        self._entry.received(len(data))
        await self._client.send(data)

    async def _pump(
        self, source: MeasuredStream, send: Callable[[bytes], Awaitable[None]], sink: Plain
    ) -> None:
        while data := await source.receive():
            await send(data)
        sink.finish()


@contextmanager
def _as_denied() -> Iterator[None]:
    try:
        yield
    except hello.BadHello as reason:
        raise Denied(Code.TUNNEL_NOT_ALLOWED, str(reason)) from None
