"""`call_tool`: the inner call is governed like any other, and its result is the answer."""

import pytest

from tests import factories
from tests.tools.approval_requests import approve, approver
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.execution import answer
from tools.models import Confirmation, Execution

pytestmark = pytest.mark.usefixtures("without_workers")
BREAKS = "def main(parameters):\n    raise ValueError('no')\n"


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization)
    return factories.agent(organization, groups=["default", "composition"])


def called(agent, name, parameters):
    call = factories.call(
        "call_tool",
        {"tool_name": name, "parameters": parameters},
        group=["default", "composition"],
    )
    execution = answer.execute(caller=factories.caller(agent), call=call, wait_s=0)
    work_off(agent.organization)
    return Execution.objects.get(pk=execution.pk)


def test_it_gives_back_what_the_tool_gave(agent):
    found = called(agent, "echo", {"text": "x"})
    inner = calls_of(found).get()
    assert found.output == {
        "tool_name": "echo",
        "execution_id": str(inner.pk),
        "output": {"echo": {"text": "x"}},
    }


def test_a_failure_is_the_tools_own(agent, organization):
    factories.tool(organization, "breaks", implementation={"source": BREAKS})
    found = called(agent, "breaks", {"text": "x"})
    inner = calls_of(found).get()
    assert (found.status, found.error_code) == (inner.status, inner.error_code)
    assert found.error_details["call"] == str(inner.pk)


@pytest.mark.parametrize(
    ("name", "parameters", "status", "code"),
    [
        ("ghost", {}, "Failed", "tool_not_found"),
        ("secret", {"text": "x"}, "PermissionDenied", "tool_not_in_group"),
        ("echo", {}, "Failed", "invalid_parameters"),
        ("call_tool", {"tool_name": "secret"}, "PermissionDenied", "tool_not_in_group"),
    ],
)
def test_what_may_not_be_called_directly_may_not_be_called_so(
    agent, organization, name, parameters, status, code
):
    factories.tool(organization, "secret", group=["vault"])
    found = called(agent, name, parameters)
    assert (found.status, found.error_code) == (status, code)


def test_a_person_is_asked_about_the_inner_call(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    waiting = called(agent, "careful", {"text": "x"})
    assert waiting.parked
    inner = calls_of(waiting).get()
    approve(Confirmation.objects.get(execution=inner), approver(organization))
    work_off(organization)
    assert Execution.objects.get(pk=waiting.pk).status == "Success"


def test_rates_and_costs_are_the_inner_tools(agent, organization):
    factories.tool(organization, "dear", cost_per_invocation="2", rate_limit_per_minute=1)
    first, second = (called(agent, "dear", {"text": "x"}) for _ in range(2))
    assert (first.cost, calls_of(first).get().cost) == (0, 2)
    assert (second.status, second.error_code) == ("PermissionDenied", "rate_limited")
