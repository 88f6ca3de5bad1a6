"""What a page shows of a call: what its output keeps to itself, its observation does too."""

import pytest

from tests import factories
from tests.factories import definition
from tools.execution.pipeline import admit, perform
from tools.execution.redacted import redacted
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")
SOURCE = (
    "def main(p):\n    return {'name': 'a', 'keys': {'password': 'hunter2'}, 'pad': 'x' * 999}\n"
)
TEMPLATE = "{{ output.name }} enters with {{ output.keys.password }}"


@pytest.fixture
def done(agent, organization):
    work, transform = {"source": SOURCE}, {"observation": TEMPLATE}
    raw = definition("show", parameters=[], implementation=work, transform=transform)
    factories.register(organization, raw)

    def ran():
        execution = admit(factories.caller(agent), factories.call("show"))
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return ran


def test_an_observation_that_a_template_made_holds_no_secret_of_the_output(done):
    execution = done()
    assert execution.observation == "a enters with hunter2"  # as its caller has it
    said = redacted(execution)
    assert said["observation"] == f"a enters with {said['output']['keys']['password']}"
    assert "hunter2" not in str(said)


def test_where_the_output_lies_apart_such_an_observation_is_left_out(done, settings):
    settings.OUTPUT_INLINE_BYTES = 500
    execution = done()
    assert execution.output_digest and execution.observation == "a enters with hunter2"
    assert redacted(execution)["observation"] == ""
