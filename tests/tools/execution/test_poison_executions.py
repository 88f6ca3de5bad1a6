"""Poison executions: a call that repeatedly fails to start is ended, and its errors disclose no
secret."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.database import no_evidence_for
from tools.execution import requeue
from tools.models import Execution

SECRET = "hunter2"


@pytest.fixture
def waiting(agent, organization):
    factories.tool(organization)
    return factories.execution(agent)


def stumble(execution, times):
    for _ in range(times):
        requeue.count_failed_claim(execution.pk, ValueError(SECRET))
    return Execution.objects.get(pk=execution.pk)


def test_twice_it_waits_on(waiting):
    row = stumble(waiting, 2)
    assert (row.status, row.stumbles, row.attempt) == ("Pending", 2, 0)


def test_the_third_time_is_the_end(waiting):
    row = stumble(waiting, 3)
    assert (row.status, row.error_code, row.cost) == ("Failed", "POISONED", 0)
    assert [event.type for event in row.events.all()] == ["Failed"]


def test_evidence_has_the_class_of_the_fault_and_not_its_text(waiting):
    row = stumble(waiting, 3)
    records = AuditRecord.objects.filter(execution_id=row.pk, code="TOOL.LOST").order_by("id")
    assert [one.reason for one in records] == ["stumbled", "stumbled", "POISONED"]
    assert {one.details["fault"] for one in records} == {"ValueError"}
    said = [row.error_message, *(str(one.details) for one in records)]
    assert not any(SECRET in text for text in said)


def test_what_is_over_is_not_counted(waiting):
    factories.claimed(waiting)
    row = stumble(waiting, 3)
    assert (row.status, row.stumbles) == ("Running", 0)


@pytest.mark.usefixtures("committed")
def test_without_evidence_nothing_is_counted(waiting, organization):
    with no_evidence_for(organization), pytest.raises(Exception, match="cannot be written"):
        stumble(waiting, 1)
    assert Execution.objects.get(pk=waiting.pk).stumbles == 0
