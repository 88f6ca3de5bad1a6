"""Impact preview of a tier with many organizations: each gets the result of its own preview, and
the number of statements hardly grows."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.tools.database import overwrite
from tests.tools.policy.test_licensing import ends, tools
from tools.accounts import account_actions
from tools.accounts.user_permissions import increment_revisions
from tools.catalog import actions
from tools.catalog.sandbox import profiles
from tools.insight.impact_previews import apply_terms, outlook_of_terms, with_terms
from tools.licensing import licenses, tiers
from tools.licensing.tier_terms import terms_of
from tools.models import LicenseTier, Organization, Tool

CHANGES: list[dict[str, Any]] = [
    {"max_custom_tools": 2, "custom_sandbox_profiles": False},
    {"max_custom_tools": 0},
    {"max_custom_tools": 4, "isolation_levels": ["None", "Standard"]},
    {"isolation_levels": ["Restricted"]},
    {"isolation_levels": None, "builtin_tools": ["read_file"]},
    {"builtin_tools": None, "max_custom_tools": None, "custom_sandbox_profiles": True},
    {"custom_sandbox_profiles": False},
    {"rank": 29_999},
]


@pytest.fixture
def tier(db: None) -> LicenseTier:
    name = f"tier-{uuid4().hex[:12]}"
    return LicenseTier.objects.create(name=name, rank=30_000, custom_sandbox_profiles=True)


def copies(tier: LicenseTier, count: int) -> list[Organization]:
    return [factories.organization(f"many-{uuid4().hex[:12]}", tier.name) for _ in range(count)]


def fill(place: Organization) -> None:
    """Create tools of many kinds, in many states."""
    by = factories.actor(place)
    profiles.create_profile(organization=place, profile={"name": "mine"}, by=by)
    made = tools(place, 4)
    factories.tool(place, "profiled", constraints={"sandbox_profile": "mine"})
    factories.tool(place, "strict", constraints={"required_isolation": "Strict"})
    actions.set_enabled(tool=made[1], enabled=False, by=by)
    Tool.objects.filter(pk=made[2].pk).update(status="quarantined", status_reason="Upstream")


@pytest.mark.part("matrices")
def test_the_impact_on_each_of_many_organizations_equals_the_impact_on_it_alone(
    tier: LicenseTier,
) -> None:
    every = plain, full, strict, ended = copies(tier, 4)
    for place in (full, strict, ended):
        fill(place)
    account_actions.set_isolation(organization=strict, minimum="Strict", by=factories.actor(strict))
    ends(ended, days=-20)
    licenses.apply_expiry()
    expected_counts = dict.fromkeys((place.slug for place in every), 0)
    for changes in CHANGES:
        wanted = with_terms(tier, terms_of(tier) | changes)
        for place in every:
            place.refresh_from_db()
        alone = {place.slug: licenses.preview(place, wanted) for place in (plain, full, strict)}
        expected = {slug: change for slug, change in alone.items() if change.any}
        before = [place.revision for place in every]
        by = factories.actor(ended)
        assert tiers.change_tier(tier=tier, by=by, **changes) == expected, changes
        for place, revision in zip(every, before, strict=True):
            place.refresh_from_db()
            assert place.revision == revision + 1, changes
            expected_counts[place.slug] += place == ended or place.slug in expected
            written = AuditRecord.objects.filter(organization=place.slug, subject=tier.name)
            assert written.count() == expected_counts[place.slug], changes
            if place.slug in expected:
                named = expected[place.slug].audit_details()
                assert named.items() <= written.latest("id").details.items()
    assert all(expected_counts.values())


def test_a_definition_that_is_none_any_more_keeps_no_tier_from_being_changed(
    tier: LicenseTier,
) -> None:
    (place,) = copies(tier, 1)
    fill(place)
    for tool in Tool.objects.filter(organization=place).select_related("version"):
        overwrite(tool.version, [1])
    by = factories.actor(place)
    terms = {"max_custom_tools": 1, "custom_sandbox_profiles": False}
    (change,) = tiers.change_tier(tier=tier, by=by, **terms).values()
    assert set(change.disabled) == {"strict", "profiled", "t3"}


@pytest.mark.part("matrices")
def test_a_change_of_a_tier_asks_as_much_for_30_organizations_as_for_3(
    tier: LicenseTier, organization: Organization
) -> None:
    by = factories.actor(organization)

    def change(**changes: Any) -> Callable[[], Any]:
        return lambda: tiers.change_tier(tier=tier, by=by, **changes)

    def apply() -> None:
        mark = outlook_of_terms(tier, wanted).mark
        apply_terms(tier=tier, terms=wanted, mark=mark, by=by)

    def make() -> None:
        name, rank = f"tier-{uuid4().hex[:12]}", 29_999 - uuid4().int % 9_999
        tiers.create_tier(by=by, name=name, rank=rank)

    LicenseTier.objects.filter(pk=tier.pk).update(custom_sandbox_profiles=False)
    tier.refresh_from_db()
    wanted = terms_of(tier) | {"max_custom_tools": 9}
    deeds = {
        "nothing follows": change(max_custom_tools=7, isolation_levels=["Standard"]),
        "a record for each": change(builtin_tools=["read_file"]),
        "another record for each": change(builtin_tools=None, isolation_levels=None),
        "preview": lambda: outlook_of_terms(tier, wanted),
        "preview, then change": apply,
        "new tier": make,
    }

    def statements() -> dict[str, int]:
        found = {}
        for name, do in deeds.items():
            tier.refresh_from_db()
            with CaptureQueriesContext(connection) as asked:
                do()
            found[name] = len(asked)
        return found

    def more(count: int) -> None:
        copies(tier, count)
        soon = timezone.now() + timedelta(days=40)
        Organization.objects.filter(tier=tier).update(license_expires_at=soon)

    more(3)
    few = statements()
    more(27)
    evidence = {name: few[name] + 27 for name in few if name.endswith("record for each")}
    assert statements() == few | evidence


def test_a_grant_asks_as_much_where_many_organizations_are_open_as_where_few_are(
    tier: LicenseTier, organization: Organization, django_assert_num_queries: Any
) -> None:
    person = factories.person(organization)
    accounts = type(person).objects.filter(pk=person.pk)
    places = copies(tier, 5)
    for few in ([], places):
        before = {place.pk: place.revision for place in places}
        with django_assert_num_queries(3):
            increment_revisions(accounts, *few)
        for place in places:
            place.refresh_from_db()
            assert place.revision == before[place.pk] + (place in few)
