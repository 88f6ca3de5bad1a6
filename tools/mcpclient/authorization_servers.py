"""The authorization servers of MCP servers: discovery (RFC 9728, RFC 8414, OpenID Connect), our
client at each of them (RFC 7591), and the requests to them."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from sandbox import untrusted_json
from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.mcpclient.errors import (
    AnswerLost,
    AuthenticationChallenge,
    InvalidAnswer,
    UpstreamRefused,
    UpstreamUnavailable,
    parse_scopes,
)
from tools.mcpclient.http_connections import Headers, OriginConnections

MOST_FETCHED_BYTES = 256 * 1024
FETCH_TIMEOUT_S = 30.0
AUTH_BASIC, AUTH_POST, AUTH_NONE = "client_secret_basic", "client_secret_post", "none"
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_SERVER_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"
_MOST_VALUES = 100
_LONGEST_TEXT = 4_096
_EXPIRY_MARGIN_S = 60.0


@dataclass(frozen=True)
class FetchResponse:
    """A response of any status. It may have secrets."""

    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Fetch = Callable[[str, str, Headers, bytes], Awaitable[FetchResponse]]  # method, URL, headers, body


class AuthorizationFailed(UpstreamRefused):
    """A definite failure. `error` is the OAuth error code, if it is a known one."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class Fetcher:
    """Sends single requests, each over a connection of its own, without following redirects.

    `dialer` returns the dialer of a scheme; the one for http connects only to networks that the
    operator opened.
    """

    def __init__(self, dialer: Callable[[str], Dialer], timeout_s: float = FETCH_TIMEOUT_S) -> None:
        self._dialer, self._timeout_s = dialer, timeout_s

    async def __call__(self, method: str, url: str, headers: Headers, body: bytes) -> FetchResponse:
        """Raises UpstreamUnavailable, AnswerLost, InvalidAnswer, AuthorizationFailed."""
        target = parse_authorization_url(url)
        origin = OriginConnections(target, self._dialer(target.scheme))
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = [*headers, ("User-Agent", "toolcrib")]
                async with origin.exchange(method, target.target, headers, body) as answer:
                    content = await answer.read_body(MOST_FETCHED_BYTES)
                    return FetchResponse(answer.status, answer.headers, content)
        except TimeoutError:
            raise AnswerLost("The authorization server did not answer in time.") from None
        except (UpstreamUnavailable, AnswerLost, InvalidAnswer) as problem:
            message = str(problem).replace("MCP server", "authorization server")
            raise type(problem)(message) from None
        finally:
            origin.close()


def parse_authorization_url(text: object) -> Url:
    """An https URL, or http to this machine. Raises AuthorizationFailed without quoting it."""
    try:
        url = Url.parse(text if isinstance(text, str) else "")
    except BrokenGrammar as flaw:
        raise AuthorizationFailed(f"An address for authorization is invalid: {flaw}.") from None
    if url.scheme == "http" and not is_loopback(url):
        raise AuthorizationFailed("An address for authorization does not use https.")
    return url


def is_loopback(url: Url) -> bool:
    if url.host.address is not None:
        return ip_address(url.host.text).is_loopback
    return url.host.text == "localhost"


def parse_json_object(answer: FetchResponse) -> dict[str, Any]:
    """Raises InvalidAnswer."""
    try:
        found = untrusted_json.parse(answer.body)
    except untrusted_json.HostileJson as flaw:
        raise InvalidAnswer(f"The authorization server's answer cannot be read: {flaw}.") from None
    if not isinstance(found, dict):
        raise InvalidAnswer("The authorization server's answer is not a JSON object.")
    return found


def json_request(value: dict[str, Any]) -> tuple[Headers, bytes]:
    headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
    return headers, json.dumps(value).encode()


@dataclass(frozen=True)
class ProtectedResource:
    """The MCP server as its metadata describes it; `issuers` are its authorization servers."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuthorizationServer:
    """The metadata of an authorization server."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    scopes: tuple[str, ...]
    token_auth_methods: tuple[str, ...]
    challenge_methods: tuple[str, ...]
    names_itself: bool  # its authorization responses have the parameter iss (RFC 9207)
    accepts_metadata_documents: bool  # the id of a client may be the URL of its metadata


async def find_resource(
    fetch: Fetch, server_url: str, challenge: AuthenticationChallenge
) -> ProtectedResource:
    """Reads the metadata at the URL of the challenge, else at the well-known URLs.

    Without metadata the MCP server's origin is its authorization server, as in 2025-03-26.
    Raises UpstreamFailure.
    """
    url = parse_authorization_url(server_url)
    given = challenge.resource_metadata
    for metadata_url in [given] if given else _resource_metadata_urls(url):
        answer = await _fetch_metadata(fetch, metadata_url)
        if answer.status == 200:
            return _read_resource(parse_json_object(answer), url)
    if given:
        raise AuthorizationFailed("The MCP server names metadata of itself that is not there.")
    return ProtectedResource(server_url, (_origin(url),))


async def find_authorization_server(fetch: Fetch, issuer: str) -> AuthorizationServer:
    """Raises UpstreamFailure."""
    url = parse_authorization_url(issuer)
    if "?" in url.target:
        raise AuthorizationFailed("The authorization server's name has a query.")
    for metadata_url in _server_metadata_urls(url):
        answer = await _fetch_metadata(fetch, metadata_url)
        if answer.status == 200:
            return _read_authorization_server(parse_json_object(answer), issuer)
    raise AuthorizationFailed("The authorization server publishes no metadata.")


async def _fetch_metadata(fetch: Fetch, url: str) -> FetchResponse:
    return await fetch("GET", url, [("Accept", "application/json")], b"")


def _origin(url: Url) -> str:
    return f"{url.scheme}://{url.authority}"


def _resource_metadata_urls(url: Url) -> Iterator[str]:
    path = url.path.rstrip("/")
    if path:
        yield f"{_origin(url)}{_RESOURCE_PATH}{path}"
    yield f"{_origin(url)}{_RESOURCE_PATH}"


def _server_metadata_urls(url: Url) -> Iterator[str]:
    path, origin = url.path.rstrip("/"), _origin(url)
    yield f"{origin}{_SERVER_PATH}{path}"
    yield f"{origin}{_OPENID_PATH}{path}"
    if path:
        yield f"{origin}{path}{_OPENID_PATH}"


def _read_resource(metadata: dict[str, Any], url: Url) -> ProtectedResource:
    resource = _read_text(metadata, "resource")
    if not _covers(parse_authorization_url(resource), url):
        raise AuthorizationFailed("The MCP server's metadata is of another server.")
    issuers = _read_texts(metadata, "authorization_servers")
    if not issuers:
        raise AuthorizationFailed("The MCP server's metadata names no authorization server.")
    return ProtectedResource(
        resource, issuers, parse_scopes(" ".join(_read_texts(metadata, "scopes_supported")))
    )


def _covers(resource: Url, url: Url) -> bool:
    """Whether the resource is the URL, or a path above it."""
    if (resource.scheme, resource.host, resource.port) != (url.scheme, url.host, url.port):
        return False
    if "?" in resource.target and resource.target != url.target:
        return False
    return f"{url.path.rstrip('/')}/".startswith(f"{resource.path.rstrip('/')}/")


def _read_authorization_server(metadata: dict[str, Any], issuer: str) -> AuthorizationServer:
    if metadata.get("issuer") != issuer:  # must be identical: RFC 8414, 3.3
        raise AuthorizationFailed("The authorization server's metadata is of another one.")
    return AuthorizationServer(
        issuer,
        _read_endpoint(metadata, "authorization_endpoint"),
        _read_endpoint(metadata, "token_endpoint"),
        _read_endpoint(metadata, "registration_endpoint"),
        parse_scopes(" ".join(_read_texts(metadata, "scopes_supported"))),
        _read_texts(metadata, "token_endpoint_auth_methods_supported"),
        _read_texts(metadata, "code_challenge_methods_supported"),
        metadata.get("authorization_response_iss_parameter_supported") is True,
        metadata.get("client_id_metadata_document_supported") is True,
    )


def _read_endpoint(metadata: dict[str, Any], name: str) -> str:
    """Empty if it is not offered."""
    if (text := _read_text(metadata, name)) != "":
        parse_authorization_url(text)
    return text


def _read_text(metadata: dict[str, Any], name: str) -> str:
    text = metadata.get(name, "")
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise InvalidAnswer(f"The metadata's {name} is no text, or too long.")
    return text


def _read_texts(metadata: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = metadata.get(name, [])
    if not isinstance(texts, list) or len(texts) > _MOST_VALUES:
        raise InvalidAnswer(f"The metadata's {name} is no list of at most {_MOST_VALUES}.")
    if not all(isinstance(one, str) and len(one) <= _LONGEST_TEXT for one in texts):
        raise InvalidAnswer(f"The metadata's {name} has something that is no text, or too long.")
    return tuple(texts)


@dataclass(frozen=True)
class OAuthClient:
    """Our client at one issuer. A client without an issuer is bound to the first one."""

    id: str
    secret: str = field(default="", repr=False)
    method: str = ""
    issuer: str = ""
    redirect_uri: str = ""
    expires_at: float = 0.0  # 0: never

    def authenticate(self, form: dict[str, str]) -> tuple[Headers, dict[str, str]]:
        """The headers and the form of a token request, one of them with our credentials."""
        if self.method == AUTH_BASIC:
            pair = f"{quote(self.id, safe='')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
            return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")], form
        form = form | {"client_id": self.id}
        return [], form | {"client_secret": self.secret} if self.method == AUTH_POST else form


@dataclass(frozen=True)
class ClientIdentity:
    """How an installation identifies itself. `document` is the URL of a client metadata document
    that the operator publishes; `registered` the client that an administrator entered."""

    redirect_uri: str
    name: str = "Toolcrib"
    document: str = ""
    registered: OAuthClient | None = None


async def find_client(
    fetch: Fetch, server: AuthorizationServer, identity: ClientIdentity, known: OAuthClient | None
) -> OAuthClient:
    """The entered client, the known one, the metadata document, or a new registration.

    Raises UpstreamFailure.
    """
    if identity.registered is not None:
        return bind_client(identity.registered, server)
    if known is not None and _is_usable(known, server, identity):
        return known
    if identity.document and server.accepts_metadata_documents:
        return OAuthClient(identity.document, "", AUTH_NONE, server.issuer, identity.redirect_uri)
    if not server.registration_endpoint:
        raise AuthorizationFailed(
            "The authorization server registers no clients by itself; enter one by hand."
        )
    return await _register_client(fetch, server, identity)


def bind_client(client: OAuthClient, server: AuthorizationServer) -> OAuthClient:
    """The client with its issuer. Raises AuthorizationFailed if it belongs to another one."""
    if client.issuer not in {"", server.issuer}:
        raise AuthorizationFailed(
            "The MCP server has another authorization server now than its client was entered for."
        )
    method = client.method or _authentication_method(client.secret, server)
    return OAuthClient(client.id, client.secret, method, server.issuer, client.redirect_uri)


def _is_usable(known: OAuthClient, server: AuthorizationServer, identity: ClientIdentity) -> bool:
    same = (known.issuer, known.redirect_uri) == (server.issuer, identity.redirect_uri)
    return same and not (known.expires_at and known.expires_at < time.time() + _EXPIRY_MARGIN_S)


def _authentication_method(secret: str, server: AuthorizationServer) -> str:
    """The default is the header (RFC 8414, 2)."""
    if not secret:
        return AUTH_NONE
    offered = server.token_auth_methods or (AUTH_BASIC,)
    return next((one for one in (AUTH_BASIC, AUTH_POST, AUTH_NONE) if one in offered), AUTH_BASIC)


async def _register_client(
    fetch: Fetch, server: AuthorizationServer, identity: ClientIdentity
) -> OAuthClient:
    """Dynamic client registration (RFC 7591)."""
    native = is_loopback(parse_authorization_url(identity.redirect_uri))
    request = {
        "client_name": identity.name,
        "redirect_uris": [identity.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _authentication_method("secret", server),
        "application_type": "native" if native else "web",
    }
    answer = await fetch("POST", server.registration_endpoint, *json_request(request))
    if answer.status not in {200, 201}:
        raise AuthorizationFailed(
            f"The authorization server did not register us (status {answer.status})."
        )
    return _read_registration(parse_json_object(answer), server, identity)


def _read_registration(
    registration: dict[str, Any], server: AuthorizationServer, identity: ClientIdentity
) -> OAuthClient:
    client_id, secret, method = (
        registration.get(key) or ""
        for key in ("client_id", "client_secret", "token_endpoint_auth_method")
    )
    if not client_id or not all(
        isinstance(one, str) and len(one) <= _LONGEST_TEXT for one in (client_id, secret, method)
    ):
        raise InvalidAnswer("The authorization server registered us in a way that cannot be used.")
    method = method or _authentication_method(secret, server)
    if method not in {AUTH_BASIC, AUTH_POST, AUTH_NONE} or (method != AUTH_NONE and not secret):
        raise InvalidAnswer(
            "The authorization server wants a way of authentication we do not have."
        )
    expiry = registration.get("client_secret_expires_at", 0)
    expires_at = float(expiry) if isinstance(expiry, int | float) else 0.0
    return OAuthClient(client_id, secret, method, server.issuer, identity.redirect_uri, expires_at)
