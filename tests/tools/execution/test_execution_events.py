"""Events that an execution's row says are derived; all others are stored beside them."""

import pytest
from django.utils import timezone

from tests import factories
from tests.tools.approval_requests import attempted
from tools.definitions.results import EventType
from tools.execution import events, requeue
from tools.execution.claim import claim
from tools.models import Agent, Execution, Organization, StoredEvent


@pytest.fixture
def execution(organization: Organization, agent: Agent) -> Execution:
    factories.tool(organization, delivery="pure")
    made: Execution = factories.execution(agent, text="x")
    return made


def numbered(execution: Execution) -> list[tuple[int, str]]:
    return [(event.sequence, event.type) for event in execution.events.all()]


def end(execution: Execution, **columns: object) -> None:
    ended = {"status": "Failed", "completed_at": timezone.now(), "lease_until": None}
    Execution.objects.filter(pk=execution.pk).update(**ended | columns)


@pytest.mark.usefixtures("committed")
def test_a_plain_call_stores_no_event(execution: Execution) -> None:
    done = attempted(execution)
    assert numbered(execution) == [(1, "Started"), (2, "Completed")]
    assert [event.created_at for event in execution.events.all()] == [
        done.started_at,
        done.completed_at,
    ]
    assert not execution.stored_events.exists()


def test_progress_has_the_number_after_the_start(execution: Execution) -> None:
    claimed = claim(execution.pk, "w")
    assert claimed is not None
    assert numbered(execution) == [(1, "Started")]
    events.append_event(execution.pk, EventType.IN_PROGRESS, "Half of it.")
    assert numbered(execution) == [(1, "Started"), (2, "InProgress")]
    end(execution, error_message="No.")
    assert numbered(execution) == [(1, "Started"), (2, "InProgress"), (3, "Failed")]
    assert execution.events.last().message == "No."


def test_an_event_after_the_end_leaves_the_end_its_number(execution: Execution) -> None:
    claim(execution.pk, "w")
    end(execution)
    events.append_event(execution.pk, EventType.IN_PROGRESS, "Too late.")
    assert numbered(execution) == [(1, "Started"), (2, "Failed"), (3, "InProgress")]


def test_the_start_of_an_earlier_attempt_stays(execution: Execution) -> None:
    first = claim(execution.pk, "w")
    assert first is not None
    begun = execution.events.get().created_at
    assert requeue.give_back(first, reason=requeue.HANDED_BACK)
    claim(execution.pk, "w")
    assert numbered(execution) == [(1, "Started"), (2, "Warning"), (3, "Started")]
    assert execution.events.first().created_at == begun
    assert [event.sequence for event in execution.events.filter(sequence__gt=1)] == [2, 3]


def test_events_of_the_release_before_are_shown_once(execution: Execution) -> None:
    claim(execution.pk, "w")
    end(execution)
    for sequence, kind in enumerate((EventType.STARTED, EventType.FAILED), 1):
        StoredEvent.objects.create(execution=execution, sequence=sequence, type=kind)
    assert numbered(execution) == [(1, "Started"), (2, "Failed")]
