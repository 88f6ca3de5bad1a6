import pytest

from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.rules.grammar import Url
from tests.stubs.mcp import MODERN, mcp_serving
from tools.mcpclient.client_pool import McpClientPool, McpEndpoint
from tools.mcpclient.http_transports import StreamableHttpTransport

PATIENCE_S = 30.0


class ServerConnection:
    """A client pool with one server."""

    def __init__(self, server, **options):
        self.server, self.pool = server, McpClientPool()
        self._resolver = Resolver()
        self._dialer = Dialer(
            self._resolver, AddressGate([read_network("127.0.0.0/8")]), client_context()
        )
        self.endpoint = McpEndpoint(
            "s", "s:1", self._transport, **{"list_max_age_s": 0.0} | options
        )

    def _transport(self):
        return StreamableHttpTransport(
            Url.parse(self.server.url), [("X-Key", "secret")], self._dialer
        )

    def call(self, name="echo", arguments=None, **options):
        options.setdefault("timeout_s", PATIENCE_S)
        return self.pool.call_tool(self.endpoint, name, arguments or {}, **options)[0]

    def tools(self):
        return self.pool.list_tools(self.endpoint, PATIENCE_S).tools

    def close(self):
        self.pool.close()
        self._resolver.close()


@pytest.fixture
def connect():
    """Creates a client pool for a server; all are closed at the end."""
    connections = []

    def connect_server(server, **options):
        connections.append(ServerConnection(server, **options))
        return connections[-1]

    yield connect_server
    for one in connections:
        one.close()


@pytest.fixture(params=[MODERN, "2025-11-25", "2024-11-05"])
def era(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["json", "stream"])
def server(request, era):
    with mcp_serving(era, streamed=request.param) as stub:
        yield stub


@pytest.fixture
def modern():
    with mcp_serving(streamed=True) as stub:
        yield stub


@pytest.fixture
def handshake():
    with mcp_serving("2025-11-25", streamed=True) as stub:
        yield stub
