"""Who we are to an authorization server: registered before, by a document, or just now."""

import base64
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tools.mcpclient.errors import Unusable
from tools.mcpclient.fetching import (
    AuthorizationFailed,
    Fetch,
    as_json,
    checked_url,
    is_loopback,
    json_object,
)
from tools.mcpclient.http import Headers
from tools.mcpclient.oauth_discovery import Issuer

BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"
_LONGEST = 4_096
_SOON_S = 60.0


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
        if self.method == BASIC:
            pair = f"{quote(self.id, safe='')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
            return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")], form
        form = form | {"client_id": self.id}
        return [], form | {"client_secret": self.secret} if self.method == POST else form


@dataclass(frozen=True)
class Identity:
    """What an installation says of itself. `document` is the URL of a client metadata document
    that the operator publishes; `registered` what an administrator entered."""

    redirect_uri: str
    name: str = "Toolcrib"
    document: str = ""
    registered: OAuthClient | None = None


async def client_at(
    fetch: Fetch, issuer: Issuer, identity: Identity, known: OAuthClient | None
) -> OAuthClient:
    """Raises UpstreamFailure."""
    if identity.registered is not None:
        return bound(identity.registered, issuer)
    if known is not None and _still_good(known, issuer, identity):
        return known
    if identity.document and issuer.takes_documents:
        return OAuthClient(identity.document, "", NONE, issuer.issuer, identity.redirect_uri)
    if not issuer.registration_endpoint:
        raise AuthorizationFailed(
            "The authorization server registers no clients by itself; enter one by hand."
        )
    return await _registered(fetch, issuer, identity)


def bound(client: OAuthClient, issuer: Issuer) -> OAuthClient:
    """Raises AuthorizationFailed where it belongs to another one."""
    if client.issuer not in {"", issuer.issuer}:
        raise AuthorizationFailed(
            "The MCP server has another authorization server now than its client was entered for."
        )
    method = client.method or _method(client.secret, issuer)
    return OAuthClient(client.id, client.secret, method, issuer.issuer, client.redirect_uri)


def _still_good(known: OAuthClient, issuer: Issuer, identity: Identity) -> bool:
    own = (known.issuer, known.redirect_uri) == (issuer.issuer, identity.redirect_uri)
    return own and not (known.expires_at and known.expires_at < time.time() + _SOON_S)


def _method(secret: str, issuer: Issuer) -> str:
    """Without a word of the server's the secret goes into the header (RFC 8414, 2)."""
    if not secret:
        return NONE
    offered = issuer.token_auth_methods or (BASIC,)
    return next((one for one in (BASIC, POST, NONE) if one in offered), BASIC)


async def _registered(fetch: Fetch, issuer: Issuer, identity: Identity) -> OAuthClient:
    """RFC 7591."""
    native = is_loopback(checked_url(identity.redirect_uri))
    wanted = {
        "client_name": identity.name,
        "redirect_uris": [identity.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _method("wanted", issuer),
        "application_type": "native" if native else "web",
    }
    answer = await fetch("POST", issuer.registration_endpoint, *as_json(wanted))
    if answer.status not in {200, 201}:
        raise AuthorizationFailed(
            f"The authorization server did not register us (status {answer.status})."
        )
    return _read(json_object(answer), issuer, identity)


def _read(found: dict[str, Any], issuer: Issuer, identity: Identity) -> OAuthClient:
    own, secret, method = (
        found.get(key) or "" for key in ("client_id", "client_secret", "token_endpoint_auth_method")
    )
    if not own or not all(
        isinstance(one, str) and len(one) <= _LONGEST for one in (own, secret, method)
    ):
        raise Unusable("The authorization server registered us in a way that cannot be used.")
    method = method or _method(secret, issuer)
    if method not in {BASIC, POST, NONE} or (method != NONE and not secret):
        raise Unusable("The authorization server wants a way of authentication we do not have.")
    until = found.get("client_secret_expires_at", 0)
    expires_at = float(until) if isinstance(until, int | float) else 0.0
    return OAuthClient(own, secret, method, issuer.issuer, identity.redirect_uri, expires_at)
