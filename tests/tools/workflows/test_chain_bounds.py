"""Bounds of a chain and its run: approval, the session's state, time, and counts."""

import pytest

from tests import factories
from tests.tools.approval_requests import approve, approver, at_the_browser, word
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.tools.workflows.test_chains import (
    SAYS,
    begin_chain,
    chain,
    done,
    places,
    reload,
    step,
)
from tools.approvals import decisions
from tools.definitions.chains.chain_document import MOST_ITEMS, MOST_STEPS
from tools.errors import InvalidDefinition
from tools.execution import answer
from tools.models import Confirmation
from tools.policy.call_gates import MOST_DEPTH
from tools.workflows import nested_calls, session_actions

pytestmark = pytest.mark.usefixtures("without_workers")
MANY = "def main(parameters):\n    return list(range(int(parameters['text'])))\n"


@pytest.fixture(autouse=True)
def tools(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "many", implementation={"source": MANY})


@pytest.mark.part("calls")
def test_a_chain_that_needs_a_person_begins_when_one_has_agreed(agent, organization):
    chain(organization, step("one"), step("two"), requires_confirmation=True)
    execution = done(agent)
    assert (execution.status, places(execution)) == ("RequiresConfirmation", {})
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    work_off(organization)
    assert reload(execution).status == "Success"
    assert places(execution) == {"one": "Success", "two": "Success"}


@pytest.mark.part("calls")
def test_a_chain_that_a_person_refuses_makes_no_call(agent, organization):
    chain(organization, step("one"), requires_confirmation=True)
    execution = begin_chain(agent)
    confirmation = Confirmation.objects.get(execution=execution)
    person = at_the_browser(approver(organization))
    decisions.decide(caller=person, word=word(confirmation, approve=False))
    work_off(organization)
    found = reload(execution)
    assert (found.status, found.error_code) == ("PermissionDenied", "confirmation_rejected")
    assert places(execution) == {}


def in_a_session(agent, name="chain"):
    """A run in its own session: the run's current state, and the session."""
    caller = factories.caller(agent)
    session, _ = session_actions.open_session(caller=caller, group=["default"], state=None)
    call = factories.call(name, {"text": "input"}, session=str(session.pk))
    execution = answer.execute(caller=caller, call=call, wait_s=0)
    work_off(agent.organization)
    session.refresh_from_db()
    return reload(execution), session


@pytest.mark.part("calls")
def test_a_chain_leads_its_session_on_after_what_its_steps_did(agent, organization):
    factories.tool(organization, "begin", state="middle")
    factories.tool(organization, "end", available_in_states=["middle"], state="inner")
    chain(organization, step("one", "begin"), step("two", "end"), state="last")
    found, session = in_a_session(agent)
    assert places(found) == {"one": "Success", "two": "Success"}
    assert (found.status, found.state_after, session.state) == ("Success", "last", "last")


@pytest.mark.part("calls")
def test_a_chain_that_fails_leaves_its_session_where_its_steps_have_led(agent, organization):
    factories.tool(organization, "begin", state="middle")
    factories.tool(organization, "late", available_in_states=["elsewhere"])
    chain(organization, step("one", "begin"), step("two", "late"), state="last")
    found, session = in_a_session(agent)
    assert (found.status, found.error_code) == ("Failed", "tool_not_in_state")
    assert session.state == "middle"


@pytest.mark.part("calls")
@pytest.mark.parametrize(("said", "allowed_s"), [("PT2S", 2), ("PT50S", 10), (None, 10)])
def test_a_step_has_the_shorter_of_its_own_time_and_its_tools(agent, organization, said, allowed_s):
    factories.tool(organization, "timed", constraints={"max_execution_time": "PT10S"})
    chain(organization, step("one", "timed", timeout=said))
    assert calls_of(done(agent)).get().timeout_s == allowed_s


@pytest.mark.part("calls")
def test_a_step_that_takes_longer_than_its_time_is_ended(agent, organization):
    source = "import time\ndef main(parameters):\n    time.sleep(60)\n"
    factories.tool(organization, "sleeps", implementation={"source": source})
    chain(organization, step("one", "sleeps", timeout="PT1S"))
    found = done(agent)
    assert (found.error_code, calls_of(found).get().status) == ("TIMEOUT", "Timeout")


@pytest.mark.part("calls")
def test_a_loop_over_a_list_that_is_too_long_makes_no_call(agent, organization):
    loop = step("two", for_each={"$step": "one"})
    chain(organization, step("one", "many", text=str(MOST_ITEMS + 1)), loop)
    found = done(agent)
    assert (found.status, found.error_code) == ("Failed", "NOT_A_LIST")
    assert places(found) == {"one": "Success"}


def test_a_run_makes_so_many_calls_and_not_more(agent, organization, monkeypatch):
    monkeypatch.setattr(nested_calls, "MOST_CALLS", 3)
    chain(organization, step("one"), step("two"), step("three"), name="fits")
    chain(organization, step("one"), step("two"), step("three"), step("four"), name="more")
    assert done(agent, "fits").status == "Success"
    found = done(agent, "more")
    assert (found.error_code, list(places(found))) == ("TOO_MANY_CALLS", ["one", "two", "three"])


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    "steps",
    [
        [step("one", for_each=["x"] * (MOST_ITEMS + 1))],
        [step("one", for_each=["x"], parallel=21)],
        [step(f"s{number}") for number in range(MOST_STEPS + 1)],
    ],
)
def test_a_chain_that_is_too_large_is_not_kept(organization, steps):
    with pytest.raises(InvalidDefinition):
        chain(organization, *steps)


@pytest.mark.part("calls")
def test_chains_stand_so_deep_in_each_other_and_not_deeper(agent, organization):
    chain(organization, step("one"), name="chain0")
    for deep in range(1, MOST_DEPTH + 1):
        chain(organization, step("one", f"chain{deep - 1}"), name=f"chain{deep}")
    assert done(agent, f"chain{MOST_DEPTH - 1}").status == "Success"
    assert done(agent, f"chain{MOST_DEPTH}").error_code == "nested_too_deep"
