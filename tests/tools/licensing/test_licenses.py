"""Tier changes and signed licenses: which tools they disable and enable again."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories, licenses
from tests.tools.policy.test_licensing import ends, move, status, tier, tools
from tests.tools.snapshots import current_catalog
from tools.catalog import actions
from tools.catalog.sandbox import profiles
from tools.catalog.tiers import state_now, tier_now
from tools.errors import Conflict, Malformed, NotFound, ToolcribError
from tools.licensing import licenses as ours
from tools.licensing import tiers
from tools.models import LicenseTier, Organization, Tool
from tools.worker.tasks import apply_license_expiry


@pytest.fixture(autouse=True)
def _trusted(settings):
    settings.LICENSE_KEYS = [licenses.PUBLIC]


def custom(organization, status):
    rows = Tool.objects.custom().filter(organization=organization, status=status)
    return sorted(rows.values_list("name", flat=True), key=lambda name: int(name[1:]))


def names(*numbers):
    return tuple(f"t{number}" for number in numbers)


def records(organization, code):
    return [*AuditRecord.objects.filter(organization=organization.slug, code=code)]


def install(organization, tier="Teams", slug="", **fields):
    raw = licenses.license_file(slug or organization.slug, tier, **fields)
    return ours.install_license(
        organization=organization, file=raw, by=factories.actor(organization)
    )


def refused(organization, tier="Teams", **fields):
    before = Organization.objects.values().get(pk=organization.pk)
    with pytest.raises(ToolcribError) as caught:
        install(organization, tier, **fields)
    assert Organization.objects.values().get(pk=organization.pk) == before
    return caught.value.code


# --- downgrades and upgrades ----------------------------------------------------------------------


def test_a_downgrade_disables_the_excess_newest_first_and_says_which(organization):
    tools(organization, 13)
    change = move(organization, "WriterPro")
    assert change.disabled == names(12, 11, 10)
    assert custom(organization, "active") == [*names(*range(10))]
    reason = Tool.objects.get(organization=organization, name="t12").status_reason
    assert reason == "Disabled by the licence: WriterPro allows 10 custom tools"
    assert current_catalog(organization).tools["t12"].status_reason == reason


def test_evidence_names_what_a_downgrade_disabled(organization):
    tools(organization, 12)
    move(organization, "WriterPro")
    (record,) = records(organization, "ADMIN.TIER_CHANGE")
    assert record.details["disabled"] == [*names(11, 10)]
    assert (record.details["tier_before"], record.details["tier"]) == ("Enterprise", "WriterPro")
    disabled = records(organization, "REG.TOOL_DISABLE")
    assert {(one.subject, one.reason) for one in disabled} == {
        ("t10", "license"), ("t11", "license")
    }  # fmt: skip


def test_an_upgrade_brings_back_what_the_licence_disabled_oldest_first(organization):
    tools(organization, 13)
    move(organization, "Core")
    change = move(organization, "WriterPro")
    assert change.enabled == names(*range(10))
    assert custom(organization, "disabled") == [*names(10, 11, 12)]
    assert move(organization, "Teams").enabled == names(10, 11, 12)
    assert not Tool.objects.filter(organization=organization).exclude(status_reason="").exists()
    assert len(records(organization, "REG.TOOL_ENABLE")) == 13


def test_what_a_person_switched_off_stays_off(organization):
    made = tools(organization, 2)
    actions.set_enabled(tool=made[1], enabled=False, by=factories.actor(organization))
    assert move(organization, "Core").disabled == names(0)
    assert move(organization, "Enterprise").enabled == names(0)
    assert status(organization, "t1") == "disabled"


@pytest.mark.parametrize("held", ["pending", "quarantined"])
def test_what_must_be_approved_must_be_approved_after_an_upgrade_too(organization, held):
    tools(organization, 1)
    Tool.objects.filter(organization=organization, name="t0").update(
        status=held, status_reason="The upstream changed"
    )
    assert move(organization, "Core").disabled == ()
    marked = Tool.objects.get(organization=organization, name="t0")
    assert (marked.status, marked.status_reason) == (
        held,
        "Left out by the licence: Core allows no custom tools | The upstream changed",
    )
    assert move(organization, "Enterprise").enabled == ()
    kept = Tool.objects.get(organization=organization, name="t0")
    assert (kept.status, kept.status_reason) == (held, "The upstream changed")


def test_a_preview_says_what_would_happen_and_saves_nothing(organization):
    tools(organization, 12)
    before = [*Tool.objects.filter(organization=organization).order_by("name").values()]
    organization.refresh_from_db()
    revision = organization.revision
    said = ours.preview(organization, tier("Core"))
    assert [*Tool.objects.filter(organization=organization).order_by("name").values()] == before
    assert Organization.objects.get(pk=organization.pk).revision == revision
    assert said == move(organization, "Core")


def test_a_change_names_tools_that_are_refused_and_profiles_that_stop_working(organization):
    by = factories.actor(organization)
    profiles.create_profile(organization=organization, profile={"name": "mine"}, by=by)
    factories.tool(organization, "t0", constraints={"sandbox_profile": "mine"})
    factories.tool(organization, "t1", constraints={"required_isolation": "Strict"})
    change = move(organization, "WriterPro")
    assert (change.disabled, change.profiles) == ((), ("mine",))
    gated = tuple(sorted([*factories.BUILTINS_BEYOND_CORE, "t0", "t1"]))
    assert change.gated == gated
    assert move(organization, "Enterprise").opened == gated


def test_a_tier_that_is_lowered_lowers_every_organization_that_has_it(db):
    place = factories.organization("tier-lowered", "WriterPro")
    tools(place, 10)
    follows = tiers.change_tier(
        tier=tier("WriterPro"), by=factories.actor(place), max_custom_tools=8
    )
    assert follows["tier-lowered"].disabled == names(9, 8)
    (record,) = records(place, "ADMIN.TIER_CHANGE")
    assert record.details["organizations"]["tier-lowered"]["disabled"] == [*names(9, 8)]
    follows = tiers.change_tier(
        tier=tier("WriterPro"), by=factories.actor(place), max_custom_tools=None
    )
    assert follows["tier-lowered"].enabled == names(8, 9)


def test_a_change_of_the_lowest_tier_reaches_those_whose_licence_has_ended(organization):
    tools(organization, 3)
    ends(organization, days=-20)
    apply_license_expiry()
    tiers.change_tier(tier=tier("Core"), by=factories.actor(organization), max_custom_tools=2)
    assert custom(organization, "active") == [*names(0, 1)]
    assert tier_now(current_catalog(organization)).max_custom_tools == 2


def test_a_new_lowest_tier_is_what_is_left_of_a_licence_that_has_ended(organization):
    ends(organization, days=-20)
    before = current_catalog(organization)
    name = f"least-{uuid4().hex[:8]}"
    tiers.create_tier(by=factories.actor(organization), name=name, rank=0, max_custom_tools=0)
    assert tier_now(before).name == "Core"
    assert tier_now(current_catalog(organization)).name == name


def test_tools_of_another_organization_are_left_alone(organization):
    other = factories.organization("left-alone", "Enterprise")
    tools(other, 3)
    tools(organization, 3)
    move(organization, "Core")
    assert len(custom(other, "active")) == 3


# --- installing -----------------------------------------------------------------------------------


def test_an_installed_licence_sets_the_tier_and_says_what_follows(organization):
    tools(organization, 12)
    change = install(organization, "WriterPro", expires_at=licenses.moment(100))
    row = Organization.objects.select_related("tier").get(pk=organization.pk)
    assert (row.tier.name, row.license_id, row.license_grace_days) == ("WriterPro", "L-1", 14)
    assert row.license_document["license"]["organization"] == organization.slug
    assert change.disabled == names(11, 10)
    (record,) = records(organization, "LICENSE.INSTALL")
    assert (record.subject, record.details["disabled"]) == ("L-1", [*names(11, 10)])
    assert "signature" not in str(record.details)


def test_a_tier_that_a_licence_has_set_is_not_set_by_hand(organization):
    install(organization)
    with pytest.raises(Conflict) as caught:
        move(organization, "Enterprise")
    assert caught.value.code == "tier_is_licensed"
    assert move(organization, "Teams").disabled == ()


def test_after_a_licence_was_removed_the_lowest_tier_counts_until_one_is_set(organization):
    tools(organization, 1)
    install(organization)
    removed = ours.remove_license(organization=organization, by=factories.actor(organization))
    assert (removed.tier, removed.disabled) == ("Core", names(0))
    assert move(organization, "Enterprise").enabled == names(0)
    assert [record.subject for record in records(organization, "LICENSE.REMOVE")] == ["L-1"]
    with pytest.raises(NotFound):
        ours.remove_license(organization=organization, by=factories.actor(organization))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"slug": "another"}, "license_of_another_organization"),
        ({"tier": "Gold"}, "tier_not_found"),
        ({"issued_at": licenses.moment(3)}, "license_not_yet_issued"),
        ({"issued_at": licenses.moment(-60), "expires_at": licenses.moment(-15)},
         "license_expired"),
    ],
)  # fmt: skip
def test_a_licence_that_is_not_for_here_and_now_is_refused(organization, fields, code):
    assert refused(organization, **fields) == code


def test_a_licence_in_its_days_of_grace_is_installed(organization):
    install(organization, issued_at=licenses.moment(-60), expires_at=licenses.moment(-3))
    assert state_now(current_catalog(organization)) == "grace"


def test_an_older_licence_does_not_come_back_not_even_after_a_removal(organization):
    newer, older = licenses.moment(-2), licenses.moment(-3)
    install(organization, issued_at=newer)
    assert refused(organization, "Enterprise", issued_at=older) == "license_older"
    ours.remove_license(organization=organization, by=factories.actor(organization))
    assert refused(organization, "Enterprise", issued_at=older) == "license_older"
    install(organization, "Enterprise", issued_at=newer)


def test_without_a_trusted_key_nothing_is_installed(organization, settings):
    settings.LICENSE_KEYS = []
    assert refused(organization) == "license_keys_missing"


def test_a_file_that_is_none_is_refused(organization):
    with pytest.raises(Malformed):
        ours.install_license(
            organization=organization, file=b"{}", by=factories.actor(organization)
        )


def test_a_new_licence_brings_tools_back_after_the_old_one_ended(organization):
    tools(organization, 2)
    install(organization)
    ends(organization, days=-20)
    apply_license_expiry()
    assert custom(organization, "active") == []
    assert install(organization).enabled == names(0, 1)


# --- the clock ------------------------------------------------------------------------------------


def test_what_a_licence_that_ended_leaves_is_put_right_once(organization):
    tools(organization, 2)
    ends(organization, days=-20)
    apply_license_expiry()
    assert custom(organization, "disabled") == [*names(0, 1)]
    revision = Organization.objects.get(pk=organization.pk).revision
    apply_license_expiry()
    assert Organization.objects.get(pk=organization.pk).revision == revision
    (record,) = records(organization, "LICENSE.EXPIRE")
    assert (record.details["tier_before"], record.details["tier"]) == ("Enterprise", "Core")
    assert record.details["disabled"] == [*names(1, 0)]


@pytest.mark.parametrize("days", [40, 3, -3])
def test_nothing_is_disabled_before_the_days_of_grace_are_over(organization, days):
    tools(organization, 2)
    ends(organization, days=days)
    assert organization.slug not in ours.apply_expiry()
    assert len(custom(organization, "active")) == 2
    assert records(organization, "LICENSE.EXPIRE") == []


def test_a_tool_switched_on_past_the_actions_is_put_out_again_at_the_next_hour(organization):
    ends(organization, days=-20)
    apply_license_expiry()
    revision = Organization.objects.next_revision(organization.pk)
    made = _unseated(organization, revision)
    assert ours.apply_expiry() == [organization.slug]
    assert status(organization, made.name) == "disabled"


def _unseated(organization, revision):
    """A custom tool beyond the limit, which no action would create."""
    Organization.objects.filter(pk=organization.pk).update(license_expires_at=None)
    made = factories.tool(organization, "t0")
    ends(organization, days=-20)
    Organization.objects.filter(pk=organization.pk).update(
        license_expires_at=timezone.now() - timedelta(days=21)
    )
    return made


def test_every_tier_of_a_new_installation_is_there(db):
    assert LicenseTier.objects.count() == 4
