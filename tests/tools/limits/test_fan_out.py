"""Fan-out: the number of open composing calls is bounded for each caller and depth; ordinary calls
are not affected."""

import pytest

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.errors import Shed
from tools.execution.perform import perform
from tools.limits import answers
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("without_workers")
GROUPS = ["default", "composition"]
INNER = "result = call('run_program', {'source': 'result = 1'})['result']"


@pytest.fixture(autouse=True)
def _little_room(monkeypatch):
    monkeypatch.setattr(answers, "MOST_OPEN", 2)


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization)
    return factories.agent(organization, groups=GROUPS)


def program(agent, source=INNER):
    return factories.execution(agent, "run_program", source=source, group=GROUPS)


def test_one_more_than_may_be_open_is_turned_away_without_a_row(agent):
    made = [program(agent), program(agent)]
    with pytest.raises(Shed) as refusal:
        program(agent)
    assert (refusal.value.code, refusal.value.http_status) == ("too_many_composites", 429)
    assert refusal.value.details["limit"] == 2
    assert Execution.objects.filter(user=made[0].user).count() == 2


def test_ordinary_calls_and_other_callers_have_room_beside_them(agent, organization):
    for _ in range(2):
        program(agent)
    assert factories.execution(agent).status == "Pending"
    assert program(factories.agent(organization, groups=GROUPS)).status == "Pending"


def test_one_within_another_has_room_of_its_own_depth(agent):
    made = [program(agent), program(agent)]
    work_off(agent.organization)
    ended = Execution.objects.filter(pk__in=[one.pk for one in made])
    assert [one.output["result"] for one in ended] == [1, 1]


def test_one_within_another_that_finds_no_room_begins_later(agent):
    many = "call_many([('run_program', {'source': 'result = 1'})] * 3)\nresult = 'through'"
    made = program(agent, many)
    perform(made.pk)
    assert calls_of(made).count() == 2
    assert Execution.objects.get(pk=made.pk).parked
    work_off(agent.organization)
    assert calls_of(made).filter(status="Success").count() == 3
    assert Execution.objects.get(pk=made.pk).output["result"] == "through"
