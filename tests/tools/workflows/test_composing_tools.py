"""`call_tool`, `find_tools` and `run_program` in a session, and refusals of their inner calls."""

from uuid import uuid4

import pytest

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.tools.limits import allowance_fixtures
from tools.accounts.token_authentication import caller_of_token
from tools.catalog.actions import set_enabled
from tools.execution import answer
from tools.execution.perform import perform
from tools.models import Execution, LicenseTier, Organization, Session, Tool
from tools.workflows import session_actions

pytestmark = pytest.mark.usefixtures("without_workers")
GROUPS = ["default", "composition"]


@pytest.fixture
def agent(organization):
    """`submit` leads from `draft` to `sent`; each state has its own tool."""
    factories.install(organization)
    factories.tool(organization, "submit", state="sent", available_in_states=["draft"])
    factories.tool(organization, "track", available_in_states=["sent"])
    return factories.agent(organization, groups=GROUPS)


@pytest.fixture
def session(agent):
    caller = factories.caller(agent)
    return session_actions.open_session(caller=caller, group=GROUPS, state="draft")[0]


def call_tool(agent, tool, parameters, *, caller=None, **fields):
    asked = fields or {"group": GROUPS}
    execution = answer.execute(
        caller=caller or factories.caller(agent),
        call=factories.call(tool, parameters, **asked),
        wait_s=0,
    )
    work_off(agent.organization)
    return Execution.objects.get(pk=execution.pk)


def ran(agent, source, **fields):
    return call_tool(agent, "run_program", {"source": source}, **fields)


def called(agent, name, **fields):
    return call_tool(agent, "call_tool", {"tool_name": name, "parameters": {"text": "x"}}, **fields)


@pytest.mark.part("calls")
def test_in_a_session_a_program_gets_the_functions_of_the_states_it_comes_to(agent, session):
    source = (
        "before = 'track' in globals()\n"
        "submit(text='x')\n"
        "after = 'track' in globals()\n"
        "track(text='y')\n"
        "result = [before, after, 'submit' in globals()]\n"
    )
    found = ran(agent, source, session=str(session.pk))
    assert found.output["result"] == [False, True, True]
    assert Session.objects.get(pk=session.pk).state == "sent"


@pytest.mark.part("calls")
def test_a_function_of_a_state_that_was_left_is_refused_by_its_gate(agent, session):
    found = ran(agent, "submit(text='x')\nsubmit(text='y')\n", session=str(session.pk))
    assert (found.error_code, found.error_details["line"]) == ("PROGRAM_ERROR", 2)
    assert found.error_details["tool_error"] == "tool_not_in_state"


@pytest.mark.part("calls")
def test_a_name_that_the_program_has_given_stays_its_own(agent, session):
    found = ran(
        agent, "track = 'mine'\nsubmit(text='x')\nresult = track\n", session=str(session.pk)
    )
    assert found.output["result"] == "mine"


@pytest.mark.part("calls")
def test_a_tool_that_is_gone_in_between_does_not_change_what_the_program_did(agent, organization):
    factories.tool(organization, "first")
    factories.tool(organization, "careful", requires_confirmation=True)
    waiting = ran(agent, "first(text='x')\ncareful(text='y')\n")
    assert waiting.parked
    first = Tool.objects.get(organization=organization, name="first")
    set_enabled(tool=first, enabled=False, by=factories.actor(organization))
    inner = calls_of(waiting).get(tool_name="careful")
    answer.cancel(caller=factories.caller(agent), execution=inner)
    work_off(organization)
    found = Execution.objects.get(pk=waiting.pk)
    assert (found.error_code, found.error_details["line"]) == ("PROGRAM_ERROR", 2)


def test_a_tool_called_by_its_name_moves_the_session_on(agent, session):
    found = called(agent, "submit", session=str(session.pk))
    assert (found.status, found.state_after) == ("Success", "sent")
    assert Session.objects.get(pk=session.pk).state == "sent"
    again = called(agent, "submit", session=str(session.pk))
    assert (again.status, again.error_code) == ("PermissionDenied", "tool_not_in_state")


def test_what_is_found_in_a_session_is_what_its_state_allows(agent, session):
    def names():
        found = call_tool(agent, "find_tools", {"limit": 25}, session=str(session.pk))
        return {tool["name"] for tool in found.output["tools"]} & {"submit", "track"}

    assert names() == {"submit"}
    called(agent, "submit", session=str(session.pk))
    assert names() == {"track"}


def woken(execution):
    """One turn of the execution, made due at once."""
    Execution.objects.filter(pk=execution.pk).update(wake_at="2020-01-01T00:00:00Z")
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


@pytest.mark.part("calls")
def test_a_program_for_whose_call_there_is_no_room_does_not_run_again_meanwhile(agent, session):
    factories.execution(agent, "submit", session=str(session.pk))
    program = factories.execution(
        agent, "run_program", source="result = call('track', {'text': 'x'})",
        session=str(session.pk),
    )  # fmt: skip
    perform(program.pk)
    first, *later = [Execution.objects.get(pk=program.pk), woken(program), woken(program)]
    assert first.memory["spent"]["cpu_time_ms"] > 0
    assert [one.memory["spent"] for one in later] == [first.memory["spent"]] * 2
    assert [one.memory["put_off"] for one in (first, *later)] == [1, 2, 3]
    work_off(agent.organization)
    assert woken(program).stage == "Running"
    work_off(agent.organization)
    assert Execution.objects.get(pk=program.pk).output["result"] == {"echo": {"text": "x"}}


@pytest.mark.part("calls")
def test_what_its_turns_used_together_stands_beside_a_programs_result(agent):
    factories.tool(agent.organization, "first")
    burns, calls = "sum(range(1_000_000))\n", "first(text='x')\n" * 5
    five = ran(agent, burns + calls).metrics
    never = ran(agent, burns).metrics
    failed = ran(agent, f"{burns}{calls}1 / 0").metrics
    assert never["cpu_time_ms"] > 10 and never["peak_memory_bytes"] > 0
    # Each of six turns computes the sum again: about six times the CPU time of a single turn.
    assert min(five["cpu_time_ms"], failed["cpu_time_ms"]) > 2 * never["cpu_time_ms"]


def test_a_narrowed_token_is_narrow_for_what_is_called_within(agent):
    factories.tool(agent.organization, "first")
    token = factories.token(agent.service_account, tools=["call_tool", "run_program", "find_tools"])
    caller = caller_of_token(token)
    refused = called(agent, "first", caller=caller, group=GROUPS)
    assert (refused.status, refused.error_code) == ("PermissionDenied", "token_excludes_tool")
    source = (
        "codes = ['first' in globals()]\n"
        "try:\n    call('first', {'text': 'x'})\n"
        "except ToolError as error:\n    codes.append(error.code)\n"
        "result = codes\n"
    )
    program = ran(agent, source, caller=caller, group=GROUPS)
    assert program.output["result"] == [False, "token_excludes_tool"]
    found = call_tool(agent, "find_tools", {"limit": 25}, caller=caller, group=GROUPS)
    assert [tool["name"] for tool in found.output["tools"]] == ["run_program"]


@pytest.fixture
def without_custom_tools(organization):
    """A tier with all built-in tools and no custom tools."""
    before = organization.tier
    tier = LicenseTier.objects.create(name=str(uuid4()), rank=30_000, max_custom_tools=0)
    yield tier
    _licensed(organization, before)
    tier.delete()


def _licensed(organization, tier):
    Organization.objects.filter(pk=organization.pk).update(tier=tier)
    Organization.objects.next_revision(organization.pk)


def spent(agent, _tier):
    factories.tool(agent.organization, "inner", cost_per_invocation="2")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("1"))


def permissionless(agent, _tier):
    factories.tool(agent.organization, "inner", required_permissions=["tool.payments.write"])


def unlicensed(agent, tier):
    factories.tool(agent.organization, "inner")
    _licensed(agent.organization, tier)


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    ("refused_by", "code"),
    [
        (spent, "budget_exceeded"),
        (permissionless, "permission_missing"),
        (unlicensed, "license_excludes_custom_tools"),
    ],
)
def test_what_refuses_a_call_refuses_it_within_another(
    agent, without_custom_tools, refused_by, code
):
    refused_by(agent, without_custom_tools)
    by_name = called(agent, "inner")
    assert (by_name.status, by_name.error_code) == ("PermissionDenied", code)
    assert calls_of(by_name).get().started_at is None
    program = ran(agent, "call('inner', {'text': 'x'})")
    assert program.error_details["tool_error"] == code
    assert calls_of(program).get().started_at is None
