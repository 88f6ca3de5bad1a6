"""Who we are to an authorization server: registered before, by a document, or just now."""

import base64
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tools.mcpclient.errors import InvalidAnswer
from tools.mcpclient.fetching import (
    AuthorizationFailed,
    Fetch,
    is_loopback,
    json_request,
    parse_authorization_url,
    parse_json_object,
)
from tools.mcpclient.http import Headers
from tools.mcpclient.oauth_discovery import AuthorizationServer

AUTH_BASIC, AUTH_POST, AUTH_NONE = "client_secret_basic", "client_secret_post", "none"
_LONGEST_CLIENT_TEXT = 4_096
_EXPIRY_MARGIN_S = 60.0


@dataclass(frozen=True)
class OAuthClient:
    """Good at one issuer alone. Where that is empty, it is bound to the first one."""

    id: str
    secret: str = field(default="", repr=False)
    method: str = ""
    issuer: str = ""
    redirect_uri: str = ""
    expires_at: float = 0.0  # 0: never

    def authenticated(self, form: dict[str, str]) -> tuple[Headers, dict[str, str]]:
        """The headers and the form of a token request, with who we are in one of them."""
        if self.method == AUTH_BASIC:
            pair = f"{quote(self.id, safe='')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
            return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")], form
        form = form | {"client_id": self.id}
        return [], form | {"client_secret": self.secret} if self.method == AUTH_POST else form


@dataclass(frozen=True)
class ClientIdentity:
    """What an installation says of itself. `document` is the URL of a client metadata document
    that the operator publishes; `registered` what an administrator entered."""

    redirect_uri: str
    name: str = "Toolcrib"
    document: str = ""
    registered: OAuthClient | None = None


async def find_client(
    fetch: Fetch, issuer: AuthorizationServer, identity: ClientIdentity, known: OAuthClient | None
) -> OAuthClient:
    """Raises UpstreamFailure."""
    if identity.registered is not None:
        return bind_client(identity.registered, issuer)
    if known is not None and _is_usable(known, issuer, identity):
        return known
    if identity.document and issuer.takes_documents:
        return OAuthClient(identity.document, "", AUTH_NONE, issuer.issuer, identity.redirect_uri)
    if not issuer.registration_endpoint:
        raise AuthorizationFailed(
            "The authorization server registers no clients by itself; enter one by hand."
        )
    return await _register_client(fetch, issuer, identity)


def bind_client(client: OAuthClient, issuer: AuthorizationServer) -> OAuthClient:
    """Raises AuthorizationFailed where it belongs to another one."""
    if client.issuer not in {"", issuer.issuer}:
        raise AuthorizationFailed(
            "The MCP server has another authorization server now than its client was entered for."
        )
    method = client.method or _authentication_method(client.secret, issuer)
    return OAuthClient(client.id, client.secret, method, issuer.issuer, client.redirect_uri)


def _is_usable(known: OAuthClient, issuer: AuthorizationServer, identity: ClientIdentity) -> bool:
    own = (known.issuer, known.redirect_uri) == (issuer.issuer, identity.redirect_uri)
    return own and not (known.expires_at and known.expires_at < time.time() + _EXPIRY_MARGIN_S)


def _authentication_method(secret: str, issuer: AuthorizationServer) -> str:
    """Without a word of the server's the secret goes into the header (RFC 8414, 2)."""
    if not secret:
        return AUTH_NONE
    offered = issuer.token_auth_methods or (AUTH_BASIC,)
    return next((one for one in (AUTH_BASIC, AUTH_POST, AUTH_NONE) if one in offered), AUTH_BASIC)


async def _register_client(
    fetch: Fetch, issuer: AuthorizationServer, identity: ClientIdentity
) -> OAuthClient:
    """RFC 7591."""
    native = is_loopback(parse_authorization_url(identity.redirect_uri))
    wanted = {
        "client_name": identity.name,
        "redirect_uris": [identity.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _authentication_method("wanted", issuer),
        "application_type": "native" if native else "web",
    }
    answer = await fetch("POST", issuer.registration_endpoint, *json_request(wanted))
    if answer.status not in {200, 201}:
        raise AuthorizationFailed(
            f"The authorization server did not register us (status {answer.status})."
        )
    return _read_registration(parse_json_object(answer), issuer, identity)


def _read_registration(
    found: dict[str, Any], issuer: AuthorizationServer, identity: ClientIdentity
) -> OAuthClient:
    own, secret, method = (
        found.get(key) or "" for key in ("client_id", "client_secret", "token_endpoint_auth_method")
    )
    if not own or not all(
        isinstance(one, str) and len(one) <= _LONGEST_CLIENT_TEXT for one in (own, secret, method)
    ):
        raise InvalidAnswer("The authorization server registered us in a way that cannot be used.")
    method = method or _authentication_method(secret, issuer)
    if method not in {AUTH_BASIC, AUTH_POST, AUTH_NONE} or (method != AUTH_NONE and not secret):
        raise InvalidAnswer(
            "The authorization server wants a way of authentication we do not have."
        )
    until = found.get("client_secret_expires_at", 0)
    expires_at = float(until) if isinstance(until, int | float) else 0.0
    return OAuthClient(own, secret, method, issuer.issuer, identity.redirect_uri, expires_at)
