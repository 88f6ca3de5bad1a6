"""The client's part of the authorization of MCP (2025-11-25 and 2026-07-28).

    url, pending = await begin(fetch, server_url, identity, challenge)
    # the browser goes to `url`; what it brings back to the redirect URI are the `parameters`
    tokens = await finish(fetch, pending, parameters)
    tokens = await refreshed(fetch, tokens)

Nothing is kept here: the caller stores `pending` and the tokens sealed, and refreshes in one place
at a time, since a refresh token may be good once.
"""

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from tools.mcpclient.challenge import MOST_SCOPES, NO_CHALLENGE, AuthenticationChallenge
from tools.mcpclient.fetching import AuthorizationFailed, Fetch
from tools.mcpclient.oauth_clients import ClientIdentity, OAuthClient, bind_client, find_client
from tools.mcpclient.oauth_discovery import (
    AuthorizationServer,
    ProtectedResource,
    find_authorization_server,
    find_resource,
)
from tools.mcpclient.oauth_tokens import (
    OAuthTokens,
    PendingAuthorization,
    authorization_error,
    request_tokens,
)
from tools.mcpclient.pkce import CODE_CHALLENGE_METHOD, code_challenge, new_code_verifier

MOST_STEP_UPS = 3
_OFFLINE_SCOPE = "offline_access"


async def begin_authorization(
    fetch: Fetch,
    server_url: str,
    identity: ClientIdentity,
    challenge: AuthenticationChallenge = NO_CHALLENGE,
    previous: OAuthTokens | None = None,
) -> tuple[str, PendingAuthorization]:
    """The URL for the browser. `previous` are tokens that are not good, or not enough, any more.

    Raises UpstreamFailure.
    """
    resource, issuer = await _discover(fetch, server_url, challenge, identity.registered, previous)
    if not issuer.authorization_endpoint or not issuer.token_endpoint:
        raise AuthorizationFailed("The authorization server has no place to ask for consent.")
    if CODE_CHALLENGE_METHOD not in issuer.challenge_methods:
        raise AuthorizationFailed("The authorization server does not say that it knows PKCE S256.")
    if previous is not None and previous.issuer != issuer.issuer:
        previous = None  # nothing of it is good here
    scope, steps_up = _requested_scope(challenge, resource, issuer, previous)
    known = previous.client if previous else None
    pending = PendingAuthorization(
        await find_client(fetch, issuer, identity, known),
        issuer.issuer,
        issuer.token_endpoint,
        issuer.names_itself,
        resource.resource,
        scope,
        identity.redirect_uri,
        secrets.token_urlsafe(32),
        new_code_verifier(),
        steps_up,
    )
    return _authorization_url(issuer, pending), pending


async def finish_authorization(
    fetch: Fetch, pending: PendingAuthorization, parameters: Mapping[str, str]
) -> OAuthTokens:
    """`parameters` are those of the redirect URI's query. Raises UpstreamFailure."""
    if not hmac.compare_digest(
        parameters.get("state", "").encode("utf-8", "replace"), pending.state.encode()
    ):
        raise AuthorizationFailed("The answer belongs to no consent that was asked for here.")
    sender = parameters.get("iss")
    if (sender is None and pending.names_itself) or sender not in {None, pending.issuer}:
        raise AuthorizationFailed("The answer comes from another authorization server.")  # RFC 9207
    if "error" in parameters:
        raise authorization_error(parameters["error"], "The authorization server refused")
    if not parameters.get("code"):
        raise AuthorizationFailed("The answer brought no code.")
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
    return await request_tokens(fetch, blank, form)


async def refresh_tokens(fetch: Fetch, tokens: OAuthTokens) -> OAuthTokens:
    """Raises UpstreamFailure; AuthorizationFailed where only a new consent helps."""
    if not tokens.refresh:
        raise AuthorizationFailed("There is nothing to refresh the authorization with.")
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
    return await request_tokens(fetch, tokens, form)


async def request_client_credentials(
    fetch: Fetch,
    server_url: str,
    client: OAuthClient,
    challenge: AuthenticationChallenge = NO_CHALLENGE,
    previous: OAuthTokens | None = None,
) -> OAuthTokens:
    """For a client that acts for itself: nobody is asked. Raises UpstreamFailure."""
    resource, issuer = await _discover(fetch, server_url, challenge, client, previous)
    if not issuer.token_endpoint:
        raise AuthorizationFailed("The authorization server gives no tokens.")
    if previous is not None and previous.issuer != issuer.issuer:
        previous = None
    scope, steps_up = _requested_scope(challenge, resource, issuer, previous)
    scope = tuple(one for one in scope if one != _OFFLINE_SCOPE)
    form = {"grant_type": "client_credentials"} | ({"scope": " ".join(scope)} if scope else {})
    own = bind_client(client, issuer)
    place, name = issuer.token_endpoint, resource.resource
    blank = OAuthTokens(own, issuer.issuer, place, name, scope, "", steps_up=steps_up)
    return await request_tokens(fetch, blank, form)


async def _discover(
    fetch: Fetch,
    server_url: str,
    challenge: AuthenticationChallenge,
    entered: OAuthClient | None,
    previous: OAuthTokens | None,
) -> tuple[ProtectedResource, AuthorizationServer]:
    """Of several authorization servers the one we know, else the first."""
    resource = await find_resource(fetch, server_url, challenge)
    known = [entered.issuer if entered else "", previous.issuer if previous else ""]
    chosen = next((one for one in known if one in resource.issuers), resource.issuers[0])
    return resource, await find_authorization_server(fetch, chosen)


def _requested_scope(
    challenge: AuthenticationChallenge,
    resource: ProtectedResource,
    issuer: AuthorizationServer,
    previous: OAuthTokens | None,
) -> tuple[tuple[str, ...], int]:
    """What was asked for before stays in it. Raises AuthorizationFailed where asking anew would
    bring nothing."""
    asked = previous.scope if previous else ()
    steps_up = previous.steps_up if previous else 0
    if challenge.wants_more and previous is not None:
        steps_up += 1
        if set(challenge.scope) <= set(asked) or steps_up > MOST_STEP_UPS:
            raise AuthorizationFailed("The MCP server wants rights that consent did not bring.")
    wanted = tuple(dict.fromkeys((*asked, *(challenge.scope or resource.scopes))))
    if wanted and _OFFLINE_SCOPE in issuer.scopes:
        wanted = tuple(dict.fromkeys((*wanted, _OFFLINE_SCOPE)))
    if len(wanted) > MOST_SCOPES:
        raise AuthorizationFailed(f"The MCP server wants more than {MOST_SCOPES} rights.")
    return wanted, steps_up


def _authorization_url(issuer: AuthorizationServer, pending: PendingAuthorization) -> str:
    query = {
        "response_type": "code",
        "client_id": pending.client.id,
        "redirect_uri": pending.redirect_uri,
        "state": pending.state,
        "code_challenge": code_challenge(pending.verifier),
        "code_challenge_method": CODE_CHALLENGE_METHOD,
        "resource": pending.resource,
    }
    if pending.scope:
        query["scope"] = " ".join(pending.scope)
    if _OFFLINE_SCOPE in pending.scope:
        query["prompt"] = "consent"  # OpenID Connect gives no refresh token without
    glue = "&" if "?" in issuer.authorization_endpoint else "?"
    return f"{issuer.authorization_endpoint}{glue}{urlencode(query)}"
