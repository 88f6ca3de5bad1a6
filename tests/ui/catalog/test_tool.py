from collections.abc import Callable

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.pages import htmx, inline_code, notes, text
from tools.catalog.actions import update_tool
from tools.models import Execution, Organization


def test_it_shows_parameters_schema_and_versions(admin_client: Client) -> None:
    page = text(admin_client.get("/tools/read_file/"))
    for part in ("tool.filesystem.read", "PT30S", "sha256:", "system:tests"):
        assert part in page
    assert "input-schema" in notes(page)


def test_the_source_of_a_code_tool_is_shown(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    assert "def main(parameters):" in text(admin_client.get("/tools/echo/"))


def test_a_version_shows_what_changed(admin_client: Client, organization: Organization) -> None:
    tool = factories.tool(organization)
    changed = factories.definition(description="Something else.")
    update_tool(tool=tool, definition=changed, by=factories.actor(organization))
    page = text(admin_client.get("/tools/echo/versions/2/"))
    assert 'data-kind="removed">-  &quot;description&quot;: &quot;Returns what' in page
    assert 'data-kind="added">+  &quot;description&quot;: &quot;Something else' in page


def test_a_field_that_cannot_be_read_calls_nothing(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, parameters=[{"name": "n", "type": "Integer", "description": "d"}])
    page = admin_client.post("/tools/echo/call/", {"p.n": "many", "group": "default"})
    assert "flaw-n" in notes(page)
    assert not Execution.objects.filter(organization=organization).exists()


def test_what_the_schema_refuses_is_shown_at_its_field(
    admin_client: Client, organization: Organization
) -> None:
    data = {"p.path": "", "p.encoding": '"utf-8"', "group": "read-only"}
    page = text(admin_client.post("/tools/read_file/call/", data))
    assert "flaw-path" in notes(page)
    assert 'aria-invalid="true"' in page
    assert Execution.objects.get(organization=organization).status == "ValidationError"


def test_a_refusal_is_a_result_with_its_reason(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    page = admin_client.post("/tools/echo/call/", {"p.text": "x", "group": "read-only"})
    assert page.status_code == 200
    assert "tool_not_in_group" in text(page)
    assert 'data-status="PermissionDenied"' in text(page)
    assert AuditRecord.objects.filter(organization=organization.slug, code="TOOL.DENY").exists()


def test_a_person_tries_with_their_own_grants(client_of, organization: Organization) -> None:
    factories.tool(organization, group=["secret"])
    client = client_of("tools.view_tool", "tools.execute_tool")
    page = client.post("/tools/echo/call/", {"p.text": "x", "other_group": "secret"})
    assert "group_not_granted" in text(page)
    recorded = AuditRecord.objects.filter(organization=organization.slug)
    assert "TOOL.START" not in recorded.values_list("code", flat=True)


@pytest.mark.usefixtures("committed", "crib")
def test_a_try_runs_through_the_pipeline_and_shows_everything(
    admin_client: Client,
    organization: Organization,
    files: Callable[[str, bytes], None],
) -> None:
    files("a.txt", b"<script>alert(1)</script>")
    data = {"p.path": "a.txt", "p.encoding": '"utf-8"', "group": "read-only", "state": "undefined"}
    page = admin_client.post("/tools/read_file/call/", data)
    execution = Execution.objects.get(organization=organization)
    assert execution.status == "Success"
    assert {"peak-memory", "cpu", "queued"} <= set(notes(page))
    assert f"/executions/{execution.pk}/" in text(page)
    assert "&lt;script&gt;alert(1)" in text(page)
    assert inline_code(page) == []
    codes = AuditRecord.objects.filter(execution_id=execution.pk).values_list("code", flat=True)
    assert set(codes) == {"TOOL.ACCEPT", "TOOL.START", "TOOL.END"}


@pytest.mark.usefixtures("committed", "crib")
def test_htmx_is_given_the_form_and_the_result(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    data = {"p.text": "hello", "group": "default"}
    part = text(admin_client.post("/tools/echo/call/", data, headers=htmx("play")))
    assert part.lstrip().startswith('<div id="play"')
    assert "<html" not in part


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("part", [False, True])
def test_a_call_that_waits_for_a_person_is_shown_as_waiting(
    admin_client: Client, organization: Organization, part: bool
) -> None:
    factories.tool(organization, "careful", requires_confirmation=True)
    data = {"p.text": "hello", "group": "default"}
    headers = htmx("play") if part else {}
    page = admin_client.post("/tools/careful/call/", data, headers=headers)
    assert page.status_code == 200
    assert "RequiresConfirmation" in text(page)
