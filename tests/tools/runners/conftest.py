"""Stub models and MCP servers for the tests of runners."""

import base64

import pytest

from tests import factories
from tests.conditions import until
from tests.stubs import llm
from tests.stubs.mcp import mcp_serving
from tests.tools.approval_requests import ended_execution
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.upstreams import client_pool
from tools.execution.perform import perform
from tools.models import Execution
from tools.models import Tool as ToolRow

KEY = "sk-secret-of-the-operator"
PROMISED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PNG = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"x" * 30_000).decode()}
LINK = {"type": "resource_link", "uri": "reports://quarterly/2026-q3", "name": "q3"}


@pytest.fixture
def model(settings):
    """A model endpoint on loopback."""
    with llm.serving() as endpoint:
        settings.LLM_BASE_URL, settings.LLM_MODEL = endpoint.url, "small"
        settings.LLM_API_KEY, settings.LLM_PRICES = KEY, {}
        yield endpoint


@pytest.fixture
def stub():
    with mcp_serving(streamed=True) as server:
        yield server


@pytest.fixture
def server(organization, stub):
    row = mcp_servers.create_server(
        organization=organization,
        server={"name": "far", "url": stub.url, "headers": {"X-Key": "swordfish-1"}},
        by=factories.actor(organization),
    )
    yield row
    client_pool().forget_server(str(row.pk))


@pytest.fixture
def imported(server):
    """Imports `echo` as the server currently lists it."""

    def take(**item):
        by = factories.actor(server.organization)
        mcp_import.refresh(row=server, by=by)
        done = mcp_import.import_tools(row=server, items=[{"tool": "echo"} | item], by=by)
        assert done[0].errors == []
        return ToolRow.objects.present().get(organization=server.organization, name="echo")

    return take


@pytest.fixture
def answered(agent, imported, stub):
    """The execution of a call for which the server returns this result."""

    def call(result, **item):
        if not ToolRow.objects.filter(organization=agent.organization, name="echo").exists():
            imported(**item)
        stub.tools["echo"].does = lambda given: result
        return ask(agent)

    return call


def ask(agent, **parameters):
    execution = factories.execution(agent, "echo", **(parameters or {"a": 1}))
    if execution.status == "Pending":
        perform(execution.pk)
        until(lambda: ended_execution(execution))
    return Execution.objects.get(pk=execution.pk)


def part(words):
    return {"type": "text", "text": words}
