"""A worker process is killed during a batch or a chain, and another one continues it."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.tools.execution.in_process_worker import calls_of
from tests.tools.execution.workers import killed, stopped, taken_by, worker
from tools.execution import answer
from tools.models import Execution

pytestmark = [pytest.mark.usefixtures("committed"), pytest.mark.timeout(300)]
GROUPS = ["default", "composition"]
PURE = {"delivery": "pure", "constraints": {"allow_side_effects": False}}
MANY = 300


@pytest.fixture
def call(organization):
    """Makes a call without a dispatch in time: a worker finds it by polling."""
    factories.install(organization)
    agent = factories.agent(organization, groups=GROUPS)

    def execute(name, parameters):
        asked = factories.call(name, parameters, group=GROUPS)
        return answer.execute(caller=factories.caller(agent), call=asked, wait_s=0)

    return execute


def succeeded(execution):
    return until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())


@pytest.mark.part("faults")
def test_a_batch_whose_worker_is_killed_in_a_turn_makes_each_call_once(crib, organization, call):
    factories.tool(organization, "known", cache_ttl="PT1H", **PURE)
    one = {"tool_name": "known", "parameters": {"text": "x"}}
    with worker(crib) as process, stopped(crib):
        execution = call("run_batch", {"inputs": [one] * MANY})
        until(lambda: calls_of(execution).count() > 40)
        process.kill()
        process.wait()
        begun = calls_of(execution).count()
        assert 40 < begun < MANY
        assert Execution.objects.get(pk=execution.pk).status == "Running"
        killed(process)
    done = succeeded(execution)
    assert done.output["succeeded"] == MANY
    assert set(calls_of(execution).values_list("place", flat=True)) == set(map(str, range(MANY)))
    lost = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.LOST")
    assert [one.reason for one in lost] == ["requeued"]


@pytest.mark.part("faults")
def test_a_chain_whose_worker_is_killed_in_a_step_goes_on_with_it(crib, organization, call, gate):
    gate.tool("slow", **PURE)
    step = {"tool_name": "slow", "parameters": {"text": "x"}}
    steps = [{"id": "one", **step}, {"id": "two", **step}]
    chain = {"name": "chain", "type": "chain", "description": "A chain.", "parameters": []}
    factories.register(organization, chain | {"implementation": {"chain": {"steps": steps}}})
    with worker(crib) as process:
        execution = taken_by(crib, process, lambda: begun_step(call("chain", {})))
        killed(process)
    gate.open()
    found = succeeded(Execution.objects.get(pk=execution.parent_id))
    assert found.output == "done"
    assert list(calls_of(found).values_list("place", "attempt")) == [("one", 2), ("two", 1)]


def begun_step(run):
    return until(lambda: calls_of(run).filter(status="Running").first())
