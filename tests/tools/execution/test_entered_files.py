"""How many files a reader has to open to follow one call: a number that must not grow."""

import json

import pytest

from tests import factories
from tests.entered_files import FilesEntered, enter_files
from tests.stubs.web import Reply, serving
from tools.execution.perform import perform
from tools.models import Agent, Organization

# Today's numbers; 40 are wanted (issue 26). Lower them with each file that a call enters no more.
MOST_IN_PLACE = 98
MOST_SANDBOXED = 89
pytestmark = pytest.mark.usefixtures("without_workers", "loopback_is_open")


def files_of(agent: Agent, tool: str, options: dict[str, object]) -> FilesEntered:
    token = factories.token(agent.service_account)
    body = {"parameters": {"text": "x"}, "options": options}
    url = f"/api/v1/tools/{tool}/execute"
    return enter_files(url, token, json.dumps(body).encode(), perform)


def test_a_call_performed_in_place_enters_no_more_files(
    organization: Organization, agent: Agent
) -> None:
    with serving() as web:
        web.replies["/x"] = Reply()
        organization.allowed_hosts = [{"host": "127.0.0.1", "ports": [web.port]}]
        organization.save(update_fields=["allowed_hosts"])
        factories.tool(
            organization, "ask", type="http",
            parameters=[{"name": "text", "type": "String", "description": "Text.",
                         "required": True}],
            implementation={"method": "GET", "url": web.url("/{text}")},
        )  # fmt: skip
        files = files_of(agent, "ask", {"timeout": "PT5S"})
    assert not files.performance
    assert len(files.request) <= MOST_IN_PLACE, sorted(files.request)


def test_a_sandboxed_call_enters_no_more_files(organization: Organization, agent: Agent) -> None:
    factories.tool(organization)
    files = files_of(agent, "echo", {})
    assert files.performance
    assert len(files.together) <= MOST_SANDBOXED, sorted(files.together)
