"""MCP servers that run inside the sandbox (stdio): only those on the operator's list, with the
listed command.

A tenant picks a name and gives what the entry permits; no word of a tenant's is ever a command.
"""

from collections.abc import Iterable
from functools import lru_cache, partial

from django.conf import settings

from config.external_servers import WORKSPACE, StdioServer
from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy
from sandbox.egress.ticket_client import EgressClient
from sandbox.server_client import start_server
from sandbox.spec import Mount, Network, ServerSpec
from tools.builtin.workspaces import workspace_path
from tools.catalog.mcp.mcp_catalog import CatalogServer
from tools.catalog.sandbox.hosts import Item, rules_of
from tools.mcpclient.errors import NeverBegan
from tools.mcpclient.stdio import Stdio

NOT_ALLOWED = "is not one that the operator allows (MCP_STDIO_ALLOWED)"
# Limits for a server's whole lifetime: the allowed hosts are the effective limit.
_LASTING = EgressLimits(
    requests=1_000_000, connections=16, request_bytes=1 << 40, response_bytes=1 << 40, request_s=120
)


def allowed(name: str) -> StdioServer | None:
    found: StdioServer | None = settings.MCP_STDIO_ALLOWED.get(name)
    return found


def forbidden(entry: StdioServer, names: Iterable[str]) -> list[str]:
    """The variables that a tenant may not set."""
    return [name for name in names if name not in entry.variables]


def stdio_channel(server: CatalogServer, environment: dict[str, str]) -> Stdio:
    """Checks against the current list: an older configuration may not be allowed any more.

    Raises NeverBegan.
    """
    entry = allowed(server.command)
    if entry is None:
        raise NeverBegan(f"The command of the MCP server {server.name} {NOT_ALLOWED}.")
    flaw = entry.flaw_in_arguments(server.args)
    if flaw is None and (names := forbidden(entry, environment)):
        flaw = f"the variable {names[0]} is not one that the operator allows"
    if flaw is not None:
        raise NeverBegan(f"The MCP server {server.name} is not started: {flaw}.")
    start = partial(start_server, settings.SANDBOX_SOCKET, _egress(settings.EGRESS_SOCKET))
    spec = _spec(entry, server, environment)
    return Stdio(partial(start, spec), [*environment.values(), *entry.environment.values()])


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
