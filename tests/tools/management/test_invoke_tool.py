import io
import sys

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tools.models import Execution
from tools.workflows import session_actions

pytestmark = pytest.mark.usefixtures("committed", "crib")


@pytest.fixture
def invoked(typed, organization, agent):
    def run(tool, *words):
        where = ("--agent", agent.slug, "--organization", organization.slug)
        return typed("invoke_tool", tool, *where, *words)

    return run


def test_a_call_goes_down_the_whole_pipeline(invoked, organization):
    factories.tool(organization)
    ran = invoked("echo", "--parameters", '{"text": "hi"}', "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["output"] == {"echo": {"text": "hi"}}
    records = AuditRecord.objects.filter(execution_id=ran.json["execution_id"])
    assert {record.code for record in records} == {"TOOL.ACCEPT", "TOOL.START", "TOOL.END"}


def test_the_json_is_what_the_api_answers(invoked, organization, agent):
    factories.tool(organization)
    ran = invoked("echo", "--parameters", '{"text": "hi"}', "--json")
    api = Api(factories.token(agent.service_account))
    assert ran.json == api.get(f"/executions/{ran.json['execution_id']}").json()


def test_the_text_ends_with_the_output(invoked, organization):
    factories.tool(organization)
    ran = invoked("echo", "--parameters", '{"text": "hi"}')
    assert ran.out.startswith("Status:     Success\n")
    assert ran.out.endswith('{\n  "echo": {\n    "text": "hi"\n  }\n}\n')


def test_parameters_may_come_from_standard_input(invoked, organization, monkeypatch):
    factories.tool(organization)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "piped"}')))
    assert invoked("echo", "--parameters", "-", "--json").json["output"]["echo"]["text"] == "piped"


def test_a_tool_that_fails_is_exit_code_1_and_says_why(invoked, organization):
    source = "def main(parameters):\n    return 1 / 0\n"
    factories.tool(organization, "broken", parameters=[], implementation={"source": source})
    ran = invoked("broken", "--json")
    assert (ran.code, ran.json["status"]) == (1, "Failed")
    assert ran.err == "TOOL_ERROR: ZeroDivisionError: division by zero (line 2)\n"


def test_the_timeout_given_ends_a_call(invoked, organization):
    source = "import time\n\ndef main(parameters):\n    time.sleep(20)\n"
    factories.tool(organization, "slow", parameters=[], implementation={"source": source})
    ran = invoked("slow", "--timeout", "PT0.3S", "--json")
    assert (ran.code, ran.json["status"]) == (1, "Timeout")


def test_a_gate_that_says_no_lets_nothing_run(invoked, organization, agent):
    ran = invoked("read_file", "--parameters", '{"path": "a"}', "--json")
    assert (ran.code, ran.out) == (1, "")
    assert (ran.error["code"], ran.error["status"]) == ("tool_not_in_group", "PermissionDenied")
    assert Execution.objects.get(pk=ran.error["execution_id"]).started_at is None


def test_parameters_that_do_not_fit_are_named_field_by_field(invoked, organization):
    factories.tool(organization)
    ran = invoked("echo", "--parameters", '{"text": 1}')
    assert ran.code == 1
    assert "  /text: 1 is not of type" in ran.err


def test_an_unknown_session_is_refused(invoked, organization):
    factories.tool(organization)
    ran = invoked("echo", "--session", "none", "--parameters", '{"text": "x"}')
    assert (ran.code, ran.err) == (1, "There is no such session among yours.\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--parameters", "{"),
        ("--parameters", "[1]"),
        ("--parameters", '{"a": NaN}'),
        ("--timeout", "10"),
        ("--timeout", "PT0S"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(invoked, words):
    ran = invoked("echo", *words)
    assert (ran.code, ran.out) == (2, "")


def test_in_a_session_the_servers_state_counts_and_moves(invoked, organization, agent):
    factories.tool(organization, state="after", available_in_states=["undefined"])
    session, _ = session_actions.open_session(
        caller=factories.caller(agent), group=None, state=None
    )
    words = ("echo", "--parameters", '{"text": "x"}', "--session", str(session.pk))
    lied = invoked(*words, "--state", "after")
    assert (lied.code, "session has" in lied.err) == (1, True)
    ran = invoked(*words)
    assert ran.code == 0
    assert f"Session:    {session.pk}\nState:      after\n" in ran.out
    assert invoked(*words).code == 1
