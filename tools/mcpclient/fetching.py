"""Single requests to authorization servers: guarded like calls, small answers only."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from sandbox import untrusted_json
from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.mcpclient.errors import AnswerLost, InvalidAnswer, UpstreamRefused, UpstreamUnavailable
from tools.mcpclient.http import Headers, OriginConnections

MOST_FETCHED_BYTES = 256 * 1024
FETCH_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class FetchResponse:
    """An answer, whatever its status. What is in it may be secret."""

    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Fetch = Callable[[str, str, Headers, bytes], Awaitable[FetchResponse]]  # method, URL, headers, body


class AuthorizationFailed(UpstreamRefused):
    """Definite. `error` is the code of OAuth where there was one that we know."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class Fetcher:
    """`dialer` gives the one for a scheme; the one for http reaches nothing but what the operator
    opened. Redirects are answers, they are not followed."""

    def __init__(self, dialer: Callable[[str], Dialer], timeout_s: float = FETCH_TIMEOUT_S) -> None:
        self._dialer, self._timeout_s = dialer, timeout_s

    async def __call__(self, method: str, url: str, headers: Headers, body: bytes) -> FetchResponse:
        """Raises NeverBegan, Lost, Unusable, AuthorizationFailed."""
        target = parse_authorization_url(url)
        origin = OriginConnections(target, self._dialer(target.scheme))
        try:
            async with asyncio.timeout(self._timeout_s):
                wanted = [*headers, ("User-Agent", "toolcrib")]
                async with origin.exchange(method, target.target, wanted, body) as answer:
                    whole = await answer.whole(MOST_FETCHED_BYTES)
                    return FetchResponse(answer.status, answer.headers, whole)
        except TimeoutError:
            raise AnswerLost("The authorization server did not answer in time.") from None
        except (UpstreamUnavailable, AnswerLost, InvalidAnswer) as problem:
            words = str(problem).replace("MCP server", "authorization server")
            raise type(problem)(words) from None
        finally:
            origin.close()


def parse_authorization_url(text: object) -> Url:
    """https, or http to this machine. Raises AuthorizationFailed, which does not quote it."""
    try:
        url = Url.parse(text if isinstance(text, str) else "")
    except BrokenGrammar as flaw:
        raise AuthorizationFailed(f"An address for authorization is of no use: {flaw}.") from None
    if url.scheme == "http" and not is_loopback(url):
        raise AuthorizationFailed("An address for authorization is not https.")
    return url


def is_loopback(url: Url) -> bool:
    if url.host.address is not None:
        return ip_address(url.host.text).is_loopback
    return url.host.text == "localhost"


def parse_json_object(answer: FetchResponse) -> dict[str, Any]:
    """Raises Unusable."""
    try:
        found = untrusted_json.parse(answer.body)
    except untrusted_json.HostileJson as flaw:
        raise InvalidAnswer(f"The authorization server's answer cannot be read: {flaw}.") from None
    if not isinstance(found, dict):
        raise InvalidAnswer("The authorization server's answer is no JSON object.")
    return found


def json_request(value: dict[str, Any]) -> tuple[Headers, bytes]:
    headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
    return headers, json.dumps(value).encode()
