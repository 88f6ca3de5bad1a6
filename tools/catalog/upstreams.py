"""From a server of the catalog to the conversation with it."""

import atexit
import hashlib
import json
from functools import cache, lru_cache

from django.conf import settings

from config.outbound import Opened
from sandbox.egress.addresses import Gate, read_network
from sandbox.egress.dial import Dialer
from sandbox.egress.grammar import Malformed, Url
from sandbox.egress.resolve import Resolver
from sandbox.egress.trust import client_context
from tools.catalog.mcp_catalog import CatalogServer
from tools.catalog.mcp_stdio import stdio_channel
from tools.catalog.mcp_values import Unreadable, opened_values
from tools.mcpclient.channel import Channel
from tools.mcpclient.errors import NeverBegan, NotAllowed
from tools.mcpclient.hub import Endpoint, Hub
from tools.mcpclient.sse_channel import Sse
from tools.mcpclient.streamable import Streamable
from tools.models import CredentialScope, Transport


@cache
def hub() -> Hub:
    """Of this process."""
    made = Hub()
    atexit.register(made.close)
    return made


def owner_of(server: CatalogServer, kind: str, name: str) -> str:
    """Whose credentials a call of this caller's goes out with; empty for the organization's."""
    if server.scope == CredentialScope.ORGANIZATION:
        return ""
    return f"{'agent' if kind == 'agent' else 'user'}:{name}"


def endpoint_of(server: CatalogServer, owner: str = "") -> Endpoint:
    """Raises UpstreamFailure: what is not configured, or not by who may, is never called."""
    if not server.enabled:
        raise NeverBegan(f"The MCP server {server.name} is switched off.")
    headers, env = _values(server, owner)
    hosts = server.allowed_hosts if server.transport == Transport.STDIO else ()
    what = json.dumps(
        [server.transport, server.url, server.command, server.args, headers, env, owner, hosts]
    )
    digest = hashlib.sha256(what.encode()).hexdigest()
    return Endpoint(
        server=str(server.id),
        key=f"{server.id}:{digest}",
        make=lambda: _channel(server, headers, env),
        remembered=server.protocol,
        fresh_s=server.check_every_s,
        secrets=(*headers.values(), *env.values()),
        holder=f"{server.id}:{owner}",
    )


def _values(server: CatalogServer, owner: str) -> tuple[dict[str, str], dict[str, str]]:
    try:
        headers, env = opened_values(server.own, server.organization_id)
        if owner:
            if owner not in server.credentials:
                message = f"There are no credentials of {owner} for the MCP server {server.name}."
                raise NotAllowed(message)
            more = opened_values(server.credentials[owner], server.organization_id)
            headers, env = _over(headers, more[0]), env | more[1]
    except Unreadable as flaw:
        raise NeverBegan(f"The MCP server {server.name} cannot be called: {flaw}.") from None
    return headers, env


def _over(headers: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """A header has one value, however its name is spelt."""
    own = {name.lower() for name in more}
    return {name: value for name, value in headers.items() if name.lower() not in own} | more


def _channel(server: CatalogServer, headers: dict[str, str], env: dict[str, str]) -> Channel:
    if server.transport == Transport.STDIO:
        return stdio_channel(server, env)
    try:
        url = Url.parse(server.url)
    except Malformed as flaw:
        raise NeverBegan(f"The address of the MCP server cannot be called: {flaw}.") from None
    dialer = _dialer(url.scheme, tuple(settings.EGRESS_ALLOW_PRIVATE))
    if server.transport == Transport.SSE:
        return Sse(url, list(headers.items()), dialer)
    return Streamable(url, list(headers.items()), dialer)


@lru_cache(maxsize=4)
def _dialer(scheme: str, opened: tuple[str, ...]) -> Dialer:
    """By the rules of config/outbound.py: in the clear only into networks the operator opened."""
    networks = [read_network(text) for text in opened]
    gate = Gate(networks) if scheme == "https" else Opened(networks)
    return Dialer(Resolver(), gate, client_context(settings.EGRESS_CA_FILE))
