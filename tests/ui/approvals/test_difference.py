"""Versions of a tool: compared on a page, restored, and checked against their signatures."""

import pytest
from django.db import connection
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import codes, notes, preview_fields, text
from tools.authorization.pins import set_pins
from tools.catalog.actions import update_tool
from tools.catalog.signatures import keys, verification
from tools.models import Organization, Tool, ToolVersion
from tools.ui.catalog.tool_versions import SIGNATURE_PROBLEMS

PAGE = "/tools/echo/difference/"
HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'"


@pytest.fixture
def tool(organization: Organization) -> Tool:
    """Of two versions."""
    made = factories.tool(organization)
    return change(made, description="Other\u3164 words.", change_note="Clearer.")


def change(tool: Tool, **fields: str) -> Tool:
    definition = factories.definition(**fields)
    return update_tool(tool=tool, definition=definition, by=factories.actor(tool.organization))


def current(tool: Tool) -> ToolVersion:
    return ToolVersion.objects.get(pk=Tool.objects.get(pk=tool.pk).version_id)


def test_the_last_two_versions_are_compared_by_default(admin_client: Client, tool: Tool) -> None:
    page = text(admin_client.get(PAGE))
    assert '<option value="1.0.0" selected>1.0.0</option>' in page
    assert '<option value="1.0.1" selected data-note="in-use">' in page
    assert "U+3164 HANGUL FILLER</mark>" in page and "\u3164" not in page


def test_any_two_versions_are_compared(admin_client: Client, tool: Tool) -> None:
    change(tool, description="Third words.")
    page = text(admin_client.get(f"{PAGE}?from=1.0.0&to=1.0.2"))
    assert "<ins>Third words.</ins>" in page and "Other" not in page


def test_one_version_has_nothing_to_be_compared_with(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    assert "one-version-only" in notes(admin_client.get(PAGE))


@pytest.mark.parametrize("query", ["from=9.9.9", "from=1.0.0&to=x"])
def test_a_version_that_is_not_there_is_a_page(
    admin_client: Client, tool: Tool, query: str
) -> None:
    assert admin_client.get(f"{PAGE}?{query}").status_code == 404


def test_going_back_is_asked_on_the_page(admin_client: Client, tool: Tool) -> None:
    assert 'href="?from=1.0.1&amp;to=1.0.0&amp;restore=yes"' in text(admin_client.get(PAGE))
    page = text(admin_client.get(f"{PAGE}?from=1.0.1&to=1.0.0&restore=yes"))
    assert "1.0.0" in notes(page)["asks-to-restore"][0]
    assert 'name="version" value="1.0.0"' in page
    assert current(tool).label == "1.0.1"


def restoring(client: Client) -> dict[str, list[str]]:
    """What the form that restores the first version sends."""
    return preview_fields(client.get(f"{PAGE}?from=1.0.1&to=1.0.0&restore=yes"))


def test_a_rollback_is_compared_with_the_current_version(admin_client: Client, tool: Tool) -> None:
    change(tool, description="Third words.")
    answer = admin_client.get(f"{PAGE}?from=1.0.1&to=1.0.0&restore=yes")
    assert answer["Location"] == f"{PAGE}?from=1.0.2&to=1.0.0&restore=yes"


def test_an_earlier_version_is_restored(
    admin_client: Client, organization: Organization, tool: Tool
) -> None:
    page = text(admin_client.post("/tools/echo/restore", restoring(admin_client), follow=True))
    (said,) = notes(page)["message-success"]
    assert all(word in said for word in ("echo", "1.0.0", "1.0.2"))
    assert current(tool).definition["description"] == "Returns what it was given."
    found = AuditRecord.objects.filter(organization=organization.slug, code="REG.TOOL_RESTORE")
    assert found.get().details["restored"] == "1.0.0"


def test_a_tool_that_was_changed_meanwhile_is_read_again(admin_client: Client, tool: Tool) -> None:
    sent = restoring(admin_client)
    change(tool, description="Third words.")
    answer = admin_client.post("/tools/echo/restore", sent)
    assert answer.status_code == 409 and codes(answer) == ["preview_outdated"]
    assert "Third words." in text(answer) and "1.0.2" in notes(answer)["differs"][0]
    assert current(tool).label == "1.0.2"
    again = admin_client.post("/tools/echo/restore", preview_fields(answer))
    assert again.status_code == 302 and current(tool).label == "1.0.3"


def test_what_is_not_what_was_signed_is_not_restored(admin_client: Client, tool: Tool) -> None:
    forge(tool.versions.get(label="1.0.0"))
    answer = admin_client.post("/tools/echo/restore", restoring(admin_client))
    assert answer.status_code == 409 and "1.0.0" in notes(answer)["refused"][0]
    page = text(admin_client.get("/tools/echo/"))
    assert SIGNATURE_PROBLEMS[verification.ALTERED] in notes(page)["version-flaw"]
    assert current(tool).label == "1.0.1"


def test_a_version_that_is_not_there_is_not_restored(admin_client: Client, tool: Tool) -> None:
    sent = {"version": "9.9.9", "digest": current(tool).digest}
    assert admin_client.post("/tools/echo/restore", sent).status_code == 404


@pytest.mark.parametrize("what", ["restore", "drift", "difference/"])
def test_a_name_that_no_tool_can_have_is_not_there(admin_client: Client, what: str) -> None:
    send = admin_client.get if what.endswith("/") else admin_client.post
    assert send(f"/tools/%01/{what}").status_code == 404


def test_who_may_only_look_restores_nothing(client_of: Grant, tool: Tool) -> None:
    client = client_of("tools.view_tool")
    page = text(client.get(f"{PAGE}?from=1.0.1&to=1.0.0&restore=yes"))
    assert "asks-to-restore" not in notes(page) and "restore=yes" not in page
    sent = {"version": "1.0.0", "digest": current(tool).digest}
    assert client.post("/tools/echo/restore", sent).status_code == 403
    assert current(tool).label == "1.0.1"


def test_the_tools_page_says_of_each_version_why_and_by_which_key(
    admin_client: Client, tool: Tool
) -> None:
    page = text(admin_client.get("/tools/echo/"))
    assert "Clearer." in page and len(notes(page)["authentic"]) == 2
    assert current(tool).key_id in page and f'href="{PAGE}"' in page


def test_an_invalid_signature_is_explained(
    admin_client: Client, organization: Organization, tool: Tool
) -> None:
    forge(tool.versions.get(label="1.0.0"))
    page = text(admin_client.get("/tools/echo/"))
    altered = [SIGNATURE_PROBLEMS[verification.ALTERED]]
    assert notes(page)["version-flaw"] == altered and len(notes(page)["authentic"]) == 1
    assert notes(admin_client.get("/tools/echo/versions/1/"))["version-flaw"] == altered
    by = factories.actor(organization)
    keys.distrust_key(organization=organization, key_id=current(tool).key_id, by=by)
    flaws = notes(admin_client.get("/tools/echo/"))["version-flaw"]
    assert SIGNATURE_PROBLEMS[verification.DISTRUSTED] in flaws


def test_pinned_agents_are_shown_to_users_who_may_view_agents(
    admin_client: Client, client_of: Grant, organization: Organization, tool: Tool
) -> None:
    agent = factories.agent(organization, "careful")
    set_pins(agent=agent, pins={"echo": "1.0.0"}, by=factories.actor(organization))
    page = text(admin_client.get("/tools/echo/"))
    assert '<a href="/explain/?agent=careful">careful</a>' in page
    assert "careful" in notes(page)["pinned-by"][0]
    assert "careful" not in text(client_of("tools.view_tool").get("/tools/echo/"))


def forge(version: ToolVersion) -> None:
    """As an attacker does who can write to the database only."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE tools_toolversion DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE tools_toolversion SET definition = definition || %s::jsonb WHERE id = %s",
            ['{"description": "Forged."}', version.pk],
        )
        cursor.execute("ALTER TABLE tools_toolversion ENABLE TRIGGER USER")
