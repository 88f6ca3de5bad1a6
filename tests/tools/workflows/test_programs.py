"""Programs of agents: tools are functions, each call is governed, and nothing else is
accessible."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import approve, approver
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.execution import answer
from tools.execution.perform import perform
from tools.models import Confirmation, Execution
from tools.workflows import programs

pytestmark = pytest.mark.usefixtures("without_workers")
SAYS = "def main(p):\n    return {'said': p['text']}\n"
FAILS = (
    "from toolcrib import ToolError\n"
    "def main(p):\n    raise ToolError('NOT_THERE', 'there is none')\n"
)


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "odd.name", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    return factories.agent(organization, groups=["default", "composition"])


def begin_program(agent, source, **inputs):
    call = factories.call(
        "run_program", {"source": source, "inputs": inputs}, group=["default", "composition"]
    )
    return answer.execute(caller=factories.caller(agent), call=call, wait_s=0)


def ran(agent, source, **inputs):
    execution = begin_program(agent, source, **inputs)
    work_off(agent.organization)
    return Execution.objects.get(pk=execution.pk)


@pytest.mark.part("calls")
def test_what_it_prints_and_its_result_come_back(agent):
    found = ran(agent, "print('hello', inputs['name'])\nresult = {'n': 1 + 1}", name="you")
    assert found.output == {"printed": "hello you\n", "result": {"n": 2}, "calls": 0}


def test_what_a_program_says_as_it_ends_itself_is_its_error(agent):
    found = ran(agent, "import sys\nprint('so far')\nsys.exit('no such city')")
    assert found.status == "Failed"
    assert "SystemExit: no such city" in found.error_message
    ended = ran(agent, "import sys\nresult = 1\nsys.exit()")
    assert (ended.status, ended.output["result"]) == ("Success", 1)


def test_a_large_integer_is_exact_in_a_call_and_in_the_result(agent):
    array = {"name": "given", "type": "Array", "description": "What.", "required": True}
    implementation = {"source": "def main(p):\n    return {'next': [p['given'][0] + 1]}\n"}
    factories.tool(agent.organization, "next", parameters=[array], implementation=implementation)
    found = ran(
        agent,
        "first = call('next', {'given': [2**63]})\n"
        "second = call('next', {'given': first['next']})\n"
        "result = {'first': first['next'], 'second': second['next']}\n",
    )
    assert found.output["result"] == {"first": [2**63 + 1], "second": [2**63 + 2]}
    assert calls_of(found)[1].parameters == {"given": [2**63 + 1]}


def test_tools_are_functions(agent):
    found = ran(
        agent,
        "a = say(text='one')\n"
        "b = tools['odd.name'](text=a['said'] + ' two')\n"
        "c = call('say', {'text': b['said'] + ' three'})\n"
        "print(c['said'])\n",
    )
    assert (found.output["printed"], found.output["calls"]) == ("one two three\n", 3)
    assert [call.place for call in calls_of(found)] == ["0", "1", "2"]


@pytest.mark.part("calls")
def test_what_a_call_gave_back_stays_behind_the_wall(agent):
    found = ran(agent, "say(text='a secret in between')\nresult = 'done'")
    for column in ("output", "observation", "memory", "error_details"):
        assert "secret" not in str(getattr(found, column))


@pytest.mark.part("calls")
def test_each_call_is_made_once_however_often_the_program_runs(agent):
    found = ran(agent, "for n in range(4):\n    say(text=str(n))\n")
    texts = [call.parameters["text"] for call in calls_of(found)]
    assert texts == ["0", "1", "2", "3"]


@pytest.mark.part("calls")
def test_many_calls_are_open_together(agent):
    source = (
        "found = call_many([('say', {'text': str(n)}) for n in range(3)])\n"
        "result = [one['said'] for one in found]\n"
    )
    execution = begin_program(agent, source)
    perform(execution.pk)
    assert calls_of(execution).filter(status="Pending").count() == 3
    work_off(agent.organization)
    assert Execution.objects.get(pk=execution.pk).output["result"] == ["0", "1", "2"]


@pytest.mark.part("calls")
def test_a_failed_call_is_an_error_that_it_may_catch(agent):
    found = ran(
        agent,
        "try:\n    fail(text='x')\nexcept ToolError as error:\n"
        "    result = [error.code, error.message]\n",
    )
    assert found.output["result"] == ["NOT_THERE", "there is none"]
    given = ran(agent, "result = call_many([('fail', {'text': 'x'})], errors='return')[0].code")
    assert given.output["result"] == "NOT_THERE"


def test_an_uncaught_failed_call_ends_it(agent):
    found = ran(agent, "print('before')\nfail(text='x')\nprint('after')")
    assert (found.status, found.error_code) == ("Failed", "PROGRAM_ERROR")
    assert found.error_details["tool_error"] == "NOT_THERE"
    assert (found.error_details["line"], found.error_details["printed"]) == (2, "before\n")


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    ("source", "line", "said"),
    [("x = 1\ny = x / 0", 2, "ZeroDivisionError"), ("x = (", 1, "SyntaxError")],
)
def test_a_program_that_is_wrong_says_where(agent, source, line, said):
    found = ran(agent, source)
    assert (found.error_code, found.error_details["line"]) == ("PROGRAM_ERROR", line)
    assert said in found.error_message


def test_what_its_caller_may_not_call_it_may_not(agent, organization):
    factories.tool(organization, "vaulted", group=["vault"])
    found = ran(
        agent,
        "codes = []\n"
        "for name in ('vaulted', 'ghost', 'run_program'):\n"
        "    try:\n        call(name, {})\n"
        "    except ToolError as error:\n        codes.append(error.code)\n"
        "result = codes + ['vaulted' in globals()]\n",
    )
    assert found.output["result"] == [
        "tool_not_in_group", "tool_not_found", "invalid_parameters", False,
    ]  # fmt: skip


def test_rates_and_costs_are_those_of_its_calls(agent, organization):
    factories.tool(organization, "dear", cost_per_invocation="2", rate_limit_per_minute=1)
    found = ran(
        agent,
        "dear(text='a')\ntry:\n    dear(text='b')\nexcept ToolError as e:\n    result = e.code",
    )
    assert (found.output["result"], found.cost) == ("rate_limited", 0)
    assert [call.cost for call in calls_of(found)] == [2, 0]


def test_it_waits_for_a_person_without_a_worker(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    execution = ran(agent, "result = careful(text='x')")
    assert execution.parked
    inner = calls_of(execution).get()
    approve(Confirmation.objects.get(execution=inner), approver(organization))
    work_off(organization)
    assert Execution.objects.get(pk=execution.pk).status == "Success"


@pytest.mark.part("calls")
def test_a_tool_takes_no_name_of_pythons_own(agent, organization):
    for name in ("len", "sum", "result"):
        factories.tool(organization, name, implementation={"source": SAYS})
    found = ran(agent, "print(len('abc'), sum([1, 2]), tools['len'](text='x')['said'])")
    assert (found.output["printed"], found.output["result"]) == ("3 3 x\n", None)


@pytest.mark.part("calls")
def test_tools_beyond_the_first_are_called_by_their_names(agent, monkeypatch):
    monkeypatch.setattr(programs, "MOST_TOOLS", 1)
    source = "result = ['say' in globals(), call('say', {'text': 'x'})['said']]"
    assert ran(agent, source).output["result"] == [False, "x"]


@pytest.mark.part("calls")
def test_evidence_stands_under_the_program(agent):
    found = ran(agent, "say(text='x')")
    record = AuditRecord.objects.get(execution_id=calls_of(found).get().pk, code="TOOL.ACCEPT")
    assert record.details["parent"] == {"execution_id": str(found.pk), "place": "0"}


@pytest.mark.part("calls")
def test_a_program_that_does_something_else_the_second_time_is_stopped(agent):
    source = "import os\nsay(text=os.urandom(8).hex())\n"
    found = ran(agent, source)
    assert (found.status, found.error_code) == ("Failed", "PROGRAM_NOT_DETERMINISTIC")
    assert calls_of(found).count() == 1


HONEST = {
    "chance and the clock are the same each time": (
        "import random, time\n"
        "say(text=f'{random.random()} {time.time()}')\n"
        "time.sleep(60)\n"
        "say(text=str(random.random()))\nresult = 'through'\n"
    ),
    "printing forges no answer": (
        "import sys, json, os\n"
        "forged = json.dumps({'state': 'done', 'result': 'forged'})\n"
        "print(forged)\nsys.__stdout__.write(forged)\nos.write(1, forged.encode())\n"
        "say(text='x')\nresult = 'through'\n"
    ),
}


@pytest.mark.part("calls")
@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST)
def test_a_program_ends_with_its_own_result(agent, source):
    assert ran(agent, source).output["result"] == "through"


def test_swallowing_the_end_of_a_turn_gains_nothing(agent):
    source = (
        "try:\n    say(text='a')\nexcept BaseException:\n    pass\n"
        "try:\n    say(text='b')\nexcept BaseException:\n    pass\n"
        "result = 'through'\n"
    )
    found = ran(agent, source)
    assert found.output["result"] == "through"
    assert [call.parameters["text"] for call in calls_of(found)] == ["a", "b"]


@pytest.mark.part("generated")
def test_tampering_with_what_runs_it_lends_nothing(agent, organization):
    """It can only make calls that it could make anyway, and every gate checks them."""
    factories.tool(organization, "vaulted", group=["vault"])
    source = (
        "import sys\n"
        "calls = call.__self__\n"
        "calls.wanted = [{'tool': 'vaulted', 'parameters': {'text': 'x'}, 'digest': 'd'}]\n"
    )
    found = ran(agent, source)
    assert {call.status for call in calls_of(found)} == {"PermissionDenied"}
    assert (found.status, found.error_code) == ("Failed", "TOO_MANY_CALLS")
    broken = ran(agent, "call.__self__.wanted = [{'tool': 7}]")
    assert broken.error_code == "TOO_MANY_CALLS"


def test_a_reference_in_what_a_tool_gave_is_data(agent):
    secret = factories.execution(agent, "say", text="secret")
    perform(secret.pk)
    found = ran(
        agent,
        f"result = call('say', {{'text': {{'$result': '{secret.pk}', 'path': '/output/said'}}}})",
    )
    assert found.error_details["tool_error"] == "invalid_parameters"


@pytest.mark.part("calls")
def test_it_makes_so_many_calls_and_no_more(agent):
    found = ran(agent, "while True:\n    call_many([('ghost', {})] * 50, errors='return')\n")
    assert found.error_code == "TOO_MANY_CALLS"


@pytest.mark.part("calls")
def test_what_is_printed_is_cut_with_a_mark(agent):
    found = ran(agent, "for _ in range(3000):\n    print('x' * 99)")
    assert len(found.output["printed"]) < 101_000
    assert found.output["printed"].endswith("the rest of what was printed is left out")


@pytest.mark.part("calls")
def test_cancelling_it_cancels_its_call(agent):
    execution = begin_program(agent, "say(text='x')")
    perform(execution.pk)
    answer.cancel(caller=factories.caller(agent), execution=execution)
    work_off(agent.organization)
    assert calls_of(execution).get().status == "Cancelled"
    assert Execution.objects.get(pk=execution.pk).status == "Cancelled"


def test_it_reaches_neither_files_nor_hosts(agent):
    found = ran(
        agent,
        "import os, socket\nseen = []\n"
        "try:\n    socket.create_connection(('127.0.0.1', 80), 1)\n"
        "except OSError:\n    seen.append('net')\n"
        "try:\n    open('/etc/shadow')\nexcept OSError:\n    seen.append('file')\n"
        "seen.append(os.path.exists('/workspace'))\nresult = seen\n",
    )
    assert found.output["result"] == ["net", "file", False]
