"""Tunnel bytes between a run and a host. With TLS, the ClientHello is checked before it is sent."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from sandbox.egress.entry_points.streams import Plain
from sandbox.egress.ledger import EgressLedgerEntry
from sandbox.egress.rules.egress_policy import Code, Denied
from sandbox.egress.rules.grammar import BadHost, Host, parse_host

HEADER_BYTES = 5
MOST_RECORD_BYTES = HEADER_BYTES + (1 << 14)
_CHANGE_CIPHER_SPEC, _HANDSHAKE, _APPLICATION_DATA = 20, 22, 23
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SERVER_NAME, _HOST_NAME = 0, 0
# With these the name that counts is encrypted, and the one that can be read is a front.
_ENCRYPTED_NAME = frozenset({*range(0xFE08, 0xFE0E), 0xFFCE})
# The random value that makes a ServerHello a request for another ClientHello (RFC 8446, 4.1.3).
_RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RANDOM_AT = HEADER_BYTES + 6
RETRY_BYTES = _RANDOM_AT + len(_RETRY_RANDOM)


class BadHello(ValueError):
    """The text says what is wrong with it."""


def record_bytes(header: bytes) -> int:
    """The whole length of a record that begins so. Raises BadHello for what is not TLS."""
    kind, major, _, length = struct.unpack(">BBBH", header[:HEADER_BYTES])
    known = kind in {_CHANGE_CIPHER_SPEC, _HANDSHAKE, _APPLICATION_DATA}
    if not known or major != 3 or not 0 < length <= MOST_RECORD_BYTES - HEADER_BYTES:
        raise BadHello("the tunnel does not carry TLS")
    return HEADER_BYTES + int(length)


def may_precede_hello(record: bytes) -> bool:
    """Between two hellos stand a relic for old middleboxes and data that came too early."""
    return record[0] != _HANDSHAKE


def is_retry(start: bytes) -> bool:
    """True when a server that begins so wants a second ClientHello."""
    handshake = start[:1] == bytes([_HANDSHAKE])
    hello = start[HEADER_BYTES : HEADER_BYTES + 1] == bytes([_SERVER_HELLO])
    return handshake and hello and start[_RANDOM_AT:RETRY_BYTES] == _RETRY_RANDOM


def check(record: bytes, host: Host) -> None:
    """Raises BadHello unless it is one whole ClientHello that names exactly this host."""
    names = list(server_names(record))
    if host.address is not None:
        if names:
            raise BadHello("a server name where an address was asked for")
        return
    if len(names) != 1 or _read_name(names[0]) != host:
        raise BadHello("the server name is not the host of the tunnel")


def server_names(record: bytes) -> Iterator[bytes]:
    """As they are in a ClientHello record. Raises BadHello."""
    extensions: set[int] = set()
    for kind, content in _extensions(record):
        if kind in _ENCRYPTED_NAME:
            raise BadHello("the server name is encrypted")
        if kind in extensions:
            raise BadHello("the same extension twice")
        extensions.add(kind)
        if kind == _SERVER_NAME:
            yield from _names(content)


class _HelloReader:
    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        if len(self.left) < count:
            raise BadHello("a ClientHello that is cut off or in pieces")
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def counted(self, width: int) -> bytes:
        """What follows its own length."""
        return self.take(self.number(width))

    def expect_end(self) -> None:
        if self.left:
            raise BadHello("something behind the end of a ClientHello")


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
            raise BadHello("the tunnel ended before its first words")
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
            if is_retry(await self._from_host.at_least(RETRY_BYTES)):
                await self._send_downstream(await self._from_host.receive())
                while may_precede_hello(record := await self._record()):
                    await self._send_upstream(record)
                await self._pass_hello(host, record)

    async def carry(self) -> None:
        """Until both sides have said all."""
        ways = (
            self._pump(self._from_client, self._send_upstream, self._upstream),
            self._pump(self._from_host, self._send_downstream, self._client),
        )
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_hello(self, host: Host, record: bytes) -> None:
        check(record, host)
        await self._send_upstream(record)

    async def _record(self) -> bytes:
        header = await self._from_client.peek(HEADER_BYTES)
        return await self._from_client.exactly(record_bytes(header))

    async def _send_upstream(self, data: bytes) -> None:
        self._entry.sent(len(data))
        await self._upstream.send(data)

    async def _send_downstream(self, data: bytes) -> None:
        self._entry.received(len(data))
        await self._client.send(data)

    async def _pump(
        self, source: MeasuredStream, send: Callable[[bytes], Awaitable[None]], sink: Plain
    ) -> None:
        while data := await source.receive():
            await send(data)
        sink.finish()


def _extensions(record: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _HelloReader(record[HEADER_BYTES:])
    if record[0] != _HANDSHAKE or reader.number(1) != _CLIENT_HELLO:
        raise BadHello("the first record is no ClientHello")
    hello = _HelloReader(reader.counted(3))
    reader.expect_end()
    hello.take(2 + 32)  # version and random value
    for width in (1, 2, 1):  # session, cipher suites, compression methods
        hello.counted(width)
    listed = _HelloReader(hello.counted(2))
    hello.expect_end()
    while listed.left:
        yield listed.number(2), listed.counted(2)


def _names(content: bytes) -> Iterator[bytes]:
    outer = _HelloReader(content)
    listed = _HelloReader(outer.counted(2))
    outer.expect_end()
    while listed.left:
        if listed.number(1) != _HOST_NAME:
            raise BadHello("a server name of an unknown kind")
        yield listed.counted(2)


def _read_name(name: bytes) -> Host | None:
    """A client leaves out the last dot (RFC 6066, 3)."""
    try:
        return None if name.endswith(b".") else parse_host(name.decode("ascii"))
    except (BadHost, UnicodeDecodeError):
        return None


@contextmanager
def _as_denied() -> Iterator[None]:
    try:
        yield
    except BadHello as reason:
        raise Denied(Code.TUNNEL_NOT_ALLOWED, str(reason)) from None
