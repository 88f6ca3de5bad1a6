"""Whether a log stands is asked before anything is executed, and who seals it has to be heard."""

import pytest
from django.db import connection
from django.utils import timezone

from audit.events import Event
from audit.log import silence, standing
from audit.log.sealer import seal
from audit.models import AuditLog, AuditRecord
from tests.audit.logs import write
from tests.conditions import until
from tools.web import probes


@pytest.fixture(autouse=True)
def _remembers_nothing():
    standing.forget()
    yield
    standing.forget()


def halt(name):
    fields = {"halted_at": timezone.now(), "halted_reason": "It was put back."}
    AuditLog.objects.update_or_create(name=name, defaults=fields)


@pytest.mark.parametrize("ask", [standing.check, standing.check_lately])
def test_a_halted_log_is_not_to_be_relied_upon_and_others_are(db, ask):
    halt("here")
    ask("there")
    with pytest.raises(standing.LogHalted, match="put back"):
        ask("here")


def test_what_was_asked_a_moment_ago_is_not_asked_again(db, django_assert_num_queries):
    with django_assert_num_queries(1):
        for name in ("here", "there", "here"):
            standing.check_lately(name)


def test_a_claim_asks_for_its_own_log_as_it_is_now(db, django_assert_num_queries):
    standing.check("here")
    halt("here")
    with django_assert_num_queries(1), pytest.raises(standing.LogHalted):
        standing.check("here")


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


def test_records_that_wait_while_the_sealer_is_silent_are_told_of_once(ledger):
    write("here")
    seal()
    write("here")
    write("there")
    assert silence.tell() == []
    age(20)
    assert sorted(silence.tell()) == ["here", "there"]
    assert silence.tell() == []
    told = AuditRecord.objects.filter(code=Event.AUDIT_UNSEALED)
    assert {(row.organization, row.reason) for row in told} == {
        ("here", "sealer_silent"),
        ("there", "sealer_silent"),
    }


def test_a_sealer_that_is_silent_with_nothing_to_do_harms_nobody(ledger):
    write("here")
    seal()
    age(20)
    assert silence.tell() == []


def test_readiness_says_that_nobody_seals(ledger):
    assert probes._check_sealer() == "ok"
    write("here")
    assert "has not said" in probes._check_sealer()
    seal()
    assert probes._check_sealer() == "ok"


def test_a_log_tells_when_it_was_signed_and_what_has_no_place_yet(db):
    write("here", 3)
    assert standing.standing_of("here") == standing.LogStatus(None, 3, "")
    until(lambda: seal("here") == 3)  # what is older and open elsewhere may yet come before them
    write("here", 2)
    found = standing.standing_of("here")
    assert found.unsealed == 2 and found.signed_at is not None
    assert standing.standing_of("there") == standing.LogStatus(None, 0, "")
    halt("here")
    assert standing.standing_of("here").halted == "It was put back."
