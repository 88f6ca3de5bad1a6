"""Files of evidence: asked for on a page, written by a worker, fetched by who asked."""

from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from audit import tasks
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.export import background_exports
from audit.models import AuditExport, AuditRecord
from tests.ui.conftest import Grant
from tests.ui.pages import body_of, htmx, notes, text
from tools.models import Organization

PAGE = "/audit/exports/"


@pytest.fixture(autouse=True)
def _export_directory(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own; and the connection stays, for it holds the test's transaction."""
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(connection, "close", lambda: None)


@pytest.fixture
def happened(organization: Organization) -> None:
    by = Actor("agent", "magpie", organization.slug)
    record(Event.TOOL_DENY, by=by, outcome=Outcome.DENIED, subject="shiny")
    record(Event.TOOL_END, by=by, outcome=Outcome.SUCCESS, subject="dull")


def requested_exports(client: Client) -> QuerySet[AuditExport]:
    """What this person asked for: others of the installation have exports of their own."""
    return AuditExport.objects.filter(asked_by_id=client.session["_auth_user_id"])


def ask(client: Client, **given: str) -> AuditExport:
    client.post(PAGE, {"format": "jsonl", **given})
    return requested_exports(client).latest("created_at")


def written(client: Client, **given: str) -> AuditExport:
    row = ask(client, **given)
    background_exports.write_next_export()
    row.refresh_from_db()
    return row


@pytest.mark.parametrize("format_name", ["jsonl", "csv", "ocsf"])
def test_an_export_is_written_and_fetched(
    admin_client: Client, happened: None, format_name: str
) -> None:
    row = written(admin_client, format=format_name, code="TOOL.DENY")
    assert (row.state, row.records) == ("ready", 1), row.problem
    response = admin_client.get(f"{PAGE}{row.pk}/")
    content = body_of(response)
    assert b"shiny" in content and b"dull" not in content
    assert (row.size, row.sha256) == (len(content), sha256(content).hexdigest())
    assert "attachment" in response["Content-Disposition"]
    assert row.sha256.encode() in body_of(admin_client.get(f"{PAGE}{row.pk}/?part=manifest"))


def test_that_it_was_asked_for_written_and_fetched_is_on_record(
    admin_client: Client, happened: None
) -> None:
    row = written(admin_client, tool="shiny")
    body_of(admin_client.get(f"{PAGE}{row.pk}/"))
    found = AuditRecord.objects.filter(organization=row.organization, code="AUDIT.EXPORT")
    assert sorted(found.values_list("outcome", flat=True)) == ["started", "success", "success"]
    assert all(one.details["filters"]["tool"] == "shiny" for one in found)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "given",
    [
        {"format": "xml"}, {"format": ""}, {"since": "soon"}, {"execution": "x"},
        {"format": "a"}, {"q": "?"},
    ],
)  # fmt: skip
def test_bad_input_is_refused(admin_client: Client, given: dict[str, str]) -> None:
    response = admin_client.post(PAGE, {"format": "csv", **given})
    (field,) = given
    assert response.status_code == 400 and f"flaw-{field}" in notes(response)
    assert not requested_exports(admin_client).exists()


def test_the_exports_of_a_user_are_limited(admin_client: Client) -> None:
    for _ in range(background_exports.MOST_EXPORTS):
        ask(admin_client)
    response = admin_client.post(PAGE, {"format": "csv"})
    (flaw,) = notes(response)["flaw-format"]
    assert response.status_code == 400 and str(background_exports.MOST_EXPORTS) in flaw
    admin_client.post(f"{PAGE}{requested_exports(admin_client).earliest('created_at').pk}/remove/")
    assert admin_client.post(PAGE, {"format": "csv"}).status_code == 302


def test_an_organization_stores_no_more_than_its_bytes(
    admin_client: Client, happened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exports of all users count."""
    row = written(admin_client)
    AuditExport.objects.filter(pk=row.pk).update(asked_by_id="somebody else")
    second = ask(admin_client)
    monkeypatch.setattr(background_exports, "ORGANIZATION_BYTES", row.size + 1)
    background_exports.write_next_export()
    second.refresh_from_db()
    assert second.state == "failed" and "Remove others" in second.problem
    monkeypatch.setattr(background_exports, "ORGANIZATION_BYTES", row.size)
    response = admin_client.post(PAGE, {"format": "csv"})
    assert response.status_code == 400 and "hold" in notes(response)["flaw-format"][0]


def test_a_full_disk_ends_an_export_before_it_is_full(
    admin_client: Client, happened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_exports, "FREE_BYTES", 2**62)
    row = written(admin_client)
    assert row.state == "failed" and "no room" in row.problem
    assert not any(background_exports.export_directory().iterdir())


def test_of_one_organization_fewer_are_written_than_at_once(admin_client: Client) -> None:
    """Another's does not wait behind them."""
    ours, waiting = ask(admin_client), ask(admin_client)
    AuditExport.objects.filter(pk=ours.pk).update(state="running")
    assert background_exports.write_next_export() is None
    AuditExport.objects.filter(pk=waiting.pk).update(organization="another")
    found = background_exports._claim_export()
    assert found is not None and found.pk == waiting.pk


def test_exports_are_of_who_asked_for_them(
    admin_client: Client, organization: Organization, client_of: Grant
) -> None:
    row = ask(admin_client)
    other = client_of("audit.view_auditrecord", "audit.view_auditpayload")
    assert str(row.pk) not in text(other.get(PAGE))
    assert other.get(f"{PAGE}{row.pk}/").status_code == 404
    assert other.post(f"{PAGE}{row.pk}/remove/").status_code == 404
    row.refresh_from_db()
    assert row.state == "waiting"


def test_who_may_no_longer_read_fetches_nothing(client_of: Grant, person: Any) -> None:
    client = client_of("audit.view_auditrecord")
    row = ask(client)
    person.user_permissions.clear()
    for address in (PAGE, f"{PAGE}{row.pk}/"):
        assert client.get(address).status_code == 403


def test_it_is_gone_when_its_time_is_over(admin_client: Client, happened: None) -> None:
    row = written(admin_client)
    past = timezone.now() - timedelta(seconds=1)
    AuditExport.objects.filter(pk=row.pk).update(expires_at=past)
    assert admin_client.get(f"{PAGE}{row.pk}/").status_code == 404
    assert background_exports.export_path(row).exists()
    tasks.sweep_exports()
    row.refresh_from_db()
    assert row.state == "gone" and not any(background_exports.export_directory().iterdir())


def test_one_that_is_removed_takes_its_files_along(
    admin_client: Client, happened: None, django_capture_on_commit_callbacks: Any
) -> None:
    row = written(admin_client)
    with django_capture_on_commit_callbacks(execute=True):
        page = admin_client.post(f"{PAGE}{row.pk}/remove/", follow=True)
    assert "message-success" in notes(page)
    assert not any(background_exports.export_directory().iterdir())


def test_one_that_is_removed_while_it_is_written_ends(
    admin_client: Client, happened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ask(admin_client)
    count = background_exports._update_progress

    def removed(*given: Any) -> None:
        admin_client.post(f"{PAGE}{row.pk}/remove/")
        count(*given)

    monkeypatch.setattr(background_exports, "_update_progress", removed)
    background_exports.write_next_export()
    row.refresh_from_db()
    assert row.state == "gone" and not any(background_exports.export_directory().iterdir())


def test_one_that_is_too_large_says_what_to_do(
    admin_client: Client, happened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_exports, "MOST_BYTES", 10)
    row = written(admin_client)
    assert row.state == "failed" and row.problem
    assert notes(admin_client.get(PAGE))["problem"] == [row.problem]


def test_an_export_whose_worker_died_is_shown(admin_client: Client) -> None:
    row = ask(admin_client)
    AuditExport.objects.filter(pk=row.pk).update(
        state="running", moved_at=timezone.now() - timedelta(hours=1)
    )
    background_exports.delete_expired()
    row.refresh_from_db()
    assert row.state == "failed" and notes(admin_client.get(PAGE))["problem"] == [row.problem]


def test_no_more_are_written_at_once_than_workers_can_be_spared(admin_client: Client) -> None:
    for _ in range(3):
        ask(admin_client)
    for row in requested_exports(admin_client)[: background_exports.MOST_RUNNING]:
        AuditExport.objects.filter(pk=row.pk).update(state="running")
    assert background_exports.write_next_export() is None


def test_progress_is_asked_for_while_something_is_unfinished(admin_client: Client) -> None:
    assert "hx-trigger" not in text(admin_client.get(f"{PAGE}?part=list"))
    row = ask(admin_client)
    AuditExport.objects.filter(pk=row.pk).update(state="running", records=1500, size=9000)
    part = text(admin_client.get(f"{PAGE}?part=list", headers=htmx("exports")))
    assert "1,500" in notes(part)["records-running"][0]
    assert 'hx-trigger="every 2s"' in part and "<html" not in part


def test_filters_of_a_search_stand_in_the_form(admin_client: Client) -> None:
    page = text(admin_client.get(f"{PAGE}?since=2026-01-31T12:00:00%2B01:00&tool=shiny"))
    assert 'value="2026-01-31T11:00:00"' in page and 'value="shiny"' in page
