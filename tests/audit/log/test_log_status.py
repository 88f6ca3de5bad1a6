"""Whether a log stands is asked before anything is executed, and who seals it has to be heard."""

import pytest
from django.db import connection
from django.utils import timezone

from audit.events import Event
from audit.log import log_status
from audit.log.sealer import seal_logs
from audit.models import AuditLog, AuditRecord
from tests.audit.logs import write
from tests.conditions import until
from tools.web import probes


@pytest.fixture(autouse=True)
def _remembers_nothing():
    log_status.clear_cache()
    yield
    log_status.clear_cache()


def halt(name):
    fields = {"halted_at": timezone.now(), "halted_reason": "It was put back."}
    AuditLog.objects.update_or_create(name=name, defaults=fields)


@pytest.mark.parametrize("ask", [log_status.check_halted, log_status.check_halted_cached])
def test_a_halted_log_is_not_to_be_relied_upon_and_others_are(db, ask):
    halt("here")
    ask("there")
    with pytest.raises(log_status.LogHalted, match="put back"):
        ask("here")


def test_what_was_asked_a_moment_ago_is_not_asked_again(db, django_assert_num_queries):
    with django_assert_num_queries(1):
        for name in ("here", "there", "here"):
            log_status.check_halted_cached(name)


def test_a_claim_asks_for_its_own_log_as_it_is_now(db, django_assert_num_queries):
    log_status.check_halted("here")
    halt("here")
    with django_assert_num_queries(1), pytest.raises(log_status.LogHalted):
        log_status.check_halted("here")


def age(seconds):
    """As if it had all happened so long ago."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditrecord DISABLE TRIGGER USER")
        cursor.execute("GRANT UPDATE ON audit_auditrecord TO CURRENT_USER")
        cursor.execute(
            "UPDATE audit_auditrecord SET occurred_at = occurred_at - make_interval(secs => %s)",
            [seconds],
        )
        cursor.execute(
            "UPDATE audit_auditlog SET sealed_at = sealed_at - make_interval(secs => %s)", [seconds]
        )


def test_records_that_wait_for_a_silent_sealer_are_reported_once(ledger):
    write("here")
    seal_logs()
    write("here")
    write("there")
    assert log_status.record_sealer_silence() == []
    age(20)
    assert sorted(log_status.record_sealer_silence()) == ["here", "there"]
    assert log_status.record_sealer_silence() == []
    reports = AuditRecord.objects.filter(code=Event.AUDIT_UNSEALED)
    assert {(row.organization, row.reason) for row in reports} == {
        ("here", "sealer_silent"),
        ("there", "sealer_silent"),
    }


def test_a_silent_sealer_with_nothing_to_seal_is_not_reported(ledger):
    write("here")
    seal_logs()
    age(20)
    assert log_status.record_sealer_silence() == []


def test_readiness_reports_that_no_sealer_runs(ledger):
    assert probes._check_sealer() == "ok"
    write("here")
    assert "has not said" in probes._check_sealer()
    seal_logs()
    assert probes._check_sealer() == "ok"


def test_a_log_tells_when_it_was_signed_and_what_has_no_place_yet(db):
    write("here", 3)
    assert log_status.log_status("here") == log_status.LogStatus(None, 3, "")
    until(
        lambda: seal_logs("here") == 3
    )  # what is older and open elsewhere may yet come before them
    write("here", 2)
    found = log_status.log_status("here")
    assert found.unsealed == 2 and found.signed_at is not None
    assert log_status.log_status("there") == log_status.LogStatus(None, 0, "")
    halt("here")
    assert log_status.log_status("here").halted == "It was put back."
