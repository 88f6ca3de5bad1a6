"""Careless or hostile programs: their calls stay recorded, and they gain no access."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories
from tests.tools.execution.in_process_worker import work_off
from tests.tools.workflows.test_programs import FAILS, SAYS, begin_program, ran
from tools.execution import answer
from tools.execution import perform as execution_pipeline
from tools.execution.perform import perform
from tools.models import Execution
from tools.workflows import programs

pytestmark = pytest.mark.usefixtures("without_workers")
DEEP = "x = []\nfor _ in range(80):\n    x = [x]\n"


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    return factories.agent(organization, groups=["default", "composition"])


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    ("made", "result"),
    [
        ("result = 10**300", "1" + "0" * 300),
        ("result = 'a\\x00b'", "'a\\x00b'"),
        ("result = {'x': ['\\ud800']}", "{'x': ['\\ud800']}"),
        ("result = {1: 'a', '1': 'b'}", {"1": "b"}),
        ("result = {1: 'a', 'b': 2}", {"1": "a", "b": 2}),
    ],
)
def test_a_result_that_json_cannot_hold_is_given_as_its_text(agent, made, result):
    assert ran(agent, f"say(text='x')\n{made}").output["result"] == result


@pytest.mark.part("calls")
def test_a_result_too_deep_is_given_as_its_text(agent):
    assert ran(agent, f"{DEEP}result = x").output["result"] == "[" * 81 + "]" * 81


@pytest.mark.part("calls")
def test_what_cannot_be_printed_is_printed_with_a_mark(agent):
    assert ran(agent, "print('a\\x00b\\ud800c')").output["printed"] == "a\ufffdb\ufffdc\n"
    failed = ran(agent, "print('a\\x00')\nraise ValueError('b\\x00\\ud800')")
    assert failed.error_details["printed"] == "a\ufffd\n"
    assert failed.error_message == "ValueError: b\ufffd\ufffd (line 2)"


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "value", ["'a\\x00'", "'\\ud800'", "10**300", "x", "{'\\x00': 1}", "float('inf')"]
)
def test_parameters_that_no_call_can_have_are_an_error_where_they_stand(agent, value):
    source = (
        f"{DEEP}try:\n    call('say', {{'text': {value}}})\n"
        "except TypeError as error:\n    result = str(error)\n"
    )
    assert ran(agent, source).output["result"].startswith("the parameters of say are not JSON:")


def test_a_name_that_no_tool_can_have_is_an_error_where_it_stands(agent):
    found = ran(agent, "x = 1\ncall('a\\x00b', {})")
    assert (found.error_code, found.error_details["line"]) == ("PROGRAM_ERROR", 2)


@pytest.mark.part("calls")
def test_a_result_that_cannot_be_written_loses_nothing_that_was_printed(agent):
    source = (
        "class Odd:\n    def __repr__(self):\n        raise ValueError('no')\n"
        "print('said')\nresult = Odd()\n"
    )
    found = ran(agent, source)
    assert (found.error_code, found.error_details["printed"]) == ("PROGRAM_ERROR", "said\n")


@pytest.mark.part("calls")
def test_a_turn_takes_the_program_on_once_however_soon_its_calls_are_over(agent, monkeypatch):
    """Between two turns the timeout and a cancellation are checked."""
    monkeypatch.setattr(execution_pipeline, "resumable_calls", lambda _: [])
    execution = begin_program(
        agent, "while True:\n    call_many([('ghost', {})], errors='return')\n"
    )
    for calls in (1, 2):
        perform(execution.pk)
        row = Execution.objects.get(pk=execution.pk)
        assert row.parked and len(row.memory["digests"]) == calls
    answer.cancel(caller=factories.caller(agent), execution=row)
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).status == "Cancelled"


def test_no_turn_may_take_longer_than_the_program_has(agent, monkeypatch):
    given, perform_job = [], programs.run_program

    def note_timeout(job, *rest):
        given.append(job.timeout_s)
        return perform_job(job, *rest)

    monkeypatch.setattr(programs, "run_program", note_timeout)
    monkeypatch.setattr(execution_pipeline, "resumable_calls", lambda _: [])
    execution = begin_program(agent, "say(text='x')")
    perform(execution.pk)
    limit_s = Execution.objects.get(pk=execution.pk).timeout_s
    since = timezone.now() - timedelta(seconds=limit_s - 20)
    Execution.objects.filter(pk=execution.pk).update(started_at=since)
    work_off(agent.organization)
    assert len(given) == 2 and given[1] < 20


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    "call",
    [
        "call('call_tool', {'tool_name': 'say', 'parameters': {'text': given}})",
        "call('run_batch', {'inputs': [{'tool_name': 'say', 'parameters': {'text': given}}]})",
    ],
)
def test_a_reference_in_what_a_tool_gave_is_data_however_deep_it_is_passed_on(agent, call):
    """Otherwise a hostile tool could insert outputs of its reader's other calls."""
    secret = factories.execution(agent, "say", text="secret")
    perform(secret.pk)
    given = f"{{'$result': '{secret.pk}', 'path': '/output/said'}}"
    found = ran(agent, f"given = {given}\ntry:\n    print({call})\nexcept ToolError:\n    pass\n")
    called = Execution.objects.get(parent__parent=found.pk)
    assert (called.error_code, called.refers_to) == ("invalid_parameters", [])


def test_however_much_it_has_itself_print_its_row_stays_small(agent):
    source = "import sys\nsys.stdout.left = 10**9\nprint('x' * 5_000_000)\nraise ValueError\n"
    found = ran(agent, source)
    assert found.error_code == "PROGRAM_ERROR"
    assert len(found.error_details["printed"]) <= programs.MOST_PRINTED
