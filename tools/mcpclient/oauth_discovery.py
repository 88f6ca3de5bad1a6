"""Which authorization server stands before an MCP server, and what it offers (RFC 9728, RFC 8414,
OpenID Connect discovery)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandbox.egress.rules.grammar import Url
from tools.mcpclient.challenge import AuthenticationChallenge, parse_scopes
from tools.mcpclient.errors import InvalidAnswer
from tools.mcpclient.fetching import (
    AuthorizationFailed,
    Fetch,
    FetchResponse,
    parse_authorization_url,
    parse_json_object,
)

_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_SERVER_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"
_MOST_VALUES = 100
_LONGEST_TEXT = 4_096


@dataclass(frozen=True)
class ProtectedResource:
    """The MCP server as it calls itself, and who gives tokens for it."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuthorizationServer:
    """An authorization server."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    scopes: tuple[str, ...]
    token_auth_methods: tuple[str, ...]
    challenge_methods: tuple[str, ...]
    names_itself: bool  # RFC 9207: its answers to the browser say who they are from
    takes_documents: bool  # a client may be named by the URL of a document about it


async def find_resource(
    fetch: Fetch, server_url: str, challenge: AuthenticationChallenge
) -> ProtectedResource:
    """Where the challenge says it, else at the well-known places.

    Without any, as in 2025-03-26, the MCP server's own origin is the authorization server.
    Raises UpstreamFailure.
    """
    url = parse_authorization_url(server_url)
    places = (
        [challenge.resource_metadata]
        if challenge.resource_metadata
        else _resource_metadata_urls(url)
    )
    for place in places:
        answer = await _fetch_metadata(fetch, place)
        if answer.status == 200:
            return _read_resource(parse_json_object(answer), url)
    if challenge.resource_metadata:
        raise AuthorizationFailed("The MCP server names metadata of itself that is not there.")
    return ProtectedResource(server_url, (_origin(url),))


async def find_authorization_server(fetch: Fetch, issuer: str) -> AuthorizationServer:
    """Raises UpstreamFailure."""
    url = parse_authorization_url(issuer)
    if "?" in url.target:
        raise AuthorizationFailed("The authorization server's name has a query.")
    for place in _server_metadata_urls(url):
        answer = await _fetch_metadata(fetch, place)
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


def _read_resource(found: dict[str, Any], url: Url) -> ProtectedResource:
    resource = _read_text(found, "resource")
    if not _covers(parse_authorization_url(resource), url):
        raise AuthorizationFailed("The MCP server's metadata is of another server.")
    issuers = _read_texts(found, "authorization_servers")
    if not issuers:
        raise AuthorizationFailed("The MCP server's metadata names no authorization server.")
    return ProtectedResource(
        resource, issuers, parse_scopes(" ".join(_read_texts(found, "scopes_supported")))
    )


def _covers(resource: Url, url: Url) -> bool:
    """Whether it is this server, or a place that this server is below."""
    if (resource.scheme, resource.host, resource.port) != (url.scheme, url.host, url.port):
        return False
    if "?" in resource.target and resource.target != url.target:
        return False
    return f"{url.path.rstrip('/')}/".startswith(f"{resource.path.rstrip('/')}/")


def _read_authorization_server(found: dict[str, Any], issuer: str) -> AuthorizationServer:
    if found.get("issuer") != issuer:  # letter by letter: RFC 8414, 3.3
        raise AuthorizationFailed("The authorization server's metadata is of another one.")
    return AuthorizationServer(
        issuer,
        _read_endpoint(found, "authorization_endpoint"),
        _read_endpoint(found, "token_endpoint"),
        _read_endpoint(found, "registration_endpoint"),
        parse_scopes(" ".join(_read_texts(found, "scopes_supported"))),
        _read_texts(found, "token_endpoint_auth_methods_supported"),
        _read_texts(found, "code_challenge_methods_supported"),
        found.get("authorization_response_iss_parameter_supported") is True,
        found.get("client_id_metadata_document_supported") is True,
    )


def _read_endpoint(found: dict[str, Any], name: str) -> str:
    """Empty where it is not offered."""
    if (text := _read_text(found, name)) != "":
        parse_authorization_url(text)
    return text


def _read_text(found: dict[str, Any], name: str) -> str:
    text = found.get(name, "")
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise InvalidAnswer(f"The metadata's {name} is no text, or too long.")
    return text


def _read_texts(found: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = found.get(name, [])
    if not isinstance(texts, list) or len(texts) > _MOST_VALUES:
        raise InvalidAnswer(f"The metadata's {name} is no list of at most {_MOST_VALUES}.")
    if not all(isinstance(one, str) and len(one) <= _LONGEST_TEXT for one in texts):
        raise InvalidAnswer(f"The metadata's {name} has something that is no text, or too long.")
    return tuple(texts)
