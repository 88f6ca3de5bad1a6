"""Tools are grouped into kinds by the fields that gates read, so that one answer applies to a whole
kind."""

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests import bulk, factories
from tools.catalog.actions import set_enabled
from tools.catalog.registry import registry
from tools.catalog.sandbox import profiles
from tools.catalog.snapshot import Snapshot
from tools.insight.changes import Tier, ToolGroups
from tools.insight.tool_reach import is_available_to_any, is_licensed
from tools.licensing.license_coverage import includes
from tools.licensing.licenses import preview
from tools.licensing.tiers import change_tier, set_tier
from tools.licensing.tool_kinds import (
    kinds_after,
    kinds_among,
    kinds_in,
    kinds_of,
    names_of,
    passing,
)
from tools.models import LicenseTier, Organization, Tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(organization: Organization) -> Organization:
    """An organization with tools of many kinds, some of which some tiers refuse."""
    by = factories.actor(organization)
    made = bulk.tools(organization, 6, groups=3)
    profiles.create_profile(organization=organization, profile={"name": "mine"}, by=by)
    factories.tool(organization, "profiled", constraints={"sandbox_profile": "mine"})
    factories.tool(organization, "strict", constraints={"required_isolation": "Strict"})
    set_enabled(tool=made[0], enabled=False, by=by)
    organization.refresh_from_db()
    return organization


def snapshot_of(organization: Organization) -> Snapshot:
    organization.refresh_from_db()
    return registry.snapshot(organization.pk, organization.revision)


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize("most", [0, 3, 6, None])
@pytest.mark.parametrize("asks", [includes, is_licensed, is_available_to_any])
def test_one_of_a_kind_answers_what_each_would(place: Organization, asks, most) -> None:
    known = snapshot_of(place)
    tier = LicenseTier(name="Small", max_custom_tools=most, isolation_levels=["Standard"])
    under = known.changed(tier=tier)
    each = {name for name, tool in under.tools.items() if asks(tool, under)}
    assert names_of(passing(kinds_in(known), under, asks)) == each
    assert names_of(passing(kinds_of(under.tools.values(), under), under, asks)) == each


def test_every_tool_is_of_one_kind_and_builtin_ones_of_their_own(place: Organization) -> None:
    known = snapshot_of(place)
    kinds = kinds_in(known)
    assert sorted(tool.name for kind in kinds for tool in kind) == sorted(known.tools)
    assert all(kind[0].custom for kind in kinds if len(kind) > 1)
    assert kinds_in(known) is kinds


def test_kinds_of_some_are_those_of_all_without_the_others(place: Organization) -> None:
    known = snapshot_of(place)
    for names in (["strict", "nowhere"], [*known.tools][1:]):
        there = {name for name in names if name in known.tools}
        assert names_of(kinds_among(names, known)) == there


def test_a_tool_that_a_change_makes_another_one_is_sorted_again(place: Organization) -> None:
    known = snapshot_of(place)
    after = ToolGroups("strict", ("elsewhere",)).catalog(known)
    assert {*map(frozenset, map(names, kinds_after(known, after)))} == {
        *map(frozenset, map(names, kinds_of(after.tools.values(), after)))
    }
    assert kinds_after(known, Tier("Core").catalog(known)) is kinds_in(known)


def names(kind) -> list[str]:
    return [tool.name for tool in kind]


def test_a_preview_reads_no_definition_and_asks_as_much_for_many_tools(
    place: Organization, django_assert_num_queries
) -> None:
    core = LicenseTier.objects.get(name="Core")
    snapshot_of(place)
    with CaptureQueriesContext(connection) as asked:
        preview(place, core)
    assert not any("tools_toolversion" in query["sql"] for query in asked)
    for number in range(9):
        factories.tool(place, f"more-{number}")
    snapshot_of(place)
    with django_assert_num_queries(len(asked)):
        assert len(preview(place, core).disabled) == 16  # of 17, one of which is disabled


def test_a_preview_says_what_the_rows_say_and_the_catalog_does_not_yet(
    place: Organization,
) -> None:
    snapshot_of(place)
    Tool.objects.filter(name="strict", organization=place).update(status="quarantined")
    core = LicenseTier.objects.get(name="Core")
    said = preview(place, core)
    assert "strict" not in said.disabled and "profiled" in said.disabled
    assert said == set_tier(organization=place, tier=core, by=factories.actor(place))


def test_a_tier_that_was_not_changed_after_all_leaves_the_catalog_as_it_was(
    place: Organization,
) -> None:
    before = snapshot_of(place)
    with transaction.atomic():
        core = LicenseTier.objects.get(name="Core")
        assert set_tier(organization=place, tier=core, by=factories.actor(place)).disabled
        change_tier(tier=core, by=factories.actor(place), max_custom_tools=2)
        transaction.set_rollback(True)
    place.refresh_from_db()
    assert registry.snapshot(place.pk, place.revision) is before
    assert before.tools["strict"].enabled
