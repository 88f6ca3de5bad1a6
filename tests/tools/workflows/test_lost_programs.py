"""Turns of programs that are lost midway: each call is made once, however often a turn is
repeated."""

import pytest

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.tools.workflows.test_programs import SAYS, begin_program
from tools.execution.perform import perform
from tools.models import Execution
from tools.worker import reaper
from tools.workflows import composition

pytestmark = pytest.mark.usefixtures("without_workers")
MANY = (
    "found = call_many([(name, {'text': name}) for name in ('ghost', 'say', 'told')],"
    " errors='return')\n"
    "result = [getattr(one, 'code', one) for one in found]\n"
)


class Killed(BaseException):
    """Kills the worker's process."""


@pytest.fixture
def agent(organization):
    factories.install(organization)
    for name in ("say", "told"):
        factories.tool(organization, name, implementation={"source": SAYS})
    return factories.agent(organization, groups=["default", "composition"])


def killed(execution, monkeypatch, *, at, what):
    """One turn by a worker that is killed when it calls this function."""

    def die(*_args, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(at, what, die)
        with pytest.raises(Killed):
            perform(execution.pk)


def gone_on(execution):
    """Another worker claims it and continues to the end."""
    Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()
    work_off(execution.organization)
    return Execution.objects.get(pk=execution.pk)


def test_calls_that_a_lost_turn_began_are_not_made_twice(agent, monkeypatch):
    execution = begin_program(agent, "say(text='a')\nresult = say(text='b')\n")
    killed(execution, monkeypatch, at=composition, what="_park")
    assert calls_of(execution).count() == 1
    done = gone_on(execution)
    assert done.output == {"printed": "", "result": {"said": "b"}, "calls": 2}
    assert [call.parameters["text"] for call in calls_of(execution)] == ["a", "b"]


def test_a_call_of_which_there_is_no_row_is_remembered_or_made_again(agent, monkeypatch):
    execution = begin_program(agent, MANY)
    killed(execution, monkeypatch, at=composition, what="_park")
    done = gone_on(execution)
    assert done.output["result"] == ["tool_not_found", {"said": "say"}, {"said": "told"}]
    assert [call.place for call in calls_of(execution)] == ["1", "2"]


def test_one_that_asks_for_something_else_after_a_lost_turn_is_stopped(agent, monkeypatch):
    source = (
        "import os\n"
        "call_many([('ghost', {}), ('say', {'text': os.urandom(8).hex()})], errors='return')\n"
    )
    execution = begin_program(agent, source)
    killed(execution, monkeypatch, at=composition, what="_park")
    done = gone_on(execution)
    assert (done.status, done.error_code) == ("Failed", "PROGRAM_NOT_DETERMINISTIC")
    assert calls_of(execution).count() == 1
