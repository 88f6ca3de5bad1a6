"""Bytes to and from a socket without buffers of our own: who sends waits for who receives."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from sandbox.daemon.daemon_log import log

CHUNK = 1 << 16
_IN_A_ROW = 8  # then others have their turn
_OUT_OF_DESCRIPTORS_S = 0.1


class ByteStream(Protocol):
    async def receive(self) -> bytes:
        """At most CHUNK bytes; empty at the end. Raises OSError."""

    async def send(self, data: bytes) -> None:
        """Returns when the kernel has it all. Raises OSError."""

    def close(self) -> None:
        """What was not sent is lost."""


class Plain:
    """One task may receive while another sends."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.channel = channel
        self._loop = asyncio.get_running_loop()
        self._received = 0

    async def receive(self) -> bytes:
        self._received += 1
        if self._received % _IN_A_ROW == 0:
            await asyncio.sleep(0)  # what is already there is received without waiting
        return await self._loop.sock_recv(self.channel, CHUNK)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.channel, data)

    def finish(self) -> None:
        """Nothing more will be sent; the other side may go on. Raises OSError."""
        self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.channel.close()


async def accepted(listener: socket.socket) -> socket.socket:
    """The next connection, also when descriptors have run out for a while."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            channel, _ = await loop.sock_accept(listener)
        except OSError as error:
            log("accept_failed", reason=errno.errorcode.get(error.errno or 0, "?"))
            await asyncio.sleep(_OUT_OF_DESCRIPTORS_S)
        else:
            return channel


class Tls:
    """TLS over another stream; one task at a time, for both directions write handshake bytes."""

    def __init__(self, below: ByteStream, context: ssl.SSLContext, server_name: str) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=False, server_hostname=server_name
        )

    async def handshake(self) -> None:
        """Raises ssl.SSLError and OSError."""
        await self._driven(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """An end without close_notify is an error: the answer may have been truncated."""
        try:
            return await self._driven(lambda: self._tls.read(CHUNK))
        except ssl.SSLZeroReturnError:
            return b""

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            await self._driven(lambda part=part: self._tls.write(part))  # type: ignore[misc]

    def close(self) -> None:
        self._below.close()

    async def _driven[T](self, step: Callable[[], T]) -> T:
        """Repeat a step of OpenSSL's and carry its bytes until it needs no more of them."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                await self._flush()  # the alert says to the other side what was wrong
                raise
            else:
                await self._flush()
                return done

    async def _flush(self) -> None:
        if waiting := self._outgoing.read():
            await self._below.send(waiting)

    async def _fill(self) -> None:
        if received := await self._below.receive():
            self._incoming.write(received)
        else:
            self._incoming.write_eof()
