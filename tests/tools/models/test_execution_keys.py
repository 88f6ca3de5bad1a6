"""What must be unique over the executions of all months, by whatever code one was written."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from audit.partitions import first_id
from tests import factories
from tools.models import Agent, Execution, ExecutionKey, Organization
from tools.models.ids import new_id

LONG_AGO = datetime(2020, 3, 14, tzinfo=UTC)


@pytest.fixture
def agent(agent: Agent, organization: Organization) -> Agent:
    factories.tool(organization)
    return agent


def earlier_copy(execution: Execution, **fields: Any) -> Execution:
    """Another row like it, in another partition."""
    row = Execution.objects.get(pk=execution.pk)
    row.pk = UUID(int=first_id(LONG_AGO).int | new_id().int & (1 << 80) - 1)
    for name, value in fields.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    return row


def test_a_call_without_any_has_no_row(agent: Agent) -> None:
    execution = factories.execution(agent)
    assert not ExecutionKey.objects.filter(execution=execution.pk).exists()


@pytest.mark.parametrize(
    ("constraint", "column"),
    [("execution_idempotency_key_once", "idempotency_key"), ("execution_retried_once", "retry_of")],
)
def test_a_key_is_taken_once_in_all_months(agent: Agent, constraint: str, column: str) -> None:
    first = factories.execution(agent)
    value = first.pk if column == "retry_of" else "k"
    Execution.objects.filter(pk=first.pk).update(**{column: value})
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        earlier_copy(first)


def test_a_place_is_taken_once_in_all_months(agent: Agent) -> None:
    parent, call = factories.execution(agent), factories.execution(agent)
    Execution.objects.filter(pk=call.pk).update(parent=parent, place="1", depth=1)
    earlier_copy(call, place="2")
    with pytest.raises(IntegrityError, match="execution_once_per_place"), transaction.atomic():
        earlier_copy(call)


def test_a_key_that_is_released_may_be_taken_again(agent: Agent) -> None:
    first = factories.execution(agent, idempotency_key="k")
    Execution.objects.filter(pk=first.pk).update(idempotency_key=None)
    assert not ExecutionKey.objects.filter(execution=first.pk).exists()
    earlier_copy(first, idempotency_key="k")


def test_a_call_that_is_deleted_releases_all_of_its_keys(agent: Agent) -> None:
    first = factories.execution(agent, idempotency_key="k")
    Execution.objects.filter(pk=first.pk).delete()
    assert not ExecutionKey.objects.filter(execution=first.pk).exists()


def test_a_call_that_releases_its_idempotency_key_keeps_its_place(agent: Agent) -> None:
    parent, call = factories.execution(agent), factories.execution(agent, idempotency_key="k")
    Execution.objects.filter(pk=call.pk).update(parent=parent, place="1", depth=1)
    Execution.objects.filter(pk=call.pk).update(idempotency_key=None)
    row = ExecutionKey.objects.get(execution=call.pk)
    assert (row.idempotency_key, row.parent_id, row.place) == (None, parent.pk, "1")
