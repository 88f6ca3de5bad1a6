"""Runs that continue an earlier run, and replays that call no tool."""

import pytest

from tests import factories
from tests.stubs.llm import calls
from tests.tools.agents.conftest import begin_request, reported
from tests.tools.approval_requests import at_the_browser
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.accounts.callers import caller_at_playground
from tools.accounts.grants import grant_actions
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunRequest
from tools.errors import Forbidden, Malformed, NotFound
from tools.execution import answer
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("without_workers")
SAY = ("say", '{"text": "hello"}')


def messages_text(question):
    return str(question["messages"]).replace('\\"', '"')


@pytest.fixture
def earlier_report(perform_request, model):
    model.plays(calls("open", '{"text": "o"}', thought="Open it."), "It is open.")
    return perform_request("Is it open?")


@pytest.mark.part("agents")
def test_a_run_goes_on_where_another_has_led(earlier_report, perform_request, model):
    model.plays(calls("inner", '{"text": "i"}'), "Inside.")
    report = perform_request("And inside?", continues=str(earlier_report.run.pk))
    assert "Open it." in messages_text(model.questions[-2])
    assert '{"said": "o"}' in messages_text(model.questions[-2])
    assert report.steps[0].status == "Success" and report.answer == "Inside."


def test_a_run_that_moved_through_states_is_continued_by_its_own_caller(perform_request, model):
    model.plays(
        calls("open", '{"text": "o"}'), calls("inner", '{"text": "i"}'), "Open, and looked into."
    )
    earlier = perform_request("Is it open?")
    assert [step.status for step in earlier.steps if step.execution_id] == ["Success"] * 2
    model.plays("Still open.")
    assert perform_request("And now?", continues=str(earlier.run.pk)).answer == "Still open."


@pytest.mark.part("agents")
def test_a_question_that_is_left_out_is_the_earlier_one(earlier_report, perform_request, model):
    model.plays("Still.")
    assert (
        perform_request(question="", continues=str(earlier_report.run.pk)).question == "Is it open?"
    )


def test_a_caller_cannot_continue_a_run_that_it_may_not_read(earlier_report, organization):
    other = factories.agent(organization, groups=["default"])
    with pytest.raises(NotFound):
        begin_request(other, continues=str(earlier_report.run.pk))


@pytest.mark.part("agents")
def test_another_agent_goes_on_from_what_was_shared_with_it(perform_request, model, organization):
    other = factories.agent(organization, groups=["default"])
    model.plays(calls("open", '{"text": "o"}'), "It is open.")
    earlier = perform_request("Is it open?", shared_with=[other.slug])
    model.plays(calls("inner", '{"text": "i"}'), "Inside.")
    run = begin_request(other, "And inside?", continues=str(earlier.run.pk))
    work_off(organization)
    report = reported(other, run)
    assert report.answer == "Inside." and '{"said": "o"}' in messages_text(model.questions[-2])
    with pytest.raises(NotFound):  # continuing a run does not permit reading it
        reported(other, earlier.run)


def test_another_caller_cannot_continue_a_shared_run(perform_request, model, organization):
    other, third = (factories.agent(organization, groups=["default"]) for _ in range(2))
    model.plays("Yes.")
    earlier = perform_request(shared_with=[other.slug])
    with pytest.raises(NotFound):
        begin_request(third, continues=str(earlier.run.pk))


@pytest.mark.part("agents")
def test_who_lacks_a_tool_whose_result_stands_there_does_not_go_on(
    perform_request, model, organization
):
    other = factories.agent(organization, groups=["default"], tools=["say"])
    model.plays(calls("open", '{"text": "o"}'), "It is open.")
    earlier = perform_request(shared_with=[other.slug])
    with pytest.raises(Forbidden) as refusal:
        begin_request(other, continues=str(earlier.run.pk))
    assert "open" in refusal.value.message


@pytest.mark.part("agents")
def test_a_person_who_may_read_it_goes_on_as_another_agent(earlier_report, organization, model):
    other = factories.agent(organization, groups=["default"])
    person = at_the_browser(factories.superuser(organization))
    caller = caller_at_playground(person, other.slug)
    call = agent_requests.build_call(
        caller, AgentRunRequest({"question": "And?", "continues": str(earlier_report.run.pk)})
    )
    model.plays("Still open.")
    run = answer.execute(caller=caller, call=call, wait_s=0)
    work_off(organization)
    assert reported(other, run).answer == "Still open."


@pytest.mark.part("agents")
def test_a_run_with_a_refused_call_can_be_continued(perform_request, model):
    model.plays(calls("hidden", "{}"), "No.")
    earlier = perform_request()
    model.plays("Still no.")
    assert perform_request("Sure?", continues=str(earlier.run.pk)).answer == "Still no."


def test_rights_that_were_taken_away_end_it(earlier_report, agent, organization):
    grant_actions.set_grants(agent=agent, by=factories.actor(organization), groups=[])
    with pytest.raises(Forbidden) as refusal:
        begin_request(agent, continues=str(earlier_report.run.pk))
    assert refusal.value.code == "not_the_same_rights"


def test_a_replay_calls_no_tool(
    earlier_report, agent, organization, perform_request, model, settings
):
    settings.LLM_PRICES = {"small": (0, 0), "other": (0, 0)}
    model.plays(calls("open", '{"text": "o"}'), "The same.")
    report = perform_request(question="", replays=str(earlier_report.run.pk), model="other")
    assert (report.answer, report.state) == ("The same.", "inside")
    assert report.steps[0].observation == '{"said": "o"}'
    assert not calls_of(report.run).exclude(tool_name="ask_model").exists()
    assert model.questions[-1]["model"] == "other"


@pytest.mark.part("agents")
def test_a_replay_ends_where_it_does_something_else(earlier_report, perform_request, model):
    model.plays(calls("open", '{"text": "another"}'), "Never said.")
    report = perform_request(question="", replays=str(earlier_report.run.pk))
    assert report.run.error_code == "DIVERGED" and "step 1" in report.run.error_message
    assert not calls_of(report.run).exclude(tool_name="ask_model").exists()


@pytest.mark.part("agents")
def test_no_model_is_asked_that_the_installation_does_not_name(agent):
    with pytest.raises(Malformed):
        begin_request(agent, model="dearest")


@pytest.mark.part("agents")
def test_a_run_is_continued_or_replayed_but_not_both(earlier_report, agent):
    run = str(earlier_report.run.pk)
    with pytest.raises(Malformed):
        begin_request(agent, continues=run, replays=run)


@pytest.mark.part("agents")
@pytest.mark.parametrize("named", ["no-id", "01a21532-9d16-755a-b73a-8e9da81280a2"])
def test_an_identifier_of_no_run_is_refused(agent, named):
    with pytest.raises((NotFound, Malformed)):
        begin_request(agent, continues=named)


def test_an_execution_of_another_tool_is_no_run(agent, organization, model):
    call = factories.execution(agent, "say")
    work_off(organization)
    with pytest.raises(NotFound):
        begin_request(agent, continues=str(call.pk))


@pytest.mark.part("agents")
def test_the_tool_itself_meets_the_same_rights(earlier_report, agent, organization, model):
    """Not only the entry point checks: a run that was started as a tool checks again."""
    other = factories.agent(organization, groups=["default", "agents"])
    call = factories.call(
        "run_agent", {"question": "?", "continues": str(earlier_report.run.pk)},
        group=["default", "agents"],
    )  # fmt: skip
    run = answer.execute(caller=factories.caller(other), call=call, wait_s=0)
    work_off(organization)
    row = Execution.objects.get(pk=run.pk)
    assert (row.status, row.error_code) == ("Failed", "run_not_found")
    assert reported(other, row).steps == ()
