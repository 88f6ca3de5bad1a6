"""How MCP servers are reached: by HTTP at addresses that tenants chose, or inside the sandbox
(stdio).

Of stdio servers only those on the operator's list run, with the listed command: a tenant picks a
name and gives what the entry permits; no word of a tenant's is ever a command.
"""

import atexit
from collections.abc import Coroutine, Iterable
from functools import cache, lru_cache, partial
from typing import Any

from django.conf import settings

from config.external_servers import WORKSPACE, StdioServer
from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy
from sandbox.egress.ticket_client import EgressClient
from sandbox.server_client import start_server
from sandbox.spec import Mount, Network, ServerSpec
from tools.builtin.workspaces import workspace_path
from tools.catalog.mcp.mcp_catalog import CatalogServer
from tools.catalog.sandbox.hosts import Item, rules_of
from tools.httpclient.outbound import EventLoopThread, OperatorNetworkGate
from tools.mcpclient.authorization_servers import Fetcher
from tools.mcpclient.errors import UpstreamUnavailable
from tools.mcpclient.transports import StdioTransport

NOT_ALLOWED = "is not one that the operator allows (MCP_STDIO_ALLOWED)"
# Limits for a server's whole lifetime: the allowed hosts are the effective limit.
_LASTING = EgressLimits(
    requests=1_000_000, connections=16, request_bytes=1 << 40, response_bytes=1 << 40, request_s=120
)


def dialer(scheme: str, organization: str) -> Dialer:
    """By the rules of tools/httpclient/outbound.py: unencrypted only into networks that the
    operator opened."""
    return _dialer(scheme, tuple(settings.EGRESS_ALLOW_PRIVATE)).for_organization(organization)


def fetcher(organization: str) -> Fetcher:
    return Fetcher(lambda scheme: dialer(scheme, organization))


def wait_for[Got](work: Coroutine[Any, Any, Got], timeout_s: float) -> Got:
    """The result of a few requests over one connection. Raises what it raises, `TimeoutError`."""
    future = _loop().submit(work)
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise


@cache
def _loop() -> EventLoopThread:
    made = EventLoopThread()
    atexit.register(made.close)
    return made


@lru_cache(maxsize=4)
def _dialer(scheme: str, opened: tuple[str, ...]) -> Dialer:
    networks = [read_network(text) for text in opened]
    gate = AddressGate(networks) if scheme == "https" else OperatorNetworkGate(networks)
    return Dialer(Resolver(), gate, client_context(settings.EGRESS_CA_FILE))


def allowed(name: str) -> StdioServer | None:
    found: StdioServer | None = settings.MCP_STDIO_ALLOWED.get(name)
    return found


def forbidden(entry: StdioServer, names: Iterable[str]) -> list[str]:
    """The variables that a tenant may not set."""
    return [name for name in names if name not in entry.variables]


def stdio_transport(server: CatalogServer, environment: dict[str, str]) -> StdioTransport:
    """Checks against the current list: an older configuration may not be allowed any more.

    Raises UpstreamUnavailable.
    """
    entry = allowed(server.command)
    if entry is None:
        raise UpstreamUnavailable(f"The command of the MCP server {server.name} {NOT_ALLOWED}.")
    flaw = entry.flaw_in_arguments(server.args)
    if flaw is None and (names := forbidden(entry, environment)):
        flaw = f"the variable {names[0]} is not one that the operator allows"
    if flaw is not None:
        raise UpstreamUnavailable(f"The MCP server {server.name} is not started: {flaw}.")
    start = partial(start_server, settings.SANDBOX_SOCKET, _egress(settings.EGRESS_SOCKET))
    spec = _spec(entry, server, environment)
    return StdioTransport(
        partial(start, spec), [*environment.values(), *entry.environment.values()]
    )


def _spec(entry: StdioServer, server: CatalogServer, environment: dict[str, str]) -> ServerSpec:
    return ServerSpec(
        organization=server.organization,
        command=(*entry.command, *server.args),
        programs=entry.programs,
        mounts=(*entry.mounts, *_workspace(entry, server.organization)),
        environment=tuple((entry.environment | environment).items()),
        directory=entry.directory,
        network=Network.PROXY if entry.network else Network.NONE,
        limits=entry.limits,
        egress=EgressPolicy(rules_of(map(_bare, server.allowed_hosts), {}), _LASTING),
    )


def _workspace(entry: StdioServer, organization: str) -> list[Mount]:
    if entry.workspace == "none":
        return []
    place, writable = str(workspace_path(organization)), entry.workspace == "write"
    return [Mount(place, WORKSPACE, writable, make=True)]


def _bare(item: Item) -> Item:
    """A server has its own credentials; those of the organization's hosts are for tool runs."""
    if isinstance(item, str):
        return item
    return {name: value for name, value in item.items() if name != "credential"}


@lru_cache(maxsize=1)
def _egress(path: str) -> EgressClient:
    return EgressClient(path)
