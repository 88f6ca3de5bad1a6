"""Reading evidence is recorded; payloads are for those who may see them."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.records import erasure, record_access, record_search
from tests import factories
from tests.api import Api
from tests.audit.evidence import ADMIN, BY, HERE, call, events, sealed
from tests.tools import database


def latest_read(place):
    found = AuditRecord.objects.filter(organization=place, code="AUDIT.READ")
    return found.latest("occurred_at")


@pytest.fixture
def stored_record(organization):
    by = Actor("agent", "magpie", organization.slug)
    return record(
        Event.TOOL_START, by=by, outcome=Outcome.STARTED, subject="shiny", execution_id=uuid4(),
        payload={"parameters": {"to": "Anna"}},
    )  # fmt: skip


@pytest.fixture
def reader(organization):
    """May read records, and nothing else."""
    user = factories.person(organization)
    user.user_permissions.add(Permission.objects.get(codename="view_auditrecord"))
    return Api(factories.token(user))


def test_a_list_that_was_read_is_on_record_with_its_filters(admin_api, organization, admin_user):
    admin_api.get("/audit/records?code=TOOL.&q=secret+plan", REMOTE_ADDR="10.9.8.7")
    reading = latest_read(organization.slug)
    assert reading.details["filters"] == {"code": "TOOL.", "q": "secret plan"}
    assert (reading.actor, reading.outcome) == (admin_user.username, "success")
    assert reading.request_id and reading.token_id and reading.source_ip


def test_a_record_that_was_opened_is_on_record_without_what_it_holds(
    admin_api, stored_record, organization
):
    opened = admin_api.get(f"/audit/records/{stored_record}").json()
    assert opened["payload"]["content"] == {"parameters": {"to": "Anna"}}
    reading = latest_read(organization.slug)
    assert reading.details["record"] == str(stored_record)
    assert "Anna" not in str(reading.details)


def test_the_page_leaves_one_record_a_request(admin_client, stored_record, organization):
    read = AuditRecord.objects.filter(organization=organization.slug, code="AUDIT.READ")
    for address in ("/audit/", f"/audit/records/{stored_record}/", "/audit/?q=x"):
        before = read.count()
        assert admin_client.get(address).status_code == 200
        assert read.count() == before + 1


def test_what_cannot_be_recorded_is_not_read(committed, admin_api, stored_record, organization):
    with database.no_evidence_for(organization):
        for address in (f"/audit/records/{stored_record}", "/audit/records", "/audit/export"):
            answer = admin_api.get(address)
            assert answer.status_code == 503
            assert "Anna" not in answer.content.decode()


def test_without_the_permission_a_payload_is_withheld(reader, stored_record):
    opened = reader.get(f"/audit/records/{stored_record}").json()
    assert (opened["payload"]["state"], opened["payload"]["content"]) == ("withheld", None)


def test_without_the_permission_no_word_of_it_can_be_tried(reader, admin_api, stored_record):
    address = "/audit/records?q=anna&code=TOOL."
    assert admin_api.get(address).json()["results"]
    assert reader.get(address).json()["results"] == []


def test_an_erased_payload_says_when_and_by_whom(admin_api, stored_record, organization):
    by = Actor("person", "root", organization.slug)
    erasure.erase_payloads(
        erasure.ErasureScope(organization.slug, agent="magpie"), by=by, reason="asked to"
    )
    payload = admin_api.get(f"/audit/records/{stored_record}").json()["payload"]
    assert (payload["state"], payload["erased_by"], payload["content"]) == ("erased", "root", None)
    assert payload["erased_at"]


def test_a_sealed_record_says_where_and_since_when_it_is_signed(ledger):
    made = sealed(3)
    opened = record_access.open_record(made[2], by=ADMIN, may_open=False)
    assert (opened.sealed.log, opened.sealed.index) == (HERE, 2)
    assert opened.sealed.signed_at is not None


def test_a_record_that_is_not_sealed_yet_says_so(ledger):
    assert record_access.open_record(call(), by=ADMIN, may_open=True).sealed is None


def test_an_unknown_record_is_none(ledger):
    assert record_access.open_record(UUID(int=1), by=ADMIN, may_open=True) is None
    assert events(Event.AUDIT_READ) == []


def test_pages_of_readings_lead_both_ways(ledger):
    made = sealed(5)
    wanted = record_search.RecordSearch(
        HERE, code="TOOL.START", until=datetime(2999, 1, 1, tzinfo=UTC)
    )
    first = record_access.read_page(wanted, 2, None, by=BY)
    second = record_access.read_page(wanted, 2, first.older, by=BY)
    third = record_access.read_page(wanted, 2, second.older, by=BY)
    back = record_access.read_page(wanted, 2, third.newer, by=BY)
    pages = [[row.pk for row in page.records] for page in (first, second, third, back)]
    assert pages == [made[:2:-1], [made[2], made[1]], [made[0]], [made[2], made[1]]]
    assert first.newer is None and third.older is None


def test_a_line_that_a_command_prints_is_on_record_as_read(ledger, capsys):
    made = sealed(1)[0]
    call_command("audit_proof", str(made))
    assert events(Event.AUDIT_READ) == []
    capsys.readouterr()
    call_command("audit_proof", str(made), line=True)
    assert str(made) in capsys.readouterr().out
    readings = events(Event.AUDIT_READ)
    assert [one.details["record"] for one in readings] == [str(made)]
    assert readings[0].actor.startswith("command:")
    assert readings[0].details["source"] == {"transport": "command"}
