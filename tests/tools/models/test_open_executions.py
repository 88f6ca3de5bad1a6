"""The table of open executions has what is open, by whatever code an execution was written."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from tests import factories
from tools.models import Agent, Execution, OpenExecution, Organization, Session
from tools.models.ids import new_id


@pytest.fixture
def agent(agent: Agent, organization: Organization) -> Agent:
    factories.tool(organization)
    return agent


def claimed(**more: Any) -> dict[str, Any]:
    now = timezone.now()
    return {"status": "Running", "fence": 1, "lease_until": now, "started_at": now, **more}


def over_as(status: str) -> dict[str, Any]:
    return {"status": status, "lease_until": None, "completed_at": timezone.now()}


def test_a_new_execution_is_open_with_what_the_queue_looks_for(agent: Agent) -> None:
    execution = factories.execution(agent)
    execution.refresh_from_db()
    row = execution.open
    assert (row.organization_id, row.user_id) == (execution.organization_id, execution.user_id)
    assert (row.status, row.queued_at) == ("Pending", execution.queued_at)
    assert (row.tool_name, row.cache_key, row.session_id) == ("echo", "", None)


def test_its_row_follows_it_and_goes_when_it_ends(agent: Agent) -> None:
    execution = factories.execution(agent)
    rows = Execution.objects.filter(pk=execution.pk)
    rows.update(**claimed())
    assert OpenExecution.objects.get(pk=execution.pk).status == "Running"
    later = timezone.now() + timedelta(seconds=5)
    rows.update(status="Pending", lease_until=None, queued_at=later)
    assert OpenExecution.objects.get(pk=execution.pk).queued_at == later
    rows.update(**claimed(fence=2))
    rows.update(**over_as("Failed"))
    assert not OpenExecution.objects.filter(pk=execution.pk).exists()


def test_its_row_goes_when_it_is_deleted(agent: Agent) -> None:
    execution = factories.execution(agent)
    Execution.objects.filter(pk=execution.pk).delete()
    assert not OpenExecution.objects.filter(pk=execution.pk).exists()


def test_an_execution_that_is_over_at_once_is_never_open(agent: Agent) -> None:
    execution = copied(factories.execution(agent), **over_as("Success"))
    assert not OpenExecution.objects.filter(pk=execution.pk).exists()


def copied(execution: Execution, **fields: Any) -> Execution:
    """Another row like it, but for these fields."""
    row = Execution.objects.get(pk=execution.pk)
    row.pk, row.idempotency_key = new_id(), None
    for name, value in fields.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    return row


def test_a_renewed_dispatch_leaves_its_row_alone(agent: Agent) -> None:
    execution = factories.execution(agent)
    before = place_of(execution)
    Execution.objects.filter(pk=execution.pk).update(hints=3, hinted_at=timezone.now())
    assert place_of(execution) == before


def place_of(execution: Execution) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ctid::text FROM tools_openexecution WHERE execution_id = %s", [execution.pk]
        )
        return str(cursor.fetchone()[0])


def test_a_session_has_one_open_call_beside_composite_ones(agent: Agent) -> None:
    session = Session.objects.create(
        organization=agent.organization, user=agent.service_account, agent=agent, groups=["default"]
    )
    execution = factories.execution(agent)
    copied(execution, session=session, composite=True)
    copied(execution, session=session)
    copied(execution, session=session, **over_as("Failed"))
    with pytest.raises(IntegrityError, match="execution_one_open_per_session"):
        copied(execution, session=session)
