"""What went in can be erased for good; what is on record of it stays as good as before."""

import os
from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from audit.actions import Actor
from audit.events import Event
from audit.log import key_files
from audit.log.proofs import inclusion_proof
from audit.models import AuditKey, AuditPayload, AuditRecord
from audit.records import erasure, payloads
from audit.records.erasure import ErasureScope
from tests import factories
from tests.api import Api
from tests.audit.evidence import ADMIN, BY, HERE, call, database_now, events, sealed


@pytest.fixture(autouse=True)
def _no_key_known():
    """Keys of an earlier test's ledger are not those of this one."""
    payloads._keys.clear()


def erase(**scope):
    return erasure.erase_payloads(ErasureScope(HERE, **scope), by=ADMIN, reason="they asked")


def opens(record_id):
    try:
        return bool(payloads.open_payload(record_id))
    except payloads.PayloadErased:
        return False


def test_one_executions_payloads_are_erased(ledger):
    execution = uuid4()
    gone, kept = call(execution_id=execution), call()
    assert erase(execution=execution) == 1
    assert (opens(gone), opens(kept)) == (False, True)
    row = AuditPayload.objects.get(pk=gone)
    assert (row.sealed, row.words, row.erased_by) == (None, [], "root")


def test_an_agents_are_erased_also_where_a_person_agreed_to_its_call(ledger):
    execution = uuid4()
    gone = [call(execution_id=execution), call(by=ADMIN, execution_id=execution), call()]
    kept = call(by=Actor("agent", "crow", HERE))
    there = call(by=Actor("agent", "magpie", "there"))
    assert erase(agent="magpie") == 3
    assert [opens(one) for one in (*gone, kept, there)] == [False, False, False, True, True]


def test_an_organizations_are_erased_with_its_key(ledger):
    gone, there = call(), call(by=Actor("agent", "magpie", "there"))
    assert erase() == 1
    payloads._keys.clear()
    later = call()
    assert (opens(gone), opens(there), opens(later)) == (False, True, True)


@pytest.mark.parametrize("used_again", [False, True])
def test_no_backup_of_the_database_opens_what_was_erased_with_its_key(ledger, used_again):
    gone = call(text="Anna")
    kept = [AuditKey.objects.get(pk=HERE), AuditPayload.objects.get(pk=gone)]
    mark = payloads.word_mark(HERE, "anna")
    erase()
    if used_again:
        call()
        AuditKey.objects.filter(pk=HERE).delete()
    AuditPayload.objects.filter(pk=gone).delete()
    for row in kept:
        type(row).objects.bulk_create([row])
    payloads._keys.clear()
    assert not opens(gone)
    assert mark in kept[1].words and payloads.word_mark(HERE, "anna") != mark
    later = call()
    payloads._keys.clear()
    assert (opens(gone), opens(later)) == (False, True)


def test_a_key_that_does_not_open_is_replaced_only_when_something_is_to_be_kept(ledger):
    made = call()
    wrapped = AuditKey.objects.get(pk=HERE).wrapped
    file = key_files.path_of(f"payloads/{HERE}.key")
    content = file.read_bytes()
    payloads._keys.clear()
    file.unlink()
    assert not opens(made)
    assert not file.exists() and AuditKey.objects.get(pk=HERE).wrapped == wrapped
    file.write_bytes(content)
    assert opens(made)


def test_an_organization_of_any_name_has_a_file_of_its_own(ledger):
    made = call(by=Actor("agent", "magpie", "../Ünder/"))
    assert opens(made)
    assert not {name for name in os.listdir(settings.KEYS_DIR) if "nder" in name}


def test_only_what_is_older_is_erased_and_the_key_stays(ledger):
    gone = call()
    moment = database_now()
    kept = call()
    assert erase(before=moment) == 1
    payloads._keys.clear()
    assert (opens(gone), opens(kept)) == (False, True)


def test_many_are_erased_in_batches_and_again_nothing(ledger, monkeypatch):
    monkeypatch.setattr(erasure, "BATCH", 2)
    for _ in range(5):
        call()
    assert (erase(agent="magpie"), erase(agent="magpie")) == (5, 0)


def test_an_erasure_is_on_record_with_its_reason_before_and_after(ledger):
    call()
    erase(agent="magpie")
    before, after = events(Event.AUDIT_ERASE)
    assert (before.outcome, after.outcome, after.actor) == ("started", "success", "root")
    assert before.details["why"] == "they asked"
    assert before.details["of"] == {"agent": "magpie"}
    assert after.details["erased"] == 1


def test_sealed_records_are_proved_after_as_before(ledger):
    made = sealed(3)
    before = inclusion_proof(made[1])
    erase()
    assert inclusion_proof(made[1]).split("\n\n")[0] == before.split("\n\n")[0]


def test_the_command_erases_and_says_how_many(ledger, capsys):
    gone = call()
    call_command("audit_erase", organization=HERE, agent="magpie", reason="asked")
    assert not opens(gone)
    assert "1 payloads erased" in capsys.readouterr().out
    erasures = events(Event.AUDIT_ERASE)
    assert erasures[0].actor.startswith("command:")
    assert {one.details["source"]["transport"] for one in erasures} == {"command"}
    assert len({one.request_id for one in erasures}) == 1 and erasures[0].request_id


def test_the_command_finds_the_organization_of_an_execution(ledger):
    execution = uuid4()
    gone = call(execution_id=execution)
    call_command("audit_erase", execution=str(execution), reason="asked")
    assert not opens(gone)


NOBODYS = "019d0000-0000-7000-8000-000000000000"
WRONG = [{}, {"agent": "magpie"}, {"organization": "nowhere", "all": "nowhere"},
         {"organization": HERE}, {"organization": HERE, "all": "true"},
         {"organization": HERE, "all": HERE, "agent": "magpie"}, {"execution": "x"},
         {"execution": NOBODYS},
         {"organization": HERE, "all": HERE, "before": "x"},
         {"organization": HERE, "all": HERE, "reason": " "},
         {"execution": NOBODYS, "agent": "magpie"}]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_wrong_command_erases_nothing(ledger, options):
    kept = call()
    with pytest.raises(CommandError):
        call_command("audit_erase", **{"reason": "asked", **options})
    assert opens(kept)
    assert events(Event.AUDIT_ERASE) == []


def test_the_api_erases_at_home_alone(db, admin_api, organization):
    gone = call(by=Actor("agent", "magpie", organization.slug))
    there = call(by=Actor("agent", "magpie", "there"))
    answer = admin_api.post("/audit/erasures", {"agent": "magpie", "reason": "asked"})
    assert answer.status_code == 200
    assert answer.json() == {"matched": 1, "erased": 1, "dry_run": False}
    assert (opens(gone), opens(there)) == (False, True)


BODIES = [{}, {"agent": "magpie"}, {"reason": "r"}, {"agent": "a", "all": True, "reason": "r"},
          {"all": True, "reason": "r"}, {"all": "elsewhere", "reason": "r"},
          {"agent": "magpie", "reason": "r", "befor": "2020-01-01T00:00:00Z"},
          {"agent": "magpie", "reason": "r", "dry_run": "yes"}, {"agent": 5, "reason": "r"},
          {"execution": "x", "reason": "r"}, {"agent": 1},
          {"all": True, "reason": "", "before": "x"}, {"agent": "a\x00", "reason": "r"},
          [1]]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_a_wrong_erasure_is_400_and_erases_nothing(admin_api, organization, body):
    kept = call(by=Actor("agent", "magpie", organization.slug))
    assert admin_api.post("/audit/erasures", body).status_code == 400
    assert opens(kept)


def test_a_misspelt_field_is_named(admin_api, organization):
    body = {"all": organization.slug, "befor": "2020-01-01T00:00:00Z", "reason": "old ones"}
    assert "befor" in str(admin_api.post("/audit/erasures", body).json()["details"])


@pytest.fixture
def leaving(admin_api):
    """The slug of an organization whose key may go with what was said there."""
    return factories.organization(f"leaving-{uuid4().hex[:8]}").slug


def test_a_dry_run_counts_and_erases_nothing(admin_api, leaving, capsys):
    kept = call(by=Actor("agent", "magpie", leaving))
    body = {"all": leaving, "reason": "asked", "dry_run": True}
    answer = admin_api.post("/audit/erasures", body, **{"X-Organization": leaving}).json()
    assert answer == {"matched": 1, "erased": 0, "dry_run": True}
    call_command("audit_erase", organization=leaving, agent="magpie", reason="r", dry_run=True)
    assert "1 payloads would be erased" in capsys.readouterr().out
    assert opens(kept)
    assert not AuditRecord.objects.filter(organization=leaving, code="AUDIT.ERASE").exists()


def test_the_whole_organization_is_erased_by_its_slug(admin_api, leaving):
    gone = call(by=Actor("agent", "magpie", leaving))
    answer = admin_api.post(
        "/audit/erasures", {"all": leaving, "reason": "asked"}, **{"X-Organization": leaving}
    )
    assert answer.json() == {"matched": 1, "erased": 1, "dry_run": False}
    assert not opens(gone)


def test_who_may_only_read_erases_nothing(organization):
    user = factories.person(organization)
    answer = Api(factories.token(user, scopes=["read", "manage"])).post(
        "/audit/erasures", {"all": organization.slug, "reason": "r"}
    )
    assert answer.status_code == 403
    here = AuditRecord.objects.filter(organization=organization.slug)
    assert not here.filter(code="AUDIT.ERASE").exists()


def test_what_comes_in_meanwhile_is_not_erased(ledger):
    call()
    scope = ErasureScope(HERE, before=database_now() - timedelta(hours=1))
    assert erasure.erase_payloads(scope, by=BY, reason="r") == 0
