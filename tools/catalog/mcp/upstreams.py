"""Creates the MCP client of a server in the catalog."""

import atexit
import hashlib
import json
from functools import cache
from uuid import UUID

from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.catalog.mcp.mcp_catalog import CatalogServer
from tools.catalog.mcp.mcp_tokens import access_token, owner_key, owner_text
from tools.catalog.mcp.mcp_transports import dialer, stdio_transport
from tools.catalog.mcp.mcp_values import UnreadableMcpValue, opened_values
from tools.mcpclient.client_pool import McpClientPool, McpEndpoint
from tools.mcpclient.errors import UpstreamRefused, UpstreamUnavailable
from tools.mcpclient.http_transports import HttpSseTransport, StreamableHttpTransport
from tools.mcpclient.transports import McpTransport
from tools.models import CredentialScope, Transport


@cache
def client_pool() -> McpClientPool:
    """Of this process."""
    made = McpClientPool()
    atexit.register(made.close)
    return made


def owner_of(server: CatalogServer, kind: str, identifier: UUID | str | None) -> str:
    """Whose credentials a call goes out with, by the id of its agent or user; empty for the
    organization's."""
    if server.scope == CredentialScope.ORGANIZATION:
        return ""
    return owner_key(kind, identifier)


def endpoint_of(server: CatalogServer, owner: str = "", *, refused: str = "") -> McpEndpoint:
    """Raises UpstreamFailure: a server that is not configured by an authorized user is never
    called.

    `refused` is an access token that the server refused: another one is sent.
    """
    if not server.enabled:
        raise UpstreamUnavailable(f"The MCP server {server.name} is switched off.")
    headers, env = _values(server, owner)
    token = (
        "" if server.transport == Transport.STDIO else access_token(server, owner, refused=refused)
    )
    if token:
        headers = _override_headers(headers, {"Authorization": f"Bearer {token}"})
    hosts = server.allowed_hosts if server.transport == Transport.STDIO else ()
    what = json.dumps(
        [server.transport, server.url, server.command, server.args, headers, env, owner, hosts]
    )
    digest = hashlib.sha256(what.encode()).hexdigest()
    return McpEndpoint(
        server=str(server.id),
        key=f"{server.id}:{digest}",
        make_transport=lambda: _transport(server, headers, env),
        last_version=server.protocol,
        list_max_age_s=server.check_every_s,
        secrets=(*headers.values(), *env.values(), *([token] if token else [])),
        token=token,
        holder=f"{server.id}:{owner}",
    )


def _values(server: CatalogServer, owner: str) -> tuple[dict[str, str], dict[str, str]]:
    try:
        headers, env = opened_values(server.own, server.organization_id)
        if owner:
            if owner not in server.credentials and owner not in server.authorizations:
                whose = owner_text(owner)
                message = f"There are no credentials of {whose} for the MCP server {server.name}."
                raise UpstreamRefused(message)
            if own := server.credentials.get(owner):
                more = opened_values(own, server.organization_id)
                headers, env = _override_headers(headers, more[0]), env | more[1]
    except UnreadableMcpValue as flaw:
        raise UpstreamUnavailable(
            f"The MCP server {server.name} cannot be called: {flaw}."
        ) from None
    return headers, env


def _override_headers(headers: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Header names are compared without case, so that each has one value."""
    own = {name.lower() for name in more}
    return {name: value for name, value in headers.items() if name.lower() not in own} | more


def _transport(server: CatalogServer, headers: dict[str, str], env: dict[str, str]) -> McpTransport:
    if server.transport == Transport.STDIO:
        return stdio_transport(server, env)
    try:
        url = Url.parse(server.url)
    except BrokenGrammar as flaw:
        raise UpstreamUnavailable(
            f"The address of the MCP server cannot be called: {flaw}."
        ) from None
    way = dialer(url.scheme, server.organization)
    if server.transport == Transport.SSE:
        return HttpSseTransport(url, list(headers.items()), way)
    return StreamableHttpTransport(url, list(headers.items()), way)
