"""Retention drops a month of executions, events or request records as a whole; a row that has to
stay keeps its month."""

import re
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
from tests.conditions import until
from tools.models import (
    Agent,
    CatalogNames,
    Confirmation,
    ConfirmationDecision,
    DayOfCalls,
    Execution,
    ExecutionEvent,
    ExecutionKey,
    Organization,
    RequestRecord,
    StateTransition,
    StoredEvent,
    ToolFilter,
    execution_event,
)
from tools.models.ids import new_id
from tools.worker import expired_months, retention

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
EXECUTIONS, EVENTS = "tools_execution", "tools_executionevent"
REQUESTS = "tools_requestrecord"
DROP = expired_months._drop
MARCH, MAY = datetime(2020, 3, 14, tzinfo=UTC), datetime(2020, 5, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def months(settings: Any, organization: Organization, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is kept for longer than a month has days; March, April and May 2020 have
    partitions."""
    settings.RETENTION_DAYS = dict.fromkeys(settings.RETENTION_DAYS, 32)
    factories.tool(organization)
    made_partitions(MARCH)
    monkeypatch.setattr(expired_months, "_drop", dropped_when_free)


def dropped_when_free(*of: Any) -> int:
    """A month in use just then is dropped by the next housekeeping; here as soon as it is free."""
    [gone] = until(lambda: [gone] if (gone := DROP(*of)) is not None else [])
    return gone


def made_partitions(since: datetime) -> None:
    connection.check_constraints()
    for table, key in ((EXECUTIONS, "id"), (EVENTS, "execution_id"), (REQUESTS, "id")):
        partitions.make_partitions(table, key, since=since)


def completed_execution(agent: Agent, made: datetime, **fields: Any) -> Execution:
    """An execution that was made then and ended soon."""
    row = Execution.objects.get(pk=factories.execution(agent).pk)
    Execution.objects.filter(pk=row.pk).delete()
    row.pk = id_of(made)
    over = {"status": "Success", "created_at": made, "completed_at": made + timedelta(seconds=1)}
    for name, value in (over | fields).items():
        setattr(row, name, value)
    row.save(force_insert=True)
    connection.check_constraints()
    return row


def id_of(moment: datetime) -> UUID:
    return UUID(int=first_id(moment).int | new_id().int & (1 << 80) - 1)


def request_record(agent: Agent, made: datetime, last_stored: datetime) -> RequestRecord:
    """A record of then, and its lists, which were last stored then."""
    digest = new_id().hex * 2
    names = CatalogNames.objects.create(digest=digest, names=[], created_at=last_stored)
    lists = ToolFilter.objects.create(
        digest=digest, catalog=names, available_tools=[], filtered_by_state=[], out_of_service=[],
        created_at=last_stored,
    )  # fmt: skip
    record = RequestRecord.objects.create(
        id=id_of(made), at=made, organization=agent.organization, request_id="r", kind="list",
        actor_kind="agent", actor="a", user_id=agent.service_account.pk, requested_groups=[],
        initial_state="Default", tool_filter=lists,
    )  # fmt: skip
    connection.check_constraints()
    return record


def stored_event(execution: Execution, **fields: Any) -> StoredEvent:
    event = StoredEvent.objects.create(execution=execution, sequence=1, type="Completed", **fields)
    connection.check_constraints()
    return event


def has_partition(month: datetime, table: str = EXECUTIONS) -> bool:
    names = [one.name for one in partitions.partitions_of(table)]
    return f"{table}_{Month.from_moment(month)}" in names


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
    stored_event(execution)
    StateTransition.objects.create(**place, tool_name="echo", from_state="a", to_state="b")
    approval = Confirmation.objects.create(
        **place, bound_hash="0" * 64, reasons=[], status="approved", expires_at=timezone.now()
    )
    ConfirmationDecision.objects.create(
        confirmation=approval, user=agent.service_account, approved=True
    )
    retention.delete_expired_rows()
    assert not has_partition(MARCH) and not has_partition(MARCH, EVENTS)
    for model in (StoredEvent, StateTransition, Confirmation, ExecutionKey):
        assert not model._default_manager.filter(execution=execution.pk).exists()
    kinds = [{"transitions": 1}, {"confirmations": 1}, {"executions": 1, "events": 1}]
    assert expired(agent.organization) == kinds


def test_no_row_of_it_is_deleted(agent: Agent) -> None:
    execution = completed_execution(agent, MARCH)
    stored_event(execution)
    deleted = []

    def watch(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        done = execute(sql, parameters, many, context)
        if sql.lstrip().startswith('DELETE FROM "tools_execution'):
            deleted.append(context["cursor"].rowcount)
        return done

    with connection.execute_wrapper(watch):
        retention.delete_expired_rows()
    assert not has_partition(MARCH) and not any(deleted)


def test_events_of_a_wider_partition_go_row_by_row_before_their_executions(agent: Agent) -> None:
    """As where the tables were partitioned by releases of different months."""
    execution = completed_execution(agent, MARCH)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {EVENTS}_2020_03")  # rows are in the default partition then
    stored_event(execution)
    retention.delete_expired_rows()
    assert not has_partition(MARCH) and not StoredEvent.objects.filter(execution=execution.pk)
    assert expired(agent.organization) == [{"events": 1}, {"executions": 1}]


def test_a_month_of_events_may_go_before_its_executions(agent: Agent, settings: Any) -> None:
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"executions": 0}
    over, fresh = completed_execution(agent, MARCH), completed_execution(agent, MAY)
    for execution, made in ((over, MARCH), (fresh, timezone.now())):
        stored_event(execution, created_at=made)
    retention.delete_expired_rows()
    assert (has_partition(MARCH, EVENTS), has_partition(MAY, EVENTS)) == (False, True)
    ours = StoredEvent.objects.filter(execution__in=[over.pk, fresh.pk])
    assert [*ours.values_list("execution", flat=True)] == [fresh.pk]
    assert (is_there(over), is_there(fresh)) == (True, True)
    assert expired(agent.organization) == [{"events": 1}]


def test_a_month_of_request_records_goes_and_their_lists(agent: Agent) -> None:
    lists = request_record(agent, MARCH, MARCH).tool_filter
    retention.delete_expired_rows()
    assert not has_partition(MARCH, REQUESTS)
    assert expired(agent.organization) == [{"requests": 1}]
    assert not ToolFilter.objects.filter(pk=lists.pk)
    assert not CatalogNames.objects.filter(pk=lists.catalog_id)


def test_request_records_stay_with_their_lists_until_retention_is_over_for_their_month(
    agent: Agent,
) -> None:
    last_month = timezone.now().replace(day=1) - timedelta(days=1)
    made_partitions(last_month)
    long_ago = timezone.now() - timedelta(days=40)
    record = request_record(agent, last_month, long_ago - timedelta(hours=1))
    RequestRecord.objects.filter(pk=record.pk).update(at=long_ago)
    retention.delete_expired_rows()
    found = RequestRecord.objects.select_related("tool_filter__catalog").get(pk=record.pk)
    assert found.tool_filter.catalog.names == []


def test_an_execution_and_its_events_are_read_from_one_partition_each(agent: Agent) -> None:
    execution = completed_execution(agent, MARCH)
    stored_event(execution)
    assert [event.type for event in ExecutionEvent.objects.of_execution(execution)] == ["Completed"]
    with connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN {execution_event._OF_EXECUTION}",
            {"execution": execution.pk, "after": 0, "kept": None},
        )
        plan = " ".join(line for (line,) in cursor.fetchall())
    named = {*re.findall(r" on (tools_\w+)", plan)}
    assert named == {f"{EXECUTIONS}_2020_03", f"{EVENTS}_2020_03"}


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
    left = DayOfCalls.objects.filter(organization=agent.organization)
    assert [*left.values_list("day", flat=True)] == [MAY.date()]
