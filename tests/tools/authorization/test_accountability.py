"""An organization whose audit log is halted executes nothing, for any caller and any queued
call."""

import pytest
from django.utils import timezone

from audit.log import log_status
from audit.models import AuditLog, AuditRecord
from tests import factories
from tools.authorization.facts import CURRENT
from tools.definitions.results import Status
from tools.execution.perform import perform
from tools.models import Execution


@pytest.fixture(autouse=True)
def _remembers_nothing():
    log_status.clear_cache()
    yield
    log_status.clear_cache()


@pytest.fixture
def halt(organization):
    def halt():
        AuditLog.objects.update_or_create(
            name=organization.slug,
            defaults={"halted_at": timezone.now(), "halted_reason": "It was put back."},
        )
        log_status.clear_cache()

    return halt


def test_a_call_is_refused_with_a_sentence_and_is_on_record(api, organization, halt):
    halt()
    answer = api.execute("read_file", {"path": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_halted")
    assert answer["Retry-After"] == "60"
    assert "audit_accept" in answer.json()["message"]
    denied = AuditRecord.objects.filter(organization=organization.slug, outcome="denied")
    assert [record.reason for record in denied] == ["audit_halted"]


def test_what_was_accepted_before_does_not_begin(organization, agent, halt):
    factories.tool(organization)
    execution = factories.execution(agent)
    halt()
    perform(execution.pk)
    ended = Execution.objects.get(pk=execution.pk)
    assert (ended.status, ended.error_code) == (Status.PERMISSION_DENIED, "audit_halted")
    assert not AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START").exists()


def test_another_organization_goes_on(organization, agent):
    factories.tool(organization)
    AuditLog.objects.create(
        name="elsewhere", halted_at=timezone.now(), halted_reason="It was put back."
    )
    log_status.clear_cache()
    assert factories.execution(agent).status == Status.PENDING


@pytest.mark.usefixtures("committed", "crib")
def test_a_call_that_is_halted_at_the_claim_is_answered_as_at_the_door(api, organization):
    """The cached state of the log admits the call; the worker checks again."""
    factories.tool(organization)
    assert CURRENT.audit_halted(organization.slug) is None
    AuditLog.objects.update_or_create(
        name=organization.slug,
        defaults={"halted_at": timezone.now(), "halted_reason": "It was put back."},
    )
    answer = api.execute("echo", {"text": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_halted")
    assert answer["Retry-After"] == "60"
