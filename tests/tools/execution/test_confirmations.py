"""Calls that require approval are stored, decided by people, and run once or ended."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.conditions import until
from tests.tools.approval_requests import (
    approve,
    approver,
    at_the_browser,
    attempted,
    call_awaiting_approval,
    codes,
    never_began,
    word,
)
from tools.approvals import decisions
from tools.errors import Conflict, TooManyHeld
from tools.execution import answer, dispatch
from tools.execution.confirmations import MOST_AWAITING
from tools.execution.perform import perform
from tools.models import Confirmation, Execution
from tools.worker import reaper
from tools.worker.polling import Poller


@pytest.fixture
def person(organization):
    return approver(organization)


def age(confirmation, **past):
    """Move the expiry into the past."""
    Confirmation.objects.filter(pk=confirmation.pk).update(
        expires_at=timezone.now() - timedelta(**past)
    )


def test_a_call_that_awaits_approval_has_a_row_a_confirmation_an_event_and_a_record(agent, asks):
    confirmation = call_awaiting_approval(agent)
    execution = confirmation.execution
    assert (execution.status, execution.attempt) == ("RequiresConfirmation", 0)
    assert (confirmation.status, confirmation.approvals_needed) == ("pending", 1)
    assert confirmation.reasons == ["echo runs only when a person has agreed."]
    assert [event.type for event in execution.events.all()] == ["Warning"]
    record = AuditRecord.objects.get(execution_id=execution.pk)
    assert (record.code, record.actor) == ("TOOL.HELD", agent.slug)
    assert record.details["confirmation"]["bound_hash"] == confirmation.bound_hash


def test_an_approval_is_awaited_for_fifteen_minutes(agent, asks, settings):
    assert settings.CONFIRMATION_MINUTES == 15
    left = call_awaiting_approval(agent).expires_at - timezone.now()
    assert timedelta(minutes=14) < left <= timedelta(minutes=15)


@pytest.mark.usefixtures("committed", "crib")
def test_an_approved_call_runs_once_and_records_who_approved_it(agent, asks, person):
    confirmation = approve(call_awaiting_approval(agent), person)
    done = until(
        lambda: Execution.objects.filter(pk=confirmation.execution_id, output__isnull=False).first()
    )
    assert (done.status, done.attempt, done.output) == ("Success", 1, {"echo": {"text": "x"}})
    assert codes(done) == [
        "TOOL.HELD",
        "CONFIRM.APPROVE",
        "CONFIRM.SPEND",
        "TOOL.START",
        "TOOL.END",
    ]
    spent = AuditRecord.objects.get(execution_id=done.pk, code="CONFIRM.SPEND")
    assert spent.details["approved_by"] == [person.username]
    assert Confirmation.objects.get(pk=confirmation.pk).spent_at is not None
    perform(done.pk)
    assert codes(done).count("TOOL.START") == 1


def test_an_approval_queues_the_call_and_is_recorded(agent, asks, person):
    confirmation = approve(call_awaiting_approval(agent), person)
    assert confirmation.status == "approved"
    assert confirmation.execution.status == "Pending"
    record = AuditRecord.objects.get(execution_id=confirmation.execution_id, code="CONFIRM.APPROVE")
    assert (record.actor_kind, record.actor) == ("person", person.username)
    assert payloads.open_payload(record.pk)["payload"] == {"parameters": {"text": "x"}}
    assert record.details["waited_ms"] >= 0
    said = {name: record.details[name] for name in ("decision", "policy_version", "session")}
    revision = confirmation.execution.organization.revision
    assert said == {"decision": "approved", "policy_version": revision, "session": None}
    assert record.details["parameters_commitment"].startswith("sha256:")
    assert (record.details["bound_hash"], record.details["reasons"]) == (
        confirmation.bound_hash,
        confirmation.reasons,
    )


def test_a_rejection_ends_the_call_and_its_reason_reaches_the_caller(agent, asks, person):
    confirmation = call_awaiting_approval(agent, idempotency_key="k")
    said = word(confirmation, approve=False, reason="Not on a Friday.")
    decisions.decide(caller=at_the_browser(person), word=said)
    row = Execution.objects.get(pk=confirmation.execution_id)
    assert (row.status, row.error_code) == ("PermissionDenied", "confirmation_rejected")
    assert "Not on a Friday." in row.error_message and row.completed_at is not None
    assert [event.type for event in row.events.all()] == ["Warning", "Failed"]
    assert codes(row) == ["TOOL.HELD", "CONFIRM.REJECT"]
    assert row.idempotency_key is None


def test_a_critical_tool_needs_two_approvals(agent, organization, person):
    tool = factories.tool(organization)
    critical(tool)
    confirmation = call_awaiting_approval(agent)
    assert confirmation.approvals_needed == 2
    first = approve(confirmation, person)
    assert (first.status, first.execution.status) == ("pending", "RequiresConfirmation")
    second = approve(confirmation, approver(organization))
    assert (second.status, second.execution.status) == ("approved", "Pending")


def critical(tool):
    tool.critical = True
    tool.revision = type(tool.organization).objects.next_revision(tool.organization_id)
    tool.save()


def test_one_rejection_ends_a_call_that_needs_two_approvals(agent, organization, person):
    critical(factories.tool(organization))
    confirmation = approve(call_awaiting_approval(agent), person)
    other = at_the_browser(approver(organization))
    decisions.decide(caller=other, word=word(confirmation, approve=False))
    assert Execution.objects.get(pk=confirmation.execution_id).status == "PermissionDenied"


def test_an_undecided_approval_expires(agent, asks):
    younger, confirmation = call_awaiting_approval(agent), call_awaiting_approval(agent)
    age(confirmation, seconds=1)
    decisions.expire_overdue()
    assert Confirmation.objects.get(pk=younger.pk).status == "pending"
    row = Execution.objects.get(pk=confirmation.execution_id)
    assert (row.status, row.error_code) == ("PermissionDenied", "confirmation_expired")
    assert codes(row) == ["TOOL.HELD", "CONFIRM.EXPIRE"]
    assert Confirmation.objects.get(pk=confirmation.pk).status == "expired"


def test_a_call_is_reminded_of_once_when_a_third_of_its_time_is_left(agent, asks):
    confirmation = call_awaiting_approval(agent)
    decisions.expire_overdue()
    assert Confirmation.objects.get(pk=confirmation.pk).reminded_at is None
    age(confirmation, minutes=-4)
    decisions.expire_overdue()
    decisions.expire_overdue()
    assert codes(confirmation.execution) == ["TOOL.HELD", "CONFIRM.REMIND"]


def test_a_cancelled_call_no_longer_awaits_approval(agent, asks, person):
    confirmation = call_awaiting_approval(agent)
    answer.cancel(caller=factories.caller(agent), execution=confirmation.execution)
    assert Confirmation.objects.get(pk=confirmation.pk).status == "void"
    with pytest.raises(Conflict) as caught:
        approve(confirmation, person)
    assert caught.value.code == "confirmation_void"
    assert never_began(attempted(confirmation.execution))


def test_many_are_decided_each_for_itself(agent, asks, person):
    good, wrong, bad = (
        call_awaiting_approval(agent),
        call_awaiting_approval(agent),
        call_awaiting_approval(agent),
    )
    said = [
        word(good),
        word(wrong, bound_hash="0" * 64),
        word(bad, approve=False),
        word(good),
    ]
    found = decisions.decide_many(caller=at_the_browser(person), words=said)
    results = [one.confirmation.status if one.confirmation else one.refusal.code for one in found]
    assert results == ["approved", "confirmation_changed", "rejected", "confirmation_decided"]


@pytest.mark.part("calls")
def test_the_calls_of_an_agent_that_await_approval_are_limited(agent, asks):
    first, *_ = [call_awaiting_approval(agent) for _ in range(MOST_AWAITING)]
    with pytest.raises(TooManyHeld) as caught:
        call_awaiting_approval(agent)
    assert 0 < caught.value.details["resets_in_s"] <= 60 * settings.CONFIRMATION_MINUTES
    assert (caught.value.http_status, caught.value.details["used"]) == (429, MOST_AWAITING)
    answer.cancel(caller=factories.caller(agent), execution=first.execution)
    assert call_awaiting_approval(agent).status == "pending"


@pytest.mark.parametrize("number", [1e22, 1.0, -0.0, 1e-7, 123456789.5])
def test_numbers_come_back_from_the_database_as_they_were_bound(
    agent, organization, person, number
):
    field = {"name": "text", "type": "Number", "description": "Any.", "required": True}
    factories.tool(organization, parameters=[field], requires_confirmation=True)
    assert approve(call_awaiting_approval(agent, text=number), person).status == "approved"


def test_how_long_it_was_displayed_is_on_record_where_it_is_known(agent, asks, person):
    confirmation = call_awaiting_approval(agent)
    said = word(confirmation, displayed_s=2.5)
    decisions.decide(caller=at_the_browser(person), word=said)
    record = AuditRecord.objects.get(execution_id=confirmation.execution_id, code="CONFIRM.APPROVE")
    assert record.details["displayed_s"] == 2.5


def test_an_approved_call_waits_by_the_databases_clock(agent, asks, person, settings, monkeypatch):
    waiting = call_awaiting_approval(agent)
    slow = timezone.now() - timedelta(seconds=settings.EXECUTION_QUEUE_S + 60)
    monkeypatch.setattr(timezone, "now", lambda: slow)
    approve(waiting, person)
    dispatch.drop_expired()
    assert Execution.objects.get(pk=waiting.execution_id).status == "Pending"


def test_held_calls_end_in_time_where_beat_is_silent(agent, asks, monkeypatch):
    waiting = call_awaiting_approval(agent)
    age(waiting, minutes=1)
    monkeypatch.setattr(reaper._pass_clock, "last", float("-inf"))
    monkeypatch.setattr(
        reaper, "HOUSEKEEPER_KEY", f"test:{agent.pk}"
    )  # of the product here, not of this
    Poller().poll()
    row = Execution.objects.get(pk=waiting.execution_id)
    assert row.error_code == "confirmation_expired"
