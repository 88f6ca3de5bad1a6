"""Redaction for pages: secrets of an output are redacted in its observation too."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.factories import definition
from tools.execution.admit import admit
from tools.execution.outputs import redact_execution
from tools.execution.perform import perform
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
    assert execution.observation == "a enters with hunter2"  # the caller gets it unredacted
    said = redact_execution(execution)
    assert said["observation"] == f"a enters with {said['output']['keys']['password']}"
    assert "hunter2" not in str(said)


def test_a_template_observation_of_a_large_output_is_left_out(done, settings):
    settings.OUTPUT_INLINE_BYTES = 500
    execution = done()
    assert execution.output_digest and execution.observation == "a enters with hunter2"
    assert redact_execution(execution)["observation"] == ""


@pytest.mark.parametrize(
    "words",
    [
        "the token ghp_0123456789abcdefghijABCDEFGHIJ012345 was refused",
        "Authorization: Bearer abcdefghijklmnop.qrstuvwxyz0123456789 was refused",
        "cannot open postgres://ada:hunter2@db.example/x, was refused",
    ],
    ids=["token", "header", "address"],
)
def test_what_a_program_says_as_it_ends_itself_is_shown_without_its_secrets(
    agent, organization, words
):
    source = f"import sys\ndef main(p):\n    sys.exit({words!r})\n"
    factories.tool(organization, "ends", parameters=[], implementation={"source": source})
    execution = admit(factories.caller(agent), factories.call("ends"))
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert done.error_message == f"SystemExit: {words} (line 3)"  # the caller gets it unredacted
    shown = redact_execution(done)["error_message"]
    assert shown.startswith("SystemExit: ") and "was refused (line 3)" in shown
    secrets = ("ghp_0123456789", "qrstuvwxyz", "hunter2")
    assert not any(secret in shown for secret in secrets) and "[redacted" in shown
    kept = str(AuditRecord.objects.filter(execution_id=done.pk).values())
    assert not any(secret in kept for secret in secrets)
