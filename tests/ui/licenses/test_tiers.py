"""The terms of a tier: what others would close is shown, then written if it still is so."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.licenses.test_licenses import fields, move, tools
from tests.ui.pages import codes, htmx, inline_code, notes, preview_fields, text
from tools.licensing.tier_terms import terms_of
from tools.models import LicenseTier, Organization, Tool
from tools.ui.licenses.tiers import term_texts

CORE = ["read_file", "write_file", "search_knowledge", "web_fetch", "execute_ckvs_query"]
GIVEN: dict[str, Any] = {
    "show": "yes", "builtin": "these", "tool": CORE, "limited": "these", "most": "3",
    "levels": "these", "level": ["None", "Standard"],
}  # fmt: skip


@pytest.fixture
def place(organization: Organization) -> Iterator[Organization]:
    """The one of the tier WriterPro, with ten tools of its own."""
    elsewhere = Organization.objects.filter(tier=row())
    elsewhere.update(tier=row("Enterprise"))
    move(organization, "WriterPro")
    tools(organization, 10)
    organization.refresh_from_db()
    return organization


def row(name: str = "WriterPro") -> LicenseTier:
    return LicenseTier.objects.get(name=name)


def address(name: str = "WriterPro") -> str:
    return f"/licenses/tiers/{row(name).pk}/"


def outlook(client: Client, **given: Any) -> str:
    return text(client.get(address(), GIVEN | given))


def sent(page: str) -> dict[str, list[str]]:
    return preview_fields(page)


def test_the_form_holds_what_the_tier_includes(admin_client: Client) -> None:
    page = text(admin_client.get(address()))
    assert 'name="most" value="10"' in page
    assert 'value="read_file" checked' in page and 'value="send_message" checked' not in page
    assert 'id="preview"' not in page


def test_the_preview_names_tools_agents_and_calls_and_changes_nothing(
    admin_client: Client, place: Organization
) -> None:
    factories.agent(place, groups=["default"])
    page = outlook(admin_client)
    assert ">t9<" in page and ">t3<" in page and ">t2<" not in page
    assert notes(page)["agents-losing"] == ["1"] and "no-call-waits" in notes(page)
    _, (custom_tools, _), *_ = term_texts(terms_of(row()))
    assert notes(page)["changed-term"] == [custom_tools]
    assert row().max_custom_tools == 10


def test_a_call_that_waits_for_a_person_is_counted(
    admin_client: Client, place: Organization
) -> None:
    agent = factories.agent(place, groups=["default"])
    factories.execution(agent, "t9")
    assert notes(outlook(admin_client))["calls-waiting"] == ["1"]


def test_terms_are_written_as_shown_and_leave_a_record(
    admin_client: Client, place: Organization
) -> None:
    page = text(admin_client.post(address(), sent(outlook(admin_client)), follow=True))
    [said] = notes(page)["message-success"]
    assert "WriterPro" in said and "7" in said
    assert row().max_custom_tools == 3
    records = AuditRecord.objects.filter(organization=place.slug, code="ADMIN.TIER_CHANGE")
    record = records.get(subject="WriterPro")
    assert record.details["after"]["max_custom_tools"] == 3
    assert Tool.objects.filter(organization=place, status="disabled").count() == 7


@pytest.mark.part("matrices")
def test_terms_are_taken_back(admin_client: Client, place: Organization) -> None:
    page = text(admin_client.post(address(), sent(outlook(admin_client)), follow=True))
    said = admin_client.post("/licenses/undo", fields(page, "/licenses/undo"), follow=True)
    assert "WriterPro" in notes(said)["message-success"][0]
    assert row().max_custom_tools == 10
    assert not Tool.objects.filter(organization=place, status="disabled").exists()


@pytest.mark.part("matrices")
def test_what_would_do_something_else_by_now_is_shown_again(
    admin_client: Client, place: Organization
) -> None:
    asked = sent(outlook(admin_client))
    Tool.objects.filter(organization=place, name="t9").update(status="pending")
    response = admin_client.post(address(), asked)
    assert response.status_code == 409 and codes(response) == ["tier_changed"]
    assert row().max_custom_tools == 10


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"most": "many"}, "flaw-most"), ({"most": "-1"}, "flaw-most"),
        ({"most": "9" * 12}, "flaw-most"),
        ({"most": "\u0663"}, "flaw-most"),
        ({"builtin": "some"}, "flaw-builtin"), ({"levels": ""}, "flaw-levels"),
        ({"profiles": "yes"}, "flaw-profiles"),
    ],
)  # fmt: skip
def test_invalid_input_is_shown_at_the_form(
    admin_client: Client, given: dict[str, str], note: str
) -> None:
    for response in (
        admin_client.get(address(), GIVEN | given),
        admin_client.post(address(), GIVEN | given),
    ):
        assert response.status_code == 400 and note in notes(response)
    assert row().max_custom_tools == 10


def test_names_that_are_no_built_in_tools_are_left_out(admin_client: Client) -> None:
    page = outlook(admin_client, tool=[*CORE, "<script>", "a b"], most="9")
    assert admin_client.post(address(), sent(page)).status_code == 302
    assert row().max_custom_tools == 9
    assert sorted(row().builtin_tools or ()) == sorted(CORE)


def test_a_tier_that_a_signed_licence_names_includes_no_more_than_was_delivered(
    admin_client: Client, place: Organization
) -> None:
    Organization.objects.filter(pk=place.pk).update(license_id="L-7")
    response = admin_client.get(address(), GIVEN | {"most": "11"})
    assert response.status_code == 409 and "10" in notes(response)["refused"][0]
    assert 'id="preview"' in outlook(admin_client, most="9")
    assert admin_client.post(address(), GIVEN | {"most": "11", "mark": "x"}).status_code == 409
    assert row().max_custom_tools == 10


def test_htmx_gets_the_part_alone(admin_client: Client, place: Organization) -> None:
    part = text(admin_client.get(address(), GIVEN, headers=htmx("tier-work")))
    assert 'id="preview"' in part and "<html" not in part
    assert inline_code(admin_client.get(address(), GIVEN)) == []


@pytest.mark.parametrize("number", ["0", "9" * 30])
def test_a_tier_that_is_not_there_is_a_page_that_says_so(admin_client: Client, number: str) -> None:
    assert admin_client.get(f"/licenses/tiers/{number}/").status_code == 404


def test_only_superusers_see_and_change_terms(client_of: Grant) -> None:
    client = client_of("tools.view_licensetier", "tools.change_licensetier")
    assert client.get(address()).status_code == 403
    assert client.post(address(), GIVEN).status_code == 403
    assert client.post("/licenses/undo", {"key": "x"}).status_code == 403


def test_the_preview_asks_no_query_per_tool_or_agent(
    admin_client: Client, place: Organization, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        factories.agent(place, groups=["default"])
    outlook(admin_client, most="4")
    with django_assert_max_num_queries(30):  # who it is, the menu, and the tools of one place
        outlook(admin_client)
