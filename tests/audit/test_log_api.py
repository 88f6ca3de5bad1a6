"""Checkpoints and proofs over the API: of one's own log alone."""

import pytest

from audit.log import checkpoints, key_files
from audit.log.sealer import seal_logs
from audit.models import AuditRecord
from tests.audit.logs import write


@pytest.fixture
def sealed(committed, anchored, organization):
    """The log of an organization, sealed. Its id is of a record there."""
    (made,) = write(organization.slug)
    seal_logs(organization.slug)
    return made


def test_checkpoints_are_listed_the_newest_first(sealed, admin_api, organization):
    answer = admin_api.get("/audit/checkpoints").json()
    newest = answer["results"][0]
    statement = checkpoints.read_note(newest["note"])
    assert (statement.size, statement.origin) == (
        newest["size"],
        key_files.log_origin(organization.slug),
    )


def test_a_proof_is_a_file_that_holds_the_checkpoint(sealed, admin_api, organization):
    answer = admin_api.get(f"/audit/records/{sealed}/proof")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert f"{sealed}.tlog-proof" in answer["Content-Disposition"]
    head, _, note = answer.content.decode().partition("\n\n")
    assert head.startswith("c2sp.org/tlog-proof@v1\nindex ")
    assert checkpoints.read_note(note).origin == key_files.log_origin(organization.slug)


def test_a_record_that_waits_to_be_sealed_is_to_be_asked_for_again(admin_api, organization):
    made = write(organization.slug)[0]
    answer = admin_api.get(f"/audit/records/{made}/proof")
    assert (answer.status_code, answer["Retry-After"]) == (409, "3")
    assert "not sealed yet" in answer.json()["message"]
    assert AuditRecord.objects.filter(pk=made).exists()


@pytest.mark.parametrize("accept", ["text/plain", "application/json", "*/*"])
def test_a_proof_is_sent_to_clients_that_accept_text_or_json(sealed, admin_api, accept):
    answer = admin_api.get(f"/audit/records/{sealed}/proof", Accept=accept)
    assert answer.status_code == 200


def test_pages_of_checkpoints_are_bounded(admin_api):
    assert admin_api.get("/audit/checkpoints?page_size=0").status_code == 400
    assert admin_api.get("/audit/checkpoints?cursor=x").status_code == 400
