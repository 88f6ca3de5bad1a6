"""Retention deletes old rows of every kind; recent, open and required ones stay, and other
organizations' rows."""

from datetime import datetime, timedelta

import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.utils import timezone

from audit.export import background_exports
from audit.models import Alert, AlertChannel, AlertDelivery, AuditExport, AuditRecord
from config.env import BadSetting, env_days
from tests import factories
from tools.definitions.results import EventType
from tools.execution import events
from tools.models import (
    CatalogNames,
    Confirmation,
    ConfirmationDecision,
    Execution,
    RequestRecord,
    Session,
    StateTransition,
    ToolFilter,
)
from tools.models.ids import made_before, new_id
from tools.worker import retention

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
OLD, YOUNG = timedelta(days=40), timedelta(days=20)
JUST_OLD = timedelta(days=30, minutes=20)


@pytest.fixture(autouse=True)
def thirty_days(settings):
    settings.RETENTION_DAYS = dict.fromkeys(settings.RETENTION_DAYS, 30)


def ago(age):
    return timezone.now() - age


def a_session(agent, closed=None, created=OLD):
    made = Session.objects.create(
        organization=agent.organization, user=agent.service_account, agent=agent, groups=[],
        state="Default", created_at=ago(created),
    )  # fmt: skip
    if closed is not None:
        Session.objects.filter(pk=made.pk).update(closed_at=ago(closed))
    return made


def completed_execution(agent, age, **fields):
    execution = factories.execution(agent)
    if fields:
        Execution.objects.filter(pk=execution.pk).update(**fields)
    factories.end_execution(execution, completed_at=ago(age))
    return execution


def left(model, *rows):
    """The indexes of the rows that still exist."""
    pks = {*model.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", flat=True)}
    return [place for place, row in enumerate(rows) if row.pk in pks]


@pytest.fixture
def echo(organization):
    return factories.tool(organization)


@pytest.fixture
def stranger():
    """An agent of another organization, whose rows are recent."""
    other = factories.organization("others")
    factories.tool(other)
    return factories.agent(other)


def test_calls_that_ended_long_ago_go_with_what_belongs_to_them(agent, echo):
    old, young = completed_execution(agent, OLD), completed_execution(agent, YOUNG)
    waiting = factories.execution(agent)
    moved = StateTransition.objects.create(
        organization=agent.organization, execution=old, tool_name="echo", from_state="a",
        to_state="b",
    )  # fmt: skip
    retention.delete_expired_rows()
    assert left(Execution, old, young, waiting) == [1, 2]
    assert left(StateTransition, moved) == []
    assert not old.events.exists()
    assert AuditRecord.objects.filter(execution_id=old.pk).exists()


def expired(organization, kind):
    """The row counts and cutoff times of the records, in their order."""
    found = AuditRecord.objects.filter(
        organization=organization.slug, code="ROWS.EXPIRE", subject=kind
    )
    return [(one.details["rows"], one.details["before"]) for one in found.order_by("id")]


def test_each_organization_has_a_record_of_what_went_and_until_which_time(agent, echo, stranger):
    for _ in range(2):
        execution = completed_execution(agent, OLD)
    StateTransition.objects.create(
        organization=agent.organization, execution=execution, tool_name="echo", from_state="a",
        to_state="b",
    )  # fmt: skip
    events.append_event(execution.pk, EventType.IN_PROGRESS, "It goes on.")
    completed_execution(stranger, OLD), completed_execution(agent, YOUNG)
    count = execution.stored_events.count()
    retention.delete_expired_rows()
    ((rows, before),) = expired(agent.organization, "executions")
    assert rows == {"executions": 2, "events": count, "transitions": 1}
    assert abs(datetime.fromisoformat(before) - ago(timedelta(days=30))) < timedelta(minutes=5)
    assert [rows for rows, _ in expired(stranger.organization, "executions")] == [{"executions": 1}]


def test_there_is_no_record_where_nothing_went(agent, echo):
    completed_execution(agent, YOUNG)
    retention.delete_expired_rows()
    records = AuditRecord.objects.filter(organization=agent.organization.slug)
    assert not records.filter(code="ROWS.EXPIRE").exists()


def test_calls_of_a_call_stay_as_long_as_it_does(agent, echo):
    parent, old_parent = completed_execution(agent, YOUNG), completed_execution(agent, OLD)
    child = completed_execution(agent, OLD, parent=parent, place="a", depth=1)
    old_child = completed_execution(agent, OLD, parent=old_parent, place="a", depth=1)
    retention.delete_expired_rows()
    assert left(Execution, parent, child, old_parent, old_child) == [0, 1]


def test_calls_of_an_open_session_and_unresolved_calls_stay(agent, echo):
    opened, closed = a_session(agent), a_session(agent, closed=YOUNG)
    in_open = completed_execution(agent, OLD, session=opened)
    in_closed = completed_execution(agent, OLD, session=closed)
    unresolved = factories.execution(agent)
    factories.end_execution(
        unresolved, status="Failed", error_code="OUTCOME_UNKNOWN", completed_at=ago(OLD)
    )
    retention.delete_expired_rows()
    assert left(Execution, in_open, in_closed, unresolved) == [0, 2]


def test_closed_sessions_go_once_no_call_speaks_of_them(agent, echo):
    old, young = a_session(agent, closed=OLD), a_session(agent, closed=YOUNG)
    opened, named = a_session(agent), a_session(agent, closed=OLD)
    completed_execution(agent, YOUNG, session=named)
    retention.delete_expired_rows()
    assert left(Session, old, young, opened, named) == [1, 2, 3]


def decided_confirmation(agent, status, age, call_age):
    execution = (
        completed_execution(agent, call_age) if call_age is not None else factories.execution(agent)
    )
    made = Confirmation.objects.create(
        organization=agent.organization, execution=execution, bound_hash="0" * 64, reasons=[],
        status=status, expires_at=timezone.now(), created_at=ago(age),
    )  # fmt: skip
    ConfirmationDecision.objects.create(
        confirmation=made, user=agent.service_account, approved=True
    )
    return made


def test_confirmations_go_once_they_are_decided_and_their_calls_over(agent, echo):
    rows = [
        decided_confirmation(agent, "approved", OLD, YOUNG),
        decided_confirmation(agent, "approved", OLD, None),
        decided_confirmation(agent, "pending", OLD, None),
        decided_confirmation(agent, "rejected", YOUNG, YOUNG),
    ]
    retention.delete_expired_rows()
    assert left(Confirmation, *rows) == [1, 2, 3]


def test_events_and_transitions_may_go_before_their_calls(agent, echo, settings):
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"executions": 0}
    old, waiting = completed_execution(agent, OLD), factories.execution(agent)
    for one in (old, waiting):
        events.append_event(one.pk, EventType.IN_PROGRESS, "It goes on.")
        one.stored_events.update(created_at=ago(OLD))
    moves = [
        StateTransition.objects.create(
            organization=agent.organization, session=session,
            execution=completed_execution(agent, OLD),
            tool_name="echo", from_state="a", to_state="b", at=ago(age),
        )
        for session, age in [(None, OLD), (None, YOUNG), (a_session(agent), OLD)]
    ]  # fmt: skip
    retention.delete_expired_rows()
    assert (old.events.exists(), waiting.events.exists()) == (False, True)
    assert left(StateTransition, *moves) == [1, 2]
    assert left(Execution, old, waiting) == [0, 1]


def test_records_of_requests_go(agent):
    names = CatalogNames.objects.create(digest="0" * 64, names=[])
    kept = ToolFilter.objects.create(
        digest="1" * 64, catalog=names, available_tools=[], filtered_by_state=[], out_of_service=[]
    )
    rows = [
        RequestRecord.objects.create(
            organization=agent.organization, request_id="r", kind="list", actor_kind="agent",
            actor="a", user_id=agent.service_account.pk, requested_groups=[],
            initial_state="Default", tool_filter=kept, at=ago(age),
        )
        for age in (OLD, YOUNG)
    ]  # fmt: skip
    retention.delete_expired_rows()
    assert left(RequestRecord, *rows) == [1]
    assert [rows for rows, _ in expired(agent.organization, "requests")] == [{"requests": 1}]


def test_lists_of_names_go_once_no_request_names_them_and_none_was_stored_recently(agent):
    used, unused, young = (
        ToolFilter.objects.create(
            digest=letter * 64, available_tools=[], filtered_by_state=[], out_of_service=[],
            catalog=CatalogNames.objects.create(digest=letter * 64, names=[]),
        )
        for letter in "abc"
    )  # fmt: skip
    for model in (ToolFilter, CatalogNames):
        model.objects.filter(digest="b" * 64).update(created_at=ago(OLD))
        # A process refers to a list for up to an hour after it was stored.
        model.objects.filter(digest="a" * 64).update(created_at=ago(JUST_OLD))
    asked = JUST_OLD - timedelta(minutes=50)
    RequestRecord.objects.create(  # the oldest by its id, whatever other tests have committed
        id=made_before(new_id(), asked), organization=agent.organization, request_id="r",
        kind="list", actor_kind="agent", actor="a", user_id=agent.service_account.pk,
        requested_groups=[], initial_state="Default", tool_filter=used, at=ago(asked),
    )  # fmt: skip
    retention.delete_expired_rows()
    assert left(ToolFilter, used, unused, young) == [0, 2]
    assert left(CatalogNames, used.catalog, unused.catalog, young.catalog) == [0, 2]


def test_alerts_that_were_acknowledged_go_and_deliveries_that_are_over(organization):
    def alert(rule, age, acknowledged):
        return Alert.objects.create(
            organization=organization.slug, rule=rule, severity="warning", actor="a", message="m",
            count=1, first_at=ago(age), last_at=ago(age),
            acknowledged_at=ago(age) if acknowledged else None,
            acknowledged_by="root" if acknowledged else "",
        )  # fmt: skip

    alerts = [alert("a", OLD, True), alert("b", OLD, False), alert("c", YOUNG, True)]
    channel = AlertChannel.objects.create(
        organization=organization.slug, name="c", kind="email", target="a@example.org"
    )
    deliveries = [
        AlertDelivery.objects.create(alert=alerts[1], channel=channel, delivered_at=ago(OLD)),
        AlertDelivery.objects.create(alert=alerts[2], channel=channel),
    ]
    retention.delete_expired_rows()
    assert [rows for rows, _ in expired(organization, "alerts")] == [{"alerts": 1}]
    assert [rows for rows, _ in expired(organization, "deliveries")] == [{"deliveries": 1}]
    assert left(Alert, *alerts) == [1, 2]
    assert left(AlertDelivery, *deliveries) == [1]


def test_exports_that_are_over_go(organization):
    rows = [
        AuditExport.objects.create(
            organization=organization.slug, format="jsonl", opened=False, asked_by="ada",
            asked_by_id="1", state=state, created_at=ago(age),
            expires_at=timezone.now() + timedelta(days=1),
        )
        for state, age in [("gone", OLD), ("gone", YOUNG), ("ready", OLD)]
    ]  # fmt: skip
    background_exports.delete_expired()
    assert left(AuditExport, *rows) == [1, 2]
    assert [rows for rows, _ in expired(organization, "exports")] == [{"exports": 1}]


def test_sessions_of_browsers_go_when_they_expire():
    rows = [
        BrowserSession.objects.create(session_key=key, session_data="", expire_date=when)
        for key, when in (
            ("old", ago(timedelta(seconds=1))),
            ("young", timezone.now() + timedelta(1)),
        )
    ]
    retention.delete_expired_rows()
    assert left(BrowserSession, *rows) == [1]


def test_a_round_goes_on_after_a_batch(agent, echo, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 1)
    rows = [completed_execution(agent, OLD) for _ in range(3)]
    retention.delete_expired_rows()
    assert left(Execution, *rows) == []


def test_what_another_organization_has_that_is_young_stays(agent, echo, stranger):
    theirs, ours = completed_execution(stranger, YOUNG), completed_execution(agent, OLD)
    retention.delete_expired_rows()
    assert left(Execution, theirs, ours) == [0]


def test_for_ever_is_for_ever(agent, echo, settings):
    settings.RETENTION_DAYS = dict.fromkeys(settings.RETENTION_DAYS, 0)
    old = completed_execution(agent, OLD)
    retention.delete_expired_rows()
    assert left(Execution, old) == [0]


@pytest.mark.parametrize("wrong", ["executions", "executions=x", "dreams=3", "executions=-1"])
def test_a_kind_that_cannot_be_read_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("RETENTION_DAYS", wrong)
    with pytest.raises(BadSetting, match="KIND=DAYS"):
        env_days("RETENTION_DAYS", {"executions": 400})


def test_a_kind_that_is_not_named_keeps_its_default(monkeypatch):
    monkeypatch.setenv("RETENTION_DAYS", "executions=90, events=0")
    given = env_days("RETENTION_DAYS", {"executions": 400, "events": 400, "alerts": 400})
    assert given == {"executions": 90, "events": 0, "alerts": 400}
