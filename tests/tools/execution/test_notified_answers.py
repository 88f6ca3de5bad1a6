"""The notification of an end brings the answer: sealed, of a stored end alone, and never needed."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import factories
from tools.execution import answer, events, perform
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.models import Agent, Execution, Organization
from tools.shapes.executions import execution_shape

pytestmark = pytest.mark.usefixtures("without_workers")
SECRET = "the only copy"
TALKATIVE = "def main(parameters):\n    return {'text': 'long ' * 10_000}\n"
MIXED = (
    "def main(parameters):\n    return {'b': [1, 2.5, None, True], 'a': 'ä\\u2028', 'c': 1e300}\n"
)


@pytest.fixture(autouse=True)
def performed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This thread performs what it dispatches, as a worker does."""

    def dispatch(execution_ids: Iterable[UUID]) -> None:
        for execution_id in execution_ids:
            perform.perform(execution_id)

    monkeypatch.setattr(answer, "wake_workers", dispatch)


def called(agent: Agent, text: str = "x") -> tuple[Execution, int]:
    """The answer of a call, and how often its row was read for it."""
    call = factories.call("echo", {"text": text})
    with CaptureQueriesContext(connection) as asked:
        execution = answer.execute(caller=factories.caller(agent), call=call, wait_s=60)
    return execution, sum("version_label" in one["sql"] for one in asked)


def code_tool(organization: Organization, source: str) -> None:
    factories.tool(organization, implementation={"source": source})


def as_read(execution: Execution) -> dict[str, object]:
    return execution_shape(Execution.objects.answer(execution.pk))


def test_an_answer_that_was_brought_is_the_one_that_is_read(
    organization: Organization, agent: Agent
) -> None:
    code_tool(organization, MIXED)
    execution, reads = called(agent)
    assert reads == 0
    assert execution_shape(execution) == as_read(execution)
    assert execution.status == "Success"


def test_a_failure_is_brought_too(organization: Organization, agent: Agent) -> None:
    code_tool(organization, "def main(parameters):\n    raise ValueError('no')\n")
    execution, reads = called(agent)
    assert reads == 0
    assert execution_shape(execution) == as_read(execution)
    assert execution.status == "Failed"


def test_a_large_answer_is_read(organization: Organization, agent: Agent) -> None:
    code_tool(organization, TALKATIVE)
    execution, reads = called(agent)
    assert reads == 1
    assert len(execution.output["text"]) == 50_000


@pytest.mark.parametrize("brought", [b"", b"short", b"forged in Redis"])
def test_an_answer_that_was_lost_or_forged_is_read(
    organization: Organization, agent: Agent, monkeypatch: pytest.MonkeyPatch, brought: bytes
) -> None:
    factories.tool(organization)
    monkeypatch.setattr(events, "seal_answer", lambda _: brought)
    execution, reads = called(agent, text=SECRET)
    assert reads == 1
    assert (execution.status, execution.output) == ("Success", {"echo": {"text": SECRET}})


def test_what_is_sent_can_be_read_by_no_other(
    organization: Organization, agent: Agent, settings: Any
) -> None:
    factories.tool(organization)
    first, second = (called(agent, text=SECRET)[0] for _ in range(2))
    sealed = events.seal_answer(first)
    assert SECRET.encode() not in sealed
    assert not events.apply_answer(sealed, second)
    assert events.apply_answer(sealed, first)
    settings.SECRET_KEY = "another installation's"
    assert not events.apply_answer(sealed, first)


def test_an_end_that_was_not_stored_is_not_brought(
    organization: Organization, agent: Agent
) -> None:
    """A worker that lost its fence has a result, and has it in hand still after an earlier try."""
    factories.tool(organization)
    execution = factories.execution(agent, text="x")
    performance = claim(execution.pk, "lost")
    assert performance is not None
    perform.run(performance)
    performance.ended = True  # of a commit that failed
    factories.release(execution)
    assert factories.claim(execution.pk) is not None
    finish(performance)
    assert not performance.ended
    assert perform._answer_of(performance) == b""


def test_a_number_that_needs_all_its_digits_is_read(
    organization: Organization, agent: Agent
) -> None:
    code_tool(organization, "def main(parameters):\n    return 10 ** 30\n")
    execution, reads = called(agent)
    assert (execution.output, reads) == (10**30, 1)
