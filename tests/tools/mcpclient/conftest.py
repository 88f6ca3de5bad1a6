import pytest

from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.rules.grammar import Url
from tests.stubs.mcp import MODERN, mcp_serving
from tools.mcpclient.hub import McpClientPool, McpEndpoint
from tools.mcpclient.streamable import StreamableHttpTransport

PATIENCE_S = 30.0


class Talk:
    """An MCP hub with one server."""

    def __init__(self, server, **options):
        self.server, self.hub = server, McpClientPool()
        self._resolver = Resolver()
        self._dialer = Dialer(
            self._resolver, AddressGate([read_network("127.0.0.0/8")]), client_context()
        )
        self.endpoint = McpEndpoint("s", "s:1", self._channel, **{"fresh_s": 0.0} | options)

    def _channel(self):
        return StreamableHttpTransport(
            Url.parse(self.server.url), [("X-Key", "secret")], self._dialer
        )

    def call(self, name="echo", arguments=None, **options):
        options.setdefault("timeout_s", PATIENCE_S)
        return self.hub.call(self.endpoint, name, arguments or {}, **options)[0]

    def tools(self):
        return self.hub.tools(self.endpoint, PATIENCE_S).tools

    def close(self):
        self.hub.close()
        self._resolver.close()


@pytest.fixture
def talk():
    """Creates a hub for a server; all are closed at the end."""
    made = []

    def begin(server, **options):
        made.append(Talk(server, **options))
        return made[-1]

    yield begin
    for one in made:
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
