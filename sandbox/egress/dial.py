"""Connect to a host that the rules allow, and to nothing else."""

import asyncio
import importlib.util
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from weakref import WeakValueDictionary

from sandbox.egress.entry_points.streams import ByteStream, Plain, Tls
from sandbox.egress.rules.addresses import AddressGate
from sandbox.egress.rules.egress_policy import Code, Denied
from sandbox.egress.rules.grammar import Address, Host

type Lookup = Callable[[str], list[str]]
DEADLINE_S = 5.0
MOST_ADDRESSES = 16
_THREADS = 32
# A server of names that never answers holds up its own run, and then its organization.
_PER_RUN, _PER_ORGANIZATION = 4, 8
MOST_DIALLED = 4
CONNECT_S = 5.0
# Where distributions keep theirs; Python knows only the place its OpenSSL was built for.
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def system_lookup(name: str) -> list[str]:
    """Addresses in the system's order of preference. Raises OSError."""
    # Bytes, so that Python does not apply its older IDNA rules.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


def prepare_system_lookup() -> None:
    """Before the first lookup: only the name that was asked for, and a slow server is given up.

    A search list would turn an allowed `api` into `api.corp.example`, which no rule allowed.
    """
    os.environ["LOCALDOMAIN"] = ""
    os.environ["RES_OPTIONS"] = "timeout:2 attempts:2"


class LookupLimit:
    """How many lookups a run may have under way, given up or not. Those of one organization share
    theirs; without a name, nothing is shared."""

    def __init__(self, organization: str = "") -> None:
        self.organization = organization
        self.places = asyncio.Semaphore(_PER_RUN)


class Resolver:
    def __init__(self, lookup: Lookup = system_lookup, deadline_s: float = DEADLINE_S) -> None:
        self._lookup, self._deadline_s = lookup, deadline_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lookup")
        # By event loop too: a process may have several, and a semaphore belongs to one.
        self._places: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = (
            WeakValueDictionary()
        )

    async def addresses(self, host: Host, turns: LookupLimit) -> list[Address]:
        """An address is its own answer. Raises Denied: with LOOKUP_LIMIT where the name was not
        asked for in time, with NAME_NOT_RESOLVED where there was no answer."""
        if host.address is not None:
            return [host.address]
        try:
            texts = await self._ask(host, turns)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            texts = []
        if not texts:
            raise Denied(Code.NAME_NOT_RESOLVED, f"{host} has no address")
        return [ip_address(text) for text in dict.fromkeys(texts)][:MOST_ADDRESSES]

    async def _ask(self, host: Host, turns: LookupLimit) -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline_s
        taken = await self._take(host, turns, deadline)
        answer = self._threads.submit(self._lookup, host.text)
        answer.add_done_callback(lambda _: _run_in_thread(loop, taken.close))
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            if answer.cancelled():
                raise _lookup_failed(host, "everybody's lookups") from None
            raise

    async def _take(self, host: Host, turns: LookupLimit, deadline: float) -> ExitStack:
        """A place of the run's and one of its organization's, to be closed where it was opened."""
        shares = {"the run's lookups": turns.places}
        if turns.organization:
            made = asyncio.Semaphore(_PER_ORGANIZATION)
            key = id(asyncio.get_running_loop()), turns.organization
            shared = self._places.setdefault(key, made)
            shares["the organization's lookups"] = shared
        with ExitStack() as undo:
            for whose, places in shares.items():
                try:
                    async with asyncio.timeout_at(deadline):
                        await places.acquire()
                except TimeoutError:
                    raise _lookup_failed(host, whose) from None
                undo.callback(places.release)
            return undo.pop_all()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


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

    def for_organization(self, organization: str) -> "Dialer":
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


def client_context(ca_file: str = "", bundles: Iterable[str] = SYSTEM_BUNDLES) -> ssl.SSLContext:
    """The system's authorities and one of the operator's own. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if bundle := system_bundle(bundles):
        context.load_verify_locations(bundle)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


def system_bundle(bundles: Iterable[str] = SYSTEM_BUNDLES) -> str:
    """The system's file, which its administrator keeps; a wheel's only where there is none.

    Empty when there is neither: then no certificate is believed but the operator's own.
    """
    known = ssl.get_default_verify_paths().cafile
    for path in (known, *bundles):
        if path and Path(path).is_file():
            return path
    return _packaged_bundle()


def _lookup_failed(host: Host, whose: str) -> Denied:
    return Denied(Code.LOOKUP_LIMIT, f"{host} was not looked up: {whose} do not end")


def _run_in_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Called in the thread that looked up."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(work)


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


def _packaged_bundle() -> str:
    found = importlib.util.find_spec("certifi")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "cacert.pem")
