"""Tiers and licenses over REST, for superusers."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories, licenses
from tests.tools.shapes import check_error
from tools.licensing import licenses as ours
from tools.models import LicenseTier, Organization, Tool


def tools(organization, count):
    for number in range(count):
        factories.tool(organization, f"t{number}")


def address(organization):
    return f"/organizations/{organization.slug}"


def ends(organization, days):
    end = timezone.now() + timedelta(days=days)
    Organization.objects.filter(pk=organization.pk).update(license_expires_at=end)


@pytest.fixture
def licensed(organization, settings):
    """The organization with an installed license for Teams."""
    settings.LICENSE_KEYS = [licenses.PUBLIC]
    ours.install_license(
        organization=organization,
        file=licenses.license_file(organization.slug),
        by=factories.by(organization),
    )
    return organization


def test_the_answer_to_a_downgrade_says_which_tools_were_disabled(admin_api, organization):
    tools(organization, 12)
    answer = admin_api.patch(address(organization), {"tier": "WriterPro"})
    assert answer.status_code == 200
    assert answer.json()["tier_change"] == {
        "tier_before": "Enterprise",
        "tier": "WriterPro",
        "disabled": ["t11", "t10"],
        "enabled": [],
        "gated": factories.BUILTINS_BEYOND_CORE,
        "opened": [],
        "profiles": [],
    }
    shown = admin_api.get("/tools/t11").json()
    assert (shown["enabled"], shown["status_reason"]) == (
        False,
        "Disabled by the licence: WriterPro allows 10 custom tools",
    )


def test_what_is_shown_of_a_tool_may_be_sent_back(admin_api, organization):
    tools(organization, 1)
    admin_api.patch(address(organization), {"tier": "Core"})
    shown = admin_api.get("/tools/t0").json()
    again = admin_api.put("/tools/t0", shown)
    assert (again.status_code, again.json()["status_reason"]) == (200, shown["status_reason"])


def test_without_a_tier_nothing_is_said_about_one(admin_api, organization):
    assert "tier_change" not in admin_api.patch(address(organization), {"name": "New"}).json()


def test_a_preview_is_what_the_change_then_does(admin_api, organization):
    tools(organization, 3)
    said = admin_api.post(f"{address(organization)}/tier/preview", {"tier": "Core"})
    assert (said.status_code, said.json()["disabled"]) == (200, ["t2", "t1", "t0"])
    assert Tool.objects.filter(organization=organization, status="disabled").count() == 0
    done = admin_api.patch(address(organization), {"tier": "Core"})
    assert done.json()["tier_change"] == said.json()


NONSENSE = [
    ({"tier": "Gold"}, 404), ({}, 400), ({"tier": None}, 400), ({"tier": 1}, 400),
    ({"tier": "Core", "x": 1}, 400), ({"tier": "a\x00"}, 400),
]  # fmt: skip


def test_a_preview_of_nonsense_is_refused(admin_api, organization, subtests):
    for body, status in NONSENSE:
        with subtests.test(body=body, status=status):
            check_error(admin_api.post(f"{address(organization)}/tier/preview", body), status)


def test_a_preview_of_an_unknown_organization_is_404(admin_api):
    check_error(admin_api.post("/organizations/ghost/tier/preview", {"tier": "Core"}), 404)


def test_a_preview_is_for_superusers(organization, api):
    user = factories.person(organization)
    factories.permit(user, "change_organization")
    person = factories.token(user, scopes=["read", "execute", "manage"])
    for caller in (api, type(api)(person)):
        answer = caller.post(f"{address(organization)}/tier/preview", {"tier": "Core"})
        check_error(answer, 403)


def test_an_organization_shows_how_its_licence_stands(admin_api, organization):
    assert admin_api.get(address(organization)).json()["license"] == {
        "id": None,
        "expires_at": None,
        "grace_ends_at": None,
        "state": "none",
        "effective_tier": "Enterprise",
    }


@pytest.mark.parametrize(
    ("days", "state", "tier"),
    [(40, "valid", "Teams"), (5, "expiring", "Teams"), (-5, "grace", "Teams"),
     (-15, "expired", "Core")],
)  # fmt: skip
def test_a_licence_stands_by_the_clock(admin_api, licensed, days, state, tier):
    ends(licensed, days)
    shown = admin_api.get(address(licensed)).json()
    assert (shown["tier"], shown["license"]["id"]) == ("Teams", "L-1")
    assert (shown["license"]["state"], shown["license"]["effective_tier"]) == (state, tier)
    assert shown["license"]["grace_ends_at"] > shown["license"]["expires_at"]


def test_a_tier_set_by_a_licence_is_not_set_by_hand(admin_api, licensed):
    check_error(admin_api.patch(address(licensed), {"tier": "Core"}), 409, "tier_is_licensed")
    assert admin_api.patch(address(licensed), {"tier": "Teams"}).status_code == 200


def test_a_change_of_a_tier_says_what_follows_for_whom(admin_api, organization):
    other = factories.organization("tier-followed", "WriterPro")
    tools(other, 2)
    answer = admin_api.patch(
        "/tiers/WriterPro", {"max_custom_tools": 1, "isolation_levels": ["Standard"]}
    ).json()
    assert answer["isolation_levels"] == ["Standard"]
    assert answer["organizations"]["tier-followed"]["disabled"] == ["t1"]


@pytest.mark.parametrize("levels", [["Weak"], "Standard", [1], [None]])
def test_levels_that_are_none_are_refused(admin_api, levels):
    check_error(admin_api.patch("/tiers/Core", {"isolation_levels": levels}), 400)
    assert LicenseTier.objects.get(name="Core").isolation_levels == ["None", "Standard"]


def test_a_call_in_the_days_of_grace_carries_one_warning(organization, agent):
    factories.tool(organization)
    ends(organization, -3)
    (warning,) = factories.execution(agent).warnings
    assert warning.startswith("The organization's licence ended on") and len(warning) < 200
