"""The client side of the authorization of MCP (2025-11-25 and 2026-07-28).

    url, pending = await begin_authorization(fetch, server_url, identity, challenge)
    # the browser goes to `url`; the query of the redirect URI are the `parameters`
    tokens = await finish_authorization(fetch, pending, parameters)
    tokens = await refresh_tokens(fetch, tokens)

Nothing is stored here: the caller stores `pending` and the tokens encrypted, and refreshes them in
one process at a time, since a refresh token may be valid once.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self
from urllib.parse import urlencode

from tools.mcpclient.authorization_servers import (
    AuthorizationFailed,
    AuthorizationServer,
    ClientIdentity,
    Fetch,
    FetchResponse,
    OAuthClient,
    ProtectedResource,
    bind_client,
    find_authorization_server,
    find_client,
    find_resource,
    parse_json_object,
)
from tools.mcpclient.errors import (
    MOST_SCOPES,
    NO_CHALLENGE,
    AuthenticationChallenge,
    InvalidAnswer,
    UpstreamFailure,
    UpstreamUnavailable,
    parse_scopes,
)

MOST_STEP_UPS = 3
_LONGEST_TOKEN = 16_384
_TOKEN_CHARACTERS = re.compile(r"[A-Za-z0-9._~+/=-]+|[\x21-\x7e]+")
_LONGEST_LIFETIME_S = 10 * 365 * 86_400.0
_OFFLINE_SCOPE = "offline_access"
_CODE_CHALLENGE_METHOD = "S256"  # PKCE: RFC 7636
# Other texts are not quoted: they may repeat a secret.
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
        """The authorization as a JSON object with its secrets."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        fields = dict(stored)
        fields["client"] = OAuthClient(**fields["client"])
        fields["scope"] = tuple(fields["scope"])
        return cls(**fields)


@dataclass(frozen=True)
class PendingAuthorization(_StoredAuthorization):
    """An authorization that waits for the response of the browser."""

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
    """`scope` is all that was requested. `expires_at` in seconds since 1970; 0 if unknown."""

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


async def _request_tokens(fetch: Fetch, previous: OAuthTokens, form: dict[str, str]) -> OAuthTokens:
    headers, form = previous.client.authenticate(form | {"resource": previous.resource})
    headers += [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Accept", "application/json"),
    ]
    answer = await fetch("POST", previous.token_endpoint, headers, urlencode(form).encode())
    if answer.status != 200:
        raise _token_error(answer)
    return _read_tokens(parse_json_object(answer), previous)


def _token_error(answer: FetchResponse) -> UpstreamFailure:
    message = f"The authorization server gave no token (status {answer.status})"
    if answer.status == 429 or answer.status >= 500:
        return UpstreamUnavailable(f"{message}.")
    try:
        return _authorization_error(parse_json_object(answer).get("error"), message)
    except InvalidAnswer:
        return AuthorizationFailed(f"{message}.")


def _authorization_error(error: object, message: str) -> AuthorizationFailed:
    if isinstance(error, str) and error in _OAUTH_ERRORS:
        return AuthorizationFailed(f"{message}: {error}.", error)
    return AuthorizationFailed(f"{message}.")


def _read_tokens(answer: dict[str, Any], previous: OAuthTokens) -> OAuthTokens:
    """A refresh token that is not replaced stays valid."""
    access, refresh = answer.get("access_token"), answer.get("refresh_token") or previous.refresh
    kind = answer.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise InvalidAnswer("The authorization server gave no bearer token.")
    for token in (access, refresh or "none"):
        if (
            not isinstance(token, str)
            or len(token) > _LONGEST_TOKEN
            or not _TOKEN_CHARACTERS.fullmatch(token)
        ):
            raise InvalidAnswer("The authorization server gave a token that no header can carry.")
    scope = answer.get("scope")
    scopes = parse_scopes(scope) if isinstance(scope, str) else ()
    stored = previous.stored() | {
        "access": access,
        "refresh": refresh,
        "expires_at": _expiry(answer.get("expires_in")),
        "scope": tuple(dict.fromkeys((*previous.scope, *scopes))),
    }
    return OAuthTokens.restored(stored)


def _expiry(seconds: object) -> float:
    if isinstance(seconds, str) and re.fullmatch(r"[0-9]{1,10}", seconds):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        return 0.0
    return time.time() + min(float(seconds), _LONGEST_LIFETIME_S)


def _code_challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def begin_authorization(
    fetch: Fetch,
    server_url: str,
    identity: ClientIdentity,
    challenge: AuthenticationChallenge = NO_CHALLENGE,
    previous: OAuthTokens | None = None,
) -> tuple[str, PendingAuthorization]:
    """The URL for the browser. `previous` are tokens that are no longer valid or sufficient.

    Raises UpstreamFailure.
    """
    resource, server = await _discover(fetch, server_url, challenge, identity.registered, previous)
    if not server.authorization_endpoint or not server.token_endpoint:
        raise AuthorizationFailed("The authorization server has no endpoint for consent.")
    if _CODE_CHALLENGE_METHOD not in server.challenge_methods:
        raise AuthorizationFailed("The authorization server does not say that it knows PKCE S256.")
    if previous is not None and previous.issuer != server.issuer:
        previous = None  # they belong to another server
    scope, steps_up = _requested_scope(challenge, resource, server, previous)
    known = previous.client if previous else None
    pending = PendingAuthorization(
        await find_client(fetch, server, identity, known),
        server.issuer,
        server.token_endpoint,
        server.names_itself,
        resource.resource,
        scope,
        identity.redirect_uri,
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(48),
        steps_up,
    )
    return _authorization_url(server, pending), pending


async def finish_authorization(
    fetch: Fetch, pending: PendingAuthorization, parameters: Mapping[str, str]
) -> OAuthTokens:
    """`parameters` are those of the redirect URI's query. Raises UpstreamFailure."""
    if not hmac.compare_digest(
        parameters.get("state", "").encode("utf-8", "replace"), pending.state.encode()
    ):
        raise AuthorizationFailed("The answer belongs to no consent that was requested here.")
    issuer = parameters.get("iss")
    if (issuer is None and pending.names_itself) or issuer not in {None, pending.issuer}:
        raise AuthorizationFailed("The answer comes from another authorization server.")  # RFC 9207
    if "error" in parameters:
        raise _authorization_error(parameters["error"], "The authorization server refused")
    if not parameters.get("code"):
        raise AuthorizationFailed("The answer has no code.")
    form = {
        "grant_type": "authorization_code",
        "code": parameters["code"],
        "redirect_uri": pending.redirect_uri,
        "code_verifier": pending.verifier,
    }
    blank = OAuthTokens(
        pending.client,
        pending.issuer,
        pending.token_endpoint,
        pending.resource,
        pending.scope,
        "",
        steps_up=pending.steps_up,
    )
    return await _request_tokens(fetch, blank, form)


async def refresh_tokens(fetch: Fetch, tokens: OAuthTokens) -> OAuthTokens:
    """Raises UpstreamFailure; AuthorizationFailed if a new consent is necessary."""
    if not tokens.refresh:
        raise AuthorizationFailed("The authorization has no refresh token.")
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
    return await _request_tokens(fetch, tokens, form)


async def request_client_credentials(
    fetch: Fetch,
    server_url: str,
    client: OAuthClient,
    challenge: AuthenticationChallenge = NO_CHALLENGE,
    previous: OAuthTokens | None = None,
) -> OAuthTokens:
    """Tokens for the client itself, without a user's consent. Raises UpstreamFailure."""
    resource, server = await _discover(fetch, server_url, challenge, client, previous)
    if not server.token_endpoint:
        raise AuthorizationFailed("The authorization server gives no tokens.")
    if previous is not None and previous.issuer != server.issuer:
        previous = None
    scope, steps_up = _requested_scope(challenge, resource, server, previous)
    scope = tuple(one for one in scope if one != _OFFLINE_SCOPE)
    form = {"grant_type": "client_credentials"} | ({"scope": " ".join(scope)} if scope else {})
    blank = OAuthTokens(
        bind_client(client, server),
        server.issuer,
        server.token_endpoint,
        resource.resource,
        scope,
        "",
        steps_up=steps_up,
    )
    return await _request_tokens(fetch, blank, form)


async def _discover(
    fetch: Fetch,
    server_url: str,
    challenge: AuthenticationChallenge,
    entered: OAuthClient | None,
    previous: OAuthTokens | None,
) -> tuple[ProtectedResource, AuthorizationServer]:
    """The MCP server's metadata, and its known authorization server, else the first."""
    resource = await find_resource(fetch, server_url, challenge)
    known = [entered.issuer if entered else "", previous.issuer if previous else ""]
    chosen = next((one for one in known if one in resource.issuers), resource.issuers[0])
    return resource, await find_authorization_server(fetch, chosen)


def _requested_scope(
    challenge: AuthenticationChallenge,
    resource: ProtectedResource,
    server: AuthorizationServer,
    previous: OAuthTokens | None,
) -> tuple[tuple[str, ...], int]:
    """The scope to request, which includes the previous one, and the number of step-ups.

    Raises AuthorizationFailed if another request would change nothing.
    """
    requested = previous.scope if previous else ()
    steps_up = previous.steps_up if previous else 0
    if challenge.insufficient_scope and previous is not None:
        steps_up += 1
        if set(challenge.scope) <= set(requested) or steps_up > MOST_STEP_UPS:
            raise AuthorizationFailed("The MCP server wants rights that consent did not bring.")
    scope = tuple(dict.fromkeys((*requested, *(challenge.scope or resource.scopes))))
    if scope and _OFFLINE_SCOPE in server.scopes:
        scope = tuple(dict.fromkeys((*scope, _OFFLINE_SCOPE)))
    if len(scope) > MOST_SCOPES:
        raise AuthorizationFailed(f"The MCP server wants more than {MOST_SCOPES} rights.")
    return scope, steps_up


def _authorization_url(server: AuthorizationServer, pending: PendingAuthorization) -> str:
    query = {
        "response_type": "code",
        "client_id": pending.client.id,
        "redirect_uri": pending.redirect_uri,
        "state": pending.state,
        "code_challenge": _code_challenge(pending.verifier),
        "code_challenge_method": _CODE_CHALLENGE_METHOD,
        "resource": pending.resource,
    }
    if pending.scope:
        query["scope"] = " ".join(pending.scope)
    if _OFFLINE_SCOPE in pending.scope:
        query["prompt"] = "consent"  # OpenID Connect requires it for a refresh token
    separator = "&" if "?" in server.authorization_endpoint else "?"
    return f"{server.authorization_endpoint}{separator}{urlencode(query)}"
