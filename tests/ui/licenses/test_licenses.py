"""The page of the licence, and the notice on every page when it ends."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import codes, htmx, notes, text
from tools.catalog.seats import DISABLED
from tools.definitions.texts.names import join_names
from tools.licensing.licenses import apply_expiry
from tools.licensing.tiers import set_tier
from tools.models import LicenseTier, Organization, Tool


def tools(organization: Organization, count: int) -> None:
    for number in range(count):
        factories.tool(organization, f"t{number}")


def ends(organization: Organization, days: float) -> None:
    Organization.objects.next_revision(organization.pk)
    end = timezone.now() + timedelta(days=days)
    Organization.objects.filter(pk=organization.pk).update(license_expires_at=end)


def move(organization: Organization, name: str) -> None:
    tier = LicenseTier.objects.get(name=name)
    set_tier(organization=organization, tier=tier, by=factories.actor(organization))


def test_the_page_compares_the_tiers_and_shows_the_use(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 2)
    move(organization, "WriterPro")
    page = text(admin_client.get("/licenses/"))
    for word in ("Core", "WriterPro", "Teams", "Enterprise", "send_message"):
        assert word in page
    assert notes(page)["own-tier"] == ["WriterPro"]
    assert re.findall(r"\d+", notes(page)["custom-tools"][0]) == ["2", "10"]  # of at most


def test_the_page_names_what_the_licence_leaves_out(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 1)
    move(organization, "Core")
    page = text(admin_client.get("/licenses/"))
    assert 'id="without"' in page
    assert 'href="/tools/t0/"' in page and 'href="/tools/validate_content/"' in page


def test_a_tier_is_shown_before_it_is_changed(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 2)
    page = text(admin_client.get("/licenses/?tier=Core"))
    assert notes(page)["tier-before"] == ["Enterprise"] and notes(page)["tier-after"] == ["Core"]
    assert fields(page, "/licenses/tier")["tier"] == ["Core"]
    assert ">t1<" in page
    assert not Tool.objects.filter(organization=organization, status="disabled").exists()


def test_htmx_gets_the_part_alone(admin_client: Client) -> None:
    part = text(admin_client.get("/licenses/?tier=Core", headers=htmx("change")))
    assert notes(part)["tier-after"] == ["Core"] and "<html" not in part


def fields(page: str, address: str) -> dict[str, list[str]]:
    """What the form of a preview sends."""
    form = page.partition(f'action="{address}">')[2].partition("</form>")[0]
    sent: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form):
        sent.setdefault(name, []).append(value)
    return sent


def moving(client: Client, **query: str) -> dict[str, list[str]]:
    return fields(text(client.get("/licenses/", query)), "/licenses/tier")


def test_the_tier_is_changed_and_the_page_says_what_happened(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 5)
    sent = moving(admin_client, tier="Core")
    response = admin_client.post("/licenses/tier", sent, follow=True)
    assert response.redirect_chain == [("/licenses/", 302)]
    [said] = notes(response)["message-success"]
    assert organization.slug in said and "Core" in said
    assert join_names(["t4", "t3", "t2", "t1", "t0"], 3) in said
    assert Organization.objects.get(pk=organization.pk).tier.name == "Core"


def test_another_organization_is_moved_after_what_it_would_close_is_shown(
    admin_client: Client, organization: Organization
) -> None:
    other = factories.organization(f"{organization.slug}-other", "Enterprise")
    tools(other, 2)
    factories.agent(other, groups=["default"])
    page = text(admin_client.get("/licenses/", {"organization": other.slug, "tier": "Core"}))
    assert other.slug in notes(page)["move"][0] and notes(page)["tier-after"] == ["Core"]
    assert notes(page)["agents-losing"] == ["1"]
    admin_client.post("/licenses/tier", fields(page, "/licenses/tier"))
    other.refresh_from_db()
    organization.refresh_from_db()
    assert (other.tier.name, organization.tier.name) == ("Core", "Enterprise")


@pytest.mark.parametrize("slug", ["nobody", "<script>", "../x"])
def test_an_unknown_organization_is_a_page_that_says_so(admin_client: Client, slug: str) -> None:
    query = {"organization": slug, "tier": "Core"}
    assert admin_client.get("/licenses/", query).status_code == 404
    assert admin_client.post("/licenses/tier", query).status_code == 404


def test_a_move_that_would_do_something_else_by_now_is_shown_again(
    admin_client: Client, organization: Organization
) -> None:
    sent = moving(admin_client, tier="Core")
    tools(organization, 1)
    response = admin_client.post("/licenses/tier", sent)
    assert response.status_code == 409 and codes(response) == ["tier_changed"]
    assert ">t0<" in text(response) and "t0" in notes(response)["differs"][0]
    assert Organization.objects.get(pk=organization.pk).tier.name == "Enterprise"


def test_a_move_is_taken_back_once(admin_client: Client, organization: Organization) -> None:
    tools(organization, 2)
    page = text(admin_client.post("/licenses/tier", moving(admin_client, tier="Core"), follow=True))
    key = fields(page, "/licenses/undo")
    first = text(admin_client.post("/licenses/undo", key, follow=True))
    [said] = notes(first)["message-success"]
    assert organization.slug in said and "Enterprise" in said
    assert Tool.objects.filter(organization=organization, name="t1", status="active").exists()
    twice = notes(admin_client.post("/licenses/undo", key, follow=True))
    assert "message-info" in twice and "message-success" not in twice
    elsewhere = key | {"one_time_key": ""}  # as a page that was open in another window sends it
    again = text(admin_client.post("/licenses/undo", elsewhere, follow=True))
    assert "message-error" in notes(again) and "message-success" not in notes(again)


def test_a_move_that_was_changed_since_is_not_undone(
    admin_client: Client, organization: Organization
) -> None:
    page = text(admin_client.post("/licenses/tier", moving(admin_client, tier="Core"), follow=True))
    move(organization, "Teams")
    said = text(admin_client.post("/licenses/undo", fields(page, "/licenses/undo"), follow=True))
    assert codes(said) == ["tier_changed"] and "message-success" not in notes(said)
    assert Organization.objects.get(pk=organization.pk).tier.name == "Teams"


@pytest.mark.parametrize("name", ["Gold", "", "<script>"])
def test_an_unknown_tier_is_a_page_that_says_so(admin_client: Client, name: str) -> None:
    assert admin_client.post("/licenses/tier", {"tier": name}).status_code == 404
    assert admin_client.get("/licenses/", {"tier": name or "x"}).status_code == 404


def test_a_tier_that_a_licence_set_offers_no_form(
    admin_client: Client, organization: Organization
) -> None:
    Organization.objects.filter(pk=organization.pk).update(license_id="L-7")
    page = text(admin_client.get("/licenses/?tier=Core"))
    assert "L-7" in page and 'action="/licenses/tier"' not in page
    assert admin_client.post("/licenses/tier", {"tier": "Core"}).status_code == 409


def test_users_who_may_view_tiers_see_them_and_change_nothing(client_of: Grant) -> None:
    client = client_of("tools.view_licensetier", "tools.change_organization")
    page = text(client.get("/licenses/"))
    assert 'id="tiers"' in page
    assert 'name="tier"' not in page and "/licenses/tiers/" not in page
    assert client.get("/licenses/?tier=Core").status_code == 403
    assert client.get("/licenses/?organization=x").status_code == 403
    assert client.post("/licenses/tier", {"tier": "Core"}).status_code == 403


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("address", ["/", "/executions/", "/licenses/", "/admin/"])
@pytest.mark.parametrize(
    ("days", "name", "value"),
    [(31, "", ""), (12, "license-ends-soon", "12"), (0.5, "license-ends-today", "Enterprise"),
     (-3, "license-grace", "Core"), (-15, "license-ended", "Core")],
)  # fmt: skip
def test_every_page_tells_when_the_licence_ends(
    admin_client: Client,
    organization: Organization,
    address: str,
    days: float,
    name: str,
    value: str,
) -> None:
    ends(organization, days)
    noted = notes(admin_client.get(address))
    assert [one for one in noted if one.startswith("license-")] == [name] * bool(name)
    assert not name or value in noted[name][0]


def test_after_the_end_the_notice_names_what_is_disabled(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 5)
    ends(organization, -15)
    apply_expiry()
    [said] = notes(admin_client.get("/"))["license-ended"]
    assert join_names(["t0", "t1", "t2", "t3", "t4"], 3) in said


def test_before_the_end_only_managers_see_the_notice_and_afterwards_all_users(
    client_of: Grant, organization: Organization
) -> None:
    client = client_of()
    ends(organization, 5)
    assert "license-ends-soon" not in notes(client.get("/"))
    ends(organization, -5)
    assert "license-grace" in notes(client.get("/"))


def test_a_tool_that_the_licence_disabled_says_why(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 1)
    move(organization, "Core")
    [reason] = notes(admin_client.get("/tools/t0/"))["status-reason"]
    assert reason.startswith(f"{DISABLED}Core ")


def test_the_administration_leads_to_the_preview_of_another_tier(
    admin_client: Client, organization: Organization
) -> None:
    tools(organization, 2)
    core = LicenseTier.objects.get(name="Core")
    data = {"name": organization.name, "tier": core.pk, "minimum_isolation": "Standard"}
    place = f"/admin/tools/organization/{organization.pk}/change/"
    [said] = admin_client.post(place, data).context["adminform"].form.errors["tier"]
    [address] = re.findall('href="([^"]+)"', said)
    page = text(admin_client.get(unescape(address)))
    assert re.search(r"t1\b.*t0\b", page, re.S)
    organization.refresh_from_db()
    assert organization.tier != core


def test_the_administration_changes_the_levels_of_a_tier(
    admin_client: Client, organization: Organization
) -> None:
    core = LicenseTier.objects.create(name="Spare", rank=77, builtin_tools=[])
    data = {
        "name": "Spare", "rank": 77, "builtin_tools": "read_file", "max_custom_tools": 0,
        "isolation_levels": ["Standard", "Strict"],
    }  # fmt: skip
    admin_client.post(f"/admin/tools/licensetier/{core.pk}/change/", data)
    core.refresh_from_db()
    assert core.isolation_levels == ["Standard", "Strict"]
    admin_client.post(f"/admin/tools/licensetier/{core.pk}/change/", data | {"every_level": "on"})
    core.refresh_from_db()
    assert core.isolation_levels is None
