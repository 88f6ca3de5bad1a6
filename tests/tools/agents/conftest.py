"""Agent runs performed in the test's process, against a stub model with scripted replies."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import factories
from tests.stubs import llm
from tests.tools.execution.in_process_worker import work_off
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunReport, AgentRunRequest
from tools.agents.recordings import find_run
from tools.execution import answer
from tools.models import Agent, Execution

SAYS = "def main(p):\n    return {'said': p['text']}\n"
FAILS = (
    "from toolcrib import ToolError\n"
    "def main(p):\n    raise ToolError('NOT_THERE', 'there is none')\n"
)


@pytest.fixture
def model(settings: Any) -> Iterator[llm.Endpoint]:
    with llm.serving() as endpoint:
        settings.LLM_BASE_URL, settings.LLM_MODEL = endpoint.url, "small"
        yield endpoint


@pytest.fixture
def agent(organization: Any) -> Agent:
    """Has the tools `say` and `fail`, `hidden` outside its groups, and a workflow of two states."""
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    factories.tool(organization, "hidden", group=["secret"])
    factories.tool(
        organization, "open", implementation={"source": SAYS}, state="inside",
        available_in_states=["undefined"],
    )  # fmt: skip
    factories.tool(
        organization, "inner", implementation={"source": SAYS}, available_in_states=["inside"]
    )
    return factories.agent(organization, groups=["default"])


def begin_request(agent: Agent, question: str = "Why?", **wanted: Any) -> Execution:
    """`wanted` holds parameters of `run_agent` and fields of `AgentRunRequest`."""
    of_call = {name: wanted.pop(name) for name in AgentRunRequest.__annotations__ if name in wanted}
    caller = factories.caller(agent)
    given = AgentRunRequest({"question": question} | wanted, **of_call)
    call = agent_requests.build_call(caller, given)
    return answer.execute(caller=caller, call=call, wait_s=0)


def reported(agent: Agent, run: Execution) -> AgentRunReport:
    caller = factories.caller(agent)
    return agent_requests.load_report(caller, find_run(caller, run.pk))


@pytest.fixture
def perform_request(
    without_workers: None, agent: Agent, model: llm.Endpoint
) -> Callable[..., AgentRunReport]:
    """The report of a request that was performed until nothing was left to do."""

    def ask(question: str = "Why?", **wanted: Any) -> AgentRunReport:
        run = begin_request(agent, question, **wanted)
        work_off(agent.organization)
        return reported(agent, run)

    return ask
