"""Retention drops a month of executions as a whole; one that has to stay keeps its month."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from audit import partitions
from audit.models import AuditRecord
from audit.partitions import Month, first_id
from tests import factories
from tools.models import (
    Agent,
    Confirmation,
    ConfirmationDecision,
    DayOfCalls,
    Execution,
    ExecutionKey,
    Organization,
    StateTransition,
    StoredEvent,
)
from tools.models.ids import new_id
from tools.worker import retention

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
TABLE = "tools_execution"
MARCH, MAY = datetime(2020, 3, 14, tzinfo=UTC), datetime(2020, 5, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def months(settings: Any, organization: Organization) -> None:
    """Executions are kept for 30 days; March, April and May 2020 have partitions."""
    settings.RETENTION_DAYS = dict.fromkeys(settings.RETENTION_DAYS, 30)
    factories.tool(organization)
    made_partitions(MARCH)


def made_partitions(since: datetime) -> None:
    connection.check_constraints()
    partitions.make_partitions(TABLE, "id", since=since)


def completed_execution(agent: Agent, made: datetime, **fields: Any) -> Execution:
    """An execution that was made then and ended soon."""
    row = Execution.objects.get(pk=factories.execution(agent).pk)
    Execution.objects.filter(pk=row.pk).delete()
    row.pk = UUID(int=first_id(made).int | new_id().int & (1 << 80) - 1)
    over = {"status": "Success", "created_at": made, "completed_at": made + timedelta(seconds=1)}
    for name, value in (over | fields).items():
        setattr(row, name, value)
    row.save(force_insert=True)
    connection.check_constraints()
    return row


def has_partition(month: datetime) -> bool:
    names = [one.name for one in partitions.partitions_of(TABLE)]
    return f"{TABLE}_{Month.from_moment(month)}" in names


def is_there(execution: Execution) -> bool:
    return Execution.objects.filter(pk=execution.pk).exists()


def expired(organization: Organization) -> list[dict[str, int]]:
    records = AuditRecord.objects.filter(organization=organization.slug, code="ROWS.EXPIRE")
    return [one.details["rows"] for one in records.order_by("id")]


def test_a_month_goes_at_once_and_it_is_on_record(agent: Agent) -> None:
    executions = [completed_execution(agent, MARCH), completed_execution(agent, MARCH)]
    retention.delete_expired_rows()
    assert not has_partition(MARCH)
    assert not any(map(is_there, executions))
    assert expired(agent.organization) == [{"executions": 2}]


def test_what_belongs_to_its_executions_goes_with_them(agent: Agent) -> None:
    execution = completed_execution(agent, MARCH, idempotency_key="k")
    place = {"organization": agent.organization, "execution": execution}
    StoredEvent.objects.create(execution=execution, sequence=1, type="Completed")
    StateTransition.objects.create(**place, tool_name="echo", from_state="a", to_state="b")
    approval = Confirmation.objects.create(
        **place, bound_hash="0" * 64, reasons=[], status="approved", expires_at=timezone.now()
    )
    ConfirmationDecision.objects.create(
        confirmation=approval, user=agent.service_account, approved=True
    )
    retention.delete_expired_rows()
    assert not has_partition(MARCH)
    for model in (StoredEvent, StateTransition, Confirmation, ExecutionKey):
        assert not model._default_manager.filter(execution=execution.pk).exists()
    kinds = [{"events": 1}, {"transitions": 1}, {"confirmations": 1}, {"executions": 1}]
    assert expired(agent.organization) == kinds


def test_no_row_of_it_is_deleted(agent: Agent) -> None:
    completed_execution(agent, MARCH)
    deleted = []

    def watch(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        done = execute(sql, parameters, many, context)
        if sql.lstrip().startswith('DELETE FROM "tools_execution"'):
            deleted.append(context["cursor"].rowcount)
        return done

    with connection.execute_wrapper(watch):
        retention.delete_expired_rows()
    assert not has_partition(MARCH) and not any(deleted)


def test_one_that_has_to_stay_keeps_its_month_and_the_others_go_one_by_one(agent: Agent) -> None:
    unresolved = completed_execution(agent, MARCH, status="Failed", error_code="OUTCOME_UNKNOWN")
    other = completed_execution(agent, MARCH)
    retention.delete_expired_rows()
    assert (has_partition(MARCH), is_there(unresolved), is_there(other)) == (True, True, False)


def test_a_composite_call_stays_until_the_calls_it_made_in_another_month_went(agent: Agent) -> None:
    parent = completed_execution(agent, MARCH, composite=True)
    child = completed_execution(agent, MAY, parent=parent, place="a", depth=1)
    retention.delete_expired_rows()
    assert (has_partition(MARCH), has_partition(MAY)) == (True, False)
    assert not is_there(child)
    connection.check_constraints()
    retention.delete_expired_rows()
    assert (has_partition(MARCH), is_there(parent)) == (False, False)


def test_executions_stay_until_retention_is_over_for_their_whole_month(agent: Agent) -> None:
    last_month = timezone.now().replace(day=1) - timedelta(days=1)
    made_partitions(last_month)
    long_ago = timezone.now() - timedelta(days=40)
    execution = completed_execution(agent, last_month, created_at=long_ago, completed_at=long_ago)
    retention.delete_expired_rows()
    assert (has_partition(last_month), is_there(execution)) == (True, True)


def test_usage_of_its_days_is_added_up_from_what_is_left(agent: Agent) -> None:
    days = [
        DayOfCalls.objects.create(
            organization=agent.organization, zone="UTC", day=day, unfinished=[]
        )
        for day in (MARCH.date(), MAY.date())
    ]
    execution = completed_execution(agent, MARCH)
    days[0].save(force_insert=True)  # the row that came late made it out of date
    retention.delete_expired_rows()
    assert not is_there(execution)
    assert [*DayOfCalls.objects.values_list("day", flat=True)] == [MAY.date()]
