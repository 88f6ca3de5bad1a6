"""Tokens, and the one request that gives them."""

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self
from urllib.parse import urlencode

from tools.mcpclient.challenge import parse_scopes
from tools.mcpclient.errors import InvalidAnswer, UpstreamFailure, UpstreamUnavailable
from tools.mcpclient.fetching import AuthorizationFailed, Fetch, FetchResponse, parse_json_object
from tools.mcpclient.oauth_clients import OAuthClient

_LONGEST_TOKEN = 16_384
_TOKEN_CHARACTERS = re.compile(r"[A-Za-z0-9._~+/=-]+|[\x21-\x7e]+")
_LONGEST_LIFETIME_S = 10 * 365 * 86_400.0
# Any other word could be a secret that is echoed.
_OAUTH_ERRORS = frozenset(
    (
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
        "unsupported_response_type",
    )
)


@dataclass(frozen=True)
class _StoredAuthorization:
    client: OAuthClient

    def stored(self) -> dict[str, Any]:
        """As JSON can hold it; with its secrets."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        given = dict(stored)
        given["client"] = OAuthClient(**given["client"])
        given["scope"] = tuple(given["scope"])
        return cls(**given)


@dataclass(frozen=True)
class PendingAuthorization(_StoredAuthorization):
    """Between the way to the browser and the way back."""

    issuer: str
    token_endpoint: str
    names_itself: bool
    resource: str
    scope: tuple[str, ...]
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    steps_up: int = 0


@dataclass(frozen=True)
class OAuthTokens(_StoredAuthorization):
    """`scope` is what was asked for so far. `expires_at` in seconds since 1970; 0 when unknown."""

    issuer: str
    token_endpoint: str
    resource: str
    scope: tuple[str, ...]
    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    expires_at: float = 0.0
    steps_up: int = 0

    @property
    def header(self) -> tuple[str, str]:
        return "Authorization", f"Bearer {self.access}"


async def request_tokens(fetch: Fetch, before: OAuthTokens, form: dict[str, str]) -> OAuthTokens:
    headers, form = before.client.authenticated(form | {"resource": before.resource})
    headers += [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Accept", "application/json"),
    ]
    answer = await fetch("POST", before.token_endpoint, headers, urlencode(form).encode())
    if answer.status != 200:
        raise _token_error(answer)
    return _read_tokens(parse_json_object(answer), before)


def _token_error(answer: FetchResponse) -> UpstreamFailure:
    words = f"The authorization server gave no token (status {answer.status})"
    if answer.status == 429 or answer.status >= 500:
        return UpstreamUnavailable(f"{words}.")
    try:
        return authorization_error(parse_json_object(answer).get("error"), words)
    except InvalidAnswer:
        return AuthorizationFailed(f"{words}.")


def authorization_error(error: object, words: str) -> AuthorizationFailed:
    if isinstance(error, str) and error in _OAUTH_ERRORS:
        return AuthorizationFailed(f"{words}: {error}.", error)
    return AuthorizationFailed(f"{words}.")


def _read_tokens(found: dict[str, Any], before: OAuthTokens) -> OAuthTokens:
    """A refresh token that is not replaced stays good."""
    access, refresh = found.get("access_token"), found.get("refresh_token") or before.refresh
    kind = found.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise InvalidAnswer("The authorization server gave no bearer token.")
    for token in (access, refresh or "none"):
        if (
            not isinstance(token, str)
            or len(token) > _LONGEST_TOKEN
            or not _TOKEN_CHARACTERS.fullmatch(token)
        ):
            raise InvalidAnswer("The authorization server gave a token that no header can carry.")
    stored = before.stored() | {
        "access": access,
        "refresh": refresh,
        "expires_at": _expiry(found.get("expires_in")),
        "scope": tuple(
            dict.fromkeys((*before.scope, *parse_scopes(_scope_text(found.get("scope")))))
        ),
    }
    return OAuthTokens.restored(stored)


def _expiry(seconds: object) -> float:
    if isinstance(seconds, str) and re.fullmatch(r"[0-9]{1,10}", seconds):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        return 0.0
    return time.time() + min(float(seconds), _LONGEST_LIFETIME_S)


def _scope_text(scope: object) -> str:
    return scope if isinstance(scope, str) else ""
