"""Egress checks of a run: every request and every tunnel passes all of them, in order."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sandbox.egress.dial import Dialer, UpstreamConnection
from sandbox.egress.entry_points.messages import (
    EgressRequest,
    EgressResponse,
    EgressUpstream,
    check,
    outgoing,
)
from sandbox.egress.entry_points.streams import ByteStream
from sandbox.egress.ledger import EgressLedgerEntry, Ledger, host_in_authority, host_in_url
from sandbox.egress.rules.egress_policy import Code, Denied, EgressPolicy
from sandbox.egress.rules.grammar import BadHost, BrokenGrammar, Host, Url, parse_authority
from sandbox.egress.rules.host_rules import Rules

HELPER, PROXY, TUNNEL = "helper", "proxy", "tunnel"
TIRING = frozenset({Code.REQUEST_LIMIT, Code.CONNECTION_LIMIT})
_PENALTY_STEP_S = 0.002
_MOST_PENALTY_S = 0.5


class RunEgress:
    """Of one run. Raises SpecInvalid for an invalid policy."""

    def __init__(self, policy: EgressPolicy, dialer: Dialer, organization: str = "") -> None:
        self.limits = policy.limits
        self.ledger = Ledger(policy.limits)
        self._rules = Rules(policy)
        self._dialer = dialer
        self._turns = dialer.for_organization(organization).turns()
        self._patience = asyncio.Lock()
        self._penalties = 0

    async def slow_down(self) -> None:
        """For a run that goes on asking when it has had its share: each answer takes longer."""
        self._penalties += 1
        async with self._patience:
            await asyncio.sleep(min(self._penalties * _PENALTY_STEP_S, _MOST_PENALTY_S))

    @asynccontextmanager
    async def request(self, door: str, request: EgressRequest) -> AsyncIterator[EgressResponse]:
        """The answer, its body still to come. No redirect is followed. Raises Denied."""
        with self.ledger.attempt(door) as entry:
            async with self._in_time(request.timeout_s):
                entry.method, entry.host = request.method, host_in_url(request.url)
                self.ledger.check_share()
                url = _read(request, entry)
                rule = self._rules.admit(request.method, url)
                line = await self._connect(entry, url.host, url.port)
                try:
                    secret = url.scheme == "https" or line.opened
                    head = outgoing(request, url, rule.headers if secret else ())
                    stream = await self._stream(url, line)
                    upstream = EgressUpstream(stream, entry)
                    await upstream.send(head, request.body)
                    answer = await upstream.answer()
                    entry.status = answer.status
                    yield answer
                finally:
                    line.stream.close()

    @asynccontextmanager
    async def tunnel(
        self, authority: str
    ) -> AsyncIterator[tuple[UpstreamConnection, Host, int, EgressLedgerEntry]]:
        """A connection to look after for who carries its bytes. Raises Denied."""
        with self.ledger.attempt(TUNNEL) as entry:
            async with self._in_time(None):
                entry.method, entry.host = "CONNECT", host_in_authority(authority)
                self.ledger.check_share()
                with _malformed_denied():
                    host, port = parse_authority(authority)
                entry.host, entry.port = host.text, port
                self._rules.admit_tunnel(host, port)
                line = await self._connect(entry, host, port)
                try:
                    yield line, host, port, entry
                finally:
                    line.stream.close()

    async def _connect(self, entry: EgressLedgerEntry, host: Host, port: int) -> UpstreamConnection:
        line = await self._dialer.connect(host, port, self._turns)
        entry.address = str(line.address)
        return line

    async def _stream(self, url: Url, line: UpstreamConnection) -> ByteStream:
        return await self._dialer.secure(line, url.host) if url.scheme == "https" else line.stream

    @asynccontextmanager
    async def _in_time(self, wished_s: float | None) -> AsyncIterator[None]:
        limit_s = self.limits.request_s
        try:
            async with asyncio.timeout(limit_s if wished_s is None else min(wished_s, limit_s)):
                yield
        except TimeoutError:
            raise Denied(Code.TIMEOUT, "the request took too long") from None


def _read(request: EgressRequest, entry: EgressLedgerEntry) -> Url:
    with _malformed_denied():
        url = Url.parse(request.url)
    entry.host, entry.port = url.host.text, url.port
    check(request.headers)
    return url


@contextmanager
def _malformed_denied() -> Iterator[None]:
    try:
        yield
    except BadHost as reason:
        raise Denied(Code.HOST_INVALID, str(reason)) from None
    except BrokenGrammar as reason:
        raise Denied(Code.REQUEST_INVALID, str(reason)) from None
