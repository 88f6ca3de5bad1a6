"""A superuser's changes to another organization are recorded in that organization's audit log."""

from uuid import uuid4

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.admin.test_admin import place
from tools.models import LicenseTier, Organization


@pytest.fixture
def other(organization):
    return factories.organization(f"org-{uuid4().hex[:12]}", "Teams")


def codes(place, actor):
    found = AuditRecord.objects.filter(organization=place, actor=actor.username)
    return [*found.order_by("occurred_at").values_list("code", flat=True)]


def test_another_tier_is_on_record_with_what_follows_where_it_was_set(
    admin_api, admin_user, organization, other
):
    for number in range(12):
        factories.tool(other, f"tool{number}")
    changed = admin_api.patch(f"/organizations/{other.slug}", {"tier": "Core", "name": "New"})
    disabled = len(changed.json()["tier_change"]["disabled"])
    assert disabled > 0
    assert codes(other.slug, admin_user) == [
        *["REG.TOOL_DISABLE"] * disabled, "ADMIN.TIER_CHANGE", "ADMIN.ORGANIZATION_CHANGE",
    ]  # fmt: skip
    assert codes(organization.slug, admin_user) == []


def test_a_changed_tier_is_on_record_wherever_something_follows(
    admin_api, admin_user, organization, other
):
    factories.tool(other, "shiny")
    admin_api.patch("/tiers/Teams", {"max_custom_tools": 0})
    assert codes(other.slug, admin_user) == ["REG.TOOL_DISABLE", "ADMIN.TIER_CHANGE"]
    assert codes(organization.slug, admin_user) == ["ADMIN.TIER_CHANGE"]


@pytest.mark.parametrize("door", ["api", "admin"])
def test_a_new_organizations_evidence_begins_with_its_making(
    admin_api, admin_client, admin_user, organization, door
):
    slug, tier = f"org-{uuid4().hex[:12]}", LicenseTier.objects.get(name="Core")
    if door == "api":
        admin_api.post("/organizations", {"slug": slug, "name": "New", "tier": "Core"})
    else:
        data = {"slug": slug, "name": "New", "tier": tier.pk}
        admin_client.post(place(Organization, "add"), data)
    made = codes(slug, admin_user)
    assert made[0] == "ADMIN.ORGANIZATION_CREATE"
    assert "REG.TOOL_CREATE" in made
    assert codes(organization.slug, admin_user) == []


def test_it_says_for_how_long_outputs_are_kept(admin_api, organization):
    place = f"/organizations/{organization.slug}"
    assert admin_api.get(place).json()["output_days"] is None
    assert admin_api.patch(place, {"output_days": 30}).json()["output_days"] == 30
    assert admin_api.patch(place, {"output_days": None}).json()["output_days"] is None
    for odd in (0, -1, 36_501, "7", 1.5, True, []):
        assert admin_api.patch(place, {"output_days": odd}).status_code == 400, odd
