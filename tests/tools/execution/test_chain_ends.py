"""How runs of chains end: what is undone then, and what is said of the rest."""

import pytest

from tests import factories
from tests.tools.execution.test_chains import (
    FAILS,
    FAILS_ON,
    SAYS,
    begun,
    chain,
    now,
    places,
    step,
)
from tests.tools.execution.workers import stopped
from tests.tools.execution.working import calls_of, work_off
from tools.execution import (
    actions,
)
from tools.execution.pipeline import perform

pytestmark = pytest.mark.usefixtures("committed")
ENDS = {"TIMEOUT": "import time\ndef main(parameters):\n    time.sleep(9)\n", "ERR": FAILS}
UNDO = {"tool_name": "say", "parameters": {"text": "undo"}}


@pytest.fixture(autouse=True)
def alone(crib):
    with stopped(crib):
        yield


@pytest.fixture(autouse=True)
def tools(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    factories.tool(organization, "picky", implementation={"source": FAILS_ON})


def told(execution, name):
    """The places that its end names in one of its lists."""
    return [one["place"] for one in now(execution).error_details[name]]


def cancel(agent, execution):
    actions.cancel(caller=factories.caller(agent), execution=execution)


def test_cancelling_a_run_leaves_alone_what_undoes(agent, organization):
    chain(
        organization,
        step("one", compensate_with=UNDO),
        step("two", "fail", on_error="compensate"),
    )
    execution = begun(agent)
    perform(execution.pk)
    for place in ("one", "two"):
        perform(calls_of(execution).get(place=place).pk)
    assert places(execution)["undo:one"] == "Pending"
    cancel(agent, execution)
    assert places(execution)["undo:one"] == "Pending"
    work_off(organization)
    assert (now(execution).status, told(execution, "compensated")) == ("Failed", ["one"])
