"""Connect to a host that the rules allow, and to nothing else."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address

from sandbox.egress.entry_points.streams import ByteStream, Plain, Tls
from sandbox.egress.resolve import LookupLimit, Resolver
from sandbox.egress.rules.addresses import AddressGate
from sandbox.egress.rules.denials import Code, Denied
from sandbox.egress.rules.grammar import Address, Host

MOST_DIALLED = 4
CONNECT_S = 5.0


@dataclass(frozen=True)
class UpstreamConnection:
    """A connection to exactly this address. `opened`: in a network the operator opened."""

    stream: Plain
    address: Address
    opened: bool


class Dialer:
    def __init__(
        self, resolver: Resolver, gate: AddressGate, trust: ssl.SSLContext, organization: str = ""
    ) -> None:
        self._resolver, self._gate, self._trust = resolver, gate, trust
        self._organization = organization

    def of(self, organization: str) -> "Dialer":
        """The same, whose lookups of names count as this organization's."""
        return Dialer(self._resolver, self._gate, self._trust, organization)

    def turns(self) -> LookupLimit:
        """For one run, or one conversation."""
        return LookupLimit(self._organization)

    async def connect(self, host: Host, port: int, turns: LookupLimit) -> UpstreamConnection:
        """Asked for once, every address is looked at; the first good one that answers is used.

        Bad addresses beside good ones are left out: some hosts publish both. Raises Denied.
        """
        found = await self._resolver.addresses(host, turns)
        good = [address for address in found if not self._gate.refusal(address)]
        if not good:
            reasons = sorted({self._gate.refusal(address) for address in found})
            raise Denied(Code.ADDRESS_NOT_ALLOWED, f"{host} is at {', '.join(reasons)}")
        address, channel = await _first_connected(host, good[:MOST_DIALLED], port)
        return UpstreamConnection(Plain(channel), address, self._gate.is_opened(address))

    async def secure(self, line: UpstreamConnection, host: Host) -> ByteStream:
        """TLS on top, for the name that was asked for. Raises Denied."""
        tls = Tls(line.stream, self._trust, host.text)
        try:
            await tls.handshake()
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of {host} is not good: {error.verify_message}"
            raise Denied(Code.TLS_FAILED, reason) from None
        except OSError:  # every ssl.SSLError is one
            raise Denied(Code.TLS_FAILED, f"{host} does not speak TLS with us") from None
        return tls


async def _first_connected(
    host: Host, addresses: Iterable[Address], port: int
) -> tuple[Address, socket.socket]:
    for address in addresses:
        try:
            return address, await _connected(address, port)
        except OSError:
            continue
    raise Denied(Code.CONNECT_FAILED, f"{host} does not accept connections on port {port}")


async def _connected(address: Address, port: int) -> socket.socket:
    """Raises OSError, also when it takes too long."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    channel = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with ExitStack() as undo:
        undo.callback(channel.close)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(channel, (str(address), port))
        undo.pop_all()
    return channel
