"""An OpenID Connect client for identity providers: authorization code flow with PKCE.

Authlib keeps state, nonce and verifier in the session, and checks the ID token: its signature by
the provider's keys, issuer, audience, times and nonce. What it does not require is checked here:
the issuer of the settings, signatures with two keys, and our client among the audience.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.http import HttpRequest
from joserfc.errors import JoseError

from tools.errors import Forbidden, Unavailable

_TIMEOUT_S = 10
_METADATA_S = 3600  # metadata of the provider is fetched again after so long
_MAX_PENDING = 5
_PENDING_S = 600  # lifetime of the session in a browser that is not logged in
_LEEWAY_S = 60
_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_STATE = "_state_oidc_"
# Errors that Authlib raises, also for malformed responses of a provider.
_AUTHLIB_ERRORS = (
    OAuthError,
    JoseError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
)


@dataclass(frozen=True)
class ProviderIdentity:
    """The identity that the provider asserts. Only issuer and subject identify it."""

    issuer: str
    subject: str
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    groups: frozenset[str] = frozenset()
    strong: bool = False
    at: float = 0.0


def is_configured() -> bool:
    return bool(settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID)


def begin_login(
    request: HttpRequest, redirect_uri: str, *, purpose: str, onwards: str, again: bool = False
) -> str:
    """The provider's address to send the browser to. Raises `Unavailable`."""
    more = {"prompt": "login", "max_age": "0"} if again else {}
    try:
        client = _client()
        made = client.create_authorization_url(redirect_uri, **more)
    except (requests.RequestException, *_AUTHLIB_ERRORS):
        raise _unavailable() from None
    _forget_oldest(request)
    if not request.user.is_authenticated:  # open to every client, so the session is short
        request.session.set_expiry(_PENDING_S)
    client.save_authorize_data(
        request, redirect_uri=redirect_uri, purpose=purpose, onwards=onwards, **made
    )
    return str(made["url"])


def finish_login(request: HttpRequest) -> tuple[ProviderIdentity, str, str]:
    """The identity, the purpose of the login, and the page to continue at. Valid once.

    Raises `Forbidden` for a response to no login of this session, and `Unavailable`.
    """
    try:
        client = _client()
        state = client.framework.get_state_data(request.session, request.GET.get("state")) or {}
        wants = {"essential": True}
        token = client.authorize_access_token(
            request,
            claims_options={
                "iss": wants | {"value": settings.OIDC_ISSUER},
                "aud": wants | {"value": settings.OIDC_CLIENT_ID},
                "sub": wants,
            },
            leeway=_LEEWAY_S,
        )
        claims = dict(token["userinfo"])
        said = claims | _userinfo_groups(client, token, claims)
        return _identity(said), str(state["purpose"]), str(state["onwards"])
    except requests.RequestException:
        raise _unavailable() from None
    except _AUTHLIB_ERRORS:
        raise Forbidden(
            "The identity provider's answer is not good, or not for this browser. Begin again.",
            code="single_sign_on_failed",
        ) from None


def _client() -> Any:
    """Raises `ValueError` where the provider's metadata has another issuer."""
    told = (settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)
    client = _register_client(*told, settings.OIDC_SCOPES, int(time.time()) // _METADATA_S)
    metadata = client.load_server_metadata()
    if metadata.get("issuer") != settings.OIDC_ISSUER:
        raise ValueError("another issuer")
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    good = sorted(_ALGORITHMS.intersection(offered))
    if not good:
        raise ValueError("no algorithm that will do")
    metadata["id_token_signing_alg_values_supported"] = good
    return client


@lru_cache(maxsize=2)
def _register_client(issuer: str, client_id: str, secret: str, scopes: str, _: int) -> Any:
    options = {"scope": scopes, "code_challenge_method": "S256", "default_timeout": _TIMEOUT_S}
    if not secret:
        options["token_endpoint_auth_method"] = "none"  # noqa: S105
    return OAuth().register(
        "oidc",
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_id=client_id,
        client_secret=secret or None,
        client_kwargs=options,
    )


def _userinfo_groups(client: Any, token: Any, claims: Mapping[str, Any]) -> dict[str, Any]:
    """The groups, from where some providers keep them."""
    wanted = settings.OIDC_GROUPS_CLAIM
    if wanted in claims or not client.server_metadata.get("userinfo_endpoint"):
        return {}
    given = {"access_token": token["access_token"], "token_type": "Bearer"}
    found = client.userinfo(token=given)
    if found.get("sub") != claims["sub"]:
        raise ValueError("somebody else")
    return {wanted: found.get(wanted)}


def _identity(claims: Mapping[str, Any]) -> ProviderIdentity:
    def text(name: str, longest: int = 150) -> str:
        value = claims.get(name)
        return value.replace("\x00", "").strip()[:longest] if isinstance(value, str) else ""

    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= 255 or "\x00" in subject:
        raise ValueError("no subject")
    return ProviderIdentity(
        issuer=settings.OIDC_ISSUER,
        subject=subject,
        username=text("preferred_username"),
        first_name=text("given_name"),
        last_name=text("family_name"),
        email=text("email", 254) if claims.get("email_verified") is True else "",
        groups=frozenset(_strings(claims.get(settings.OIDC_GROUPS_CLAIM))),
        strong=_is_strong(claims),
        at=float(claims.get("auth_time") or 0),
    )


def _is_strong(claims: Mapping[str, Any]) -> bool:
    """Whether the provider says that it asked for a second factor, as the settings have it."""
    good = set(settings.OIDC_MFA)
    said = {*_strings(claims.get("amr")), *_strings([claims.get("acr")])}
    return "*" in good or bool(good & said)


def _strings(value: Any) -> Iterable[str]:
    return (one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _forget_oldest(request: HttpRequest) -> None:
    """Bounds the size of the session when a client starts many logins."""
    names = request.session.keys()
    begun = [name for name in names if name.startswith(_STATE)]
    begun.sort(key=lambda name: request.session[name].get("exp", 0))
    for name in begun[: 1 - _MAX_PENDING]:
        del request.session[name]


def _unavailable() -> Unavailable:
    return Unavailable(
        "The identity provider does not answer as it should. Try again in a moment, or ask an "
        "administrator."
    )
