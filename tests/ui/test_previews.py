"""What was shown is what is written: else nothing is, and the page says what is different. The
cases of bulk changes, restored versions, tools of a server and imports are tests of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import codes, form_fields, notes, preview_fields
from tools.catalog.actions import set_enabled
from tools.catalog.groups import save_group
from tools.models import LicenseTier, Organization, Tool, ToolGroup
from tools.web import previews

TURTLE = "<urn:a> <urn:p> 1 .\n<urn:b> <urn:p> 2 ."


@dataclass(frozen=True)
class PreviewCase:
    """How it is shown, what another person changes meanwhile, and what a difference begins with."""

    show: Callable[[Client, Organization], Any]
    meanwhile: Callable[[Organization], Any]
    address: str
    differs: str
    code: str = "preview_outdated"


def show_group(client: Client, organization: Organization) -> Any:
    factories.agent(organization, "bot", groups=["reading"])
    by = factories.actor(organization)
    save_group(organization=organization, name="reading", by=by)
    factories.tool(organization, "ask", group=["reading"])
    sent = form_fields(client.get("/groups/change/reading"))
    typed = {"schedule": "mon 12:00-12:01", "do": "preview"}
    return client.post("/groups/change/reading", sent | typed)


def show_tier(client: Client, organization: Organization) -> Any:
    Organization.objects.exclude(pk=organization.pk).filter(tier=organization.tier).update(
        tier=LicenseTier.objects.get(name="Core")
    )
    factories.tool(organization, "t0")
    address = f"/licenses/tiers/{organization.tier_id}/"
    sent = form_fields(client.get(address))
    return client.post(address, sent | {"most": "0", "profiles": "", "do": "look"})


def add_tool(organization: Organization) -> None:
    factories.tool(organization, "t9", group=["reading"])


def add_to_group(organization: Organization) -> None:
    factories.tool(organization, "other", group=["reading"])


CASES = {
    "group": PreviewCase(show_group, add_to_group, "/groups/change/reading", "other"),
    "tier": PreviewCase(show_tier, add_tool, "/licenses/tiers/{tier}/", "", "tier_changed"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_would_follow_otherwise_by_now_is_shown_and_not_written(
    admin_client: Client, organization: Organization, name: str
) -> None:
    case = CASES[name]
    address = case.address.format(tier=organization.tier_id)
    sent = preview_fields(case.show(admin_client, organization))
    case.meanwhile(organization)
    records = AuditRecord.objects.filter(organization=organization.slug)
    before = records.count()
    answer = admin_client.post(address, sent | {"do": "write"})
    assert answer.status_code == 409 and codes(answer) == [case.code]
    assert any(case.differs in line for line in notes(answer)["differs"])
    assert records.count() == before
    again = preview_fields(answer)
    typed = sent.keys() - {"preview", "one_time_key", "csrfmiddlewaretoken", "filled_from"}
    assert {name: again[name] for name in typed} == {name: sent[name] for name in typed}
    assert admin_client.post(address, again | {"do": "write"}).status_code == 302


def test_what_was_typed_after_it_was_shown_is_shown_first(
    admin_client: Client, organization: Organization
) -> None:
    sent = preview_fields(show_group(admin_client, organization))
    typed = {"description": "Other words", "do": "write"}
    answer = admin_client.post("/groups/change/reading", sent | typed)
    assert answer.status_code == 409 and codes(answer) == ["form_changed"]
    group = ToolGroup.objects.get(organization=organization, name="reading")
    assert (group.description, group.schedule) == ("", [])
    again = preview_fields(answer)
    assert again["description"] == ["Other words"]
    assert admin_client.post("/groups/change/reading", again).status_code == 302
    group.refresh_from_db()
    assert group.description == "Other words" and group.schedule


def test_a_preview_is_of_one_user_and_one_row(
    admin_client: Client, client_of: Grant, organization: Organization
) -> None:
    sent = preview_fields(show_group(admin_client, organization))
    by = factories.actor(organization)
    save_group(organization=organization, name="other", by=by)
    for client in (client_of("tools.change_toolgroup"), admin_client):
        answer = client.post("/groups/change/other", sent)
        assert answer.status_code == 400 and "refused" in notes(answer)
    forged = sent | {"preview": [sent["preview"][0][:-4] + "AAAA"]}
    assert admin_client.post("/groups/change/reading", forged).status_code == 400
    assert not ToolGroup.objects.exclude(schedule=[]).filter(organization=organization).exists()


def test_a_tier_is_not_written_before_it_is_shown(
    admin_client: Client, organization: Organization
) -> None:
    address = f"/licenses/tiers/{organization.tier_id}/"
    sent = form_fields(admin_client.get(address))
    answer = admin_client.post(address, sent | {"most": "0", "profiles": ""})
    assert answer.status_code == 409 and codes(answer) == ["preview_needed"]
    assert preview_fields(answer)["most"] == ["0"]
    assert LicenseTier.objects.get(pk=organization.tier_id).max_custom_tools is None


def test_a_document_whose_entities_are_known_by_now_is_shown_again(admin_client: Client) -> None:
    address = "/knowledge/import/"
    first = admin_client.post(address, {"do": "look", "text": TURTLE})
    other = admin_client.post(address, {"do": "look", "text": TURTLE.splitlines()[0]})
    assert "added" in notes(admin_client.post(address, preview_fields(other)))
    answer = admin_client.post(address, preview_fields(first))
    assert answer.status_code == 409 and codes(answer) == ["preview_outdated"]
    assert "1" in notes(answer)["differs"][0] and "added" not in notes(answer)
    assert notes(admin_client.post(address, preview_fields(answer)))["added"] == ["2"]


def test_what_a_page_carries_is_bounded(
    admin_client: Client, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "MOST_LINES", 1)
    for number in range(4):
        factories.tool(organization, f"t{number}")
    query = "&".join(f"pick=t{number}" for number in range(4))
    sent = preview_fields(admin_client.get(f"/catalog/change/?do=disable&{query}"))
    last = Tool.objects.get(organization=organization, name="t3")
    set_enabled(tool=last, enabled=False, by=factories.actor(organization))
    answer = admin_client.post("/catalog/change/", sent)  # of a line that the page does not carry
    assert answer.status_code == 409 and codes(answer) == ["preview_outdated"]
    status = Tool.objects.filter(organization=organization).values_list("status", flat=True)
    assert sorted(status.filter(name__in=["t0", "t1", "t2"])) == ["active"] * 3
