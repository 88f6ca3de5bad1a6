"""The catalog's cache in each process: no query is repeated, and no change is missed."""

import gc
import threading
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests import factories
from tests.factories import definition
from tools.catalog import actions
from tools.catalog.registry import registry
from tools.catalog.signatures.keys import current_key
from tools.catalog.signatures.versions import statement_of
from tools.errors import Forbidden
from tools.licensing import tiers
from tools.models import LicenseTier, Organization, Tool, ToolVersion


def many_tools(organization, count):
    """Copies of one tool, each with its own signature: only their number matters here."""
    tool = factories.tool(organization, "original")
    version, key = tool.version, current_key(organization, factories.actor(organization))
    tools = [
        Tool(organization=organization, name=f"copy-{n}", type=tool.type, revision=tool.revision)
        for n in range(1, count)
    ]
    Tool.objects.bulk_create(tools)
    for each in tools:
        each.version = ToolVersion(
            tool=each, number=1, label=version.label, definition=version.definition,
            digest=version.digest, key_id=key.key_id, origin=version.origin, created_by="tests",
        )  # fmt: skip
        each.version.signature = key.sign(
            statement_of(
                organization=organization.slug,
                tool=each.pk,
                name=each.name,
                number=1,
                label=version.label,
                version_digest=version.digest,
                origin=version.origin,
            )
        )
    ToolVersion.objects.bulk_create([each.version for each in tools])
    Tool.objects.bulk_update(tools, ["version"])


def revision(organization):
    return Organization.objects.get(pk=organization.pk).revision


def queries():
    return CaptureQueriesContext(connection)


@pytest.mark.parametrize(
    "count", [10, 1_000, pytest.param(10_000, marks=pytest.mark.part("generated"))]
)
def test_a_warm_request_asks_the_database_only_for_its_caller(api, organization, count):
    many_tools(organization, count)
    api.get("/tools/original")
    with queries() as asked:
        assert api.get("/tools/original").status_code == 200
    assert len(asked) == 1, [query["sql"][:200] for query in asked]
    assert "tools_token" in asked[0]["sql"]


@pytest.mark.part("matrices", but_each=2)
@pytest.mark.parametrize("count", [10, 1_000])
def test_a_warm_list_asks_the_database_only_for_its_caller(api, organization, count):
    many_tools(organization, count)
    api.get("/tools")
    with queries() as asked:
        assert len(api.get("/tools").json()["results"]) == min(50, count)
    read = [query["sql"] for query in asked if query["sql"].lstrip().startswith("SELECT")]
    assert len(read) == 1 and "tools_token" in read[0]


def test_only_what_changed_is_read_again(organization):
    many_tools(organization, 200)
    before = registry.snapshot(organization.pk, revision(organization))
    tool = Tool.objects.get(organization=organization, name="original")
    changed = definition("original", description="changed")
    actions.update_tool(tool=tool, definition=changed, by=factories.actor(organization))
    after = registry.snapshot(organization.pk, revision(organization))
    assert after.tools["copy-7"] is before.tools["copy-7"]
    assert after.tools["original"].definition.raw["description"] == "changed"
    assert before.tools["original"].definition.raw["description"] != "changed"


def test_a_snapshot_is_kept_until_the_revision_moves(organization):
    known = registry.snapshot(organization.pk, revision(organization))
    with queries() as asked:
        assert registry.snapshot(organization.pk, known.revision) is known
    assert not asked.captured_queries


def test_a_large_catalog_is_not_looked_through_for_garbage(organization, monkeypatch):
    many_tools(organization, 3)
    monkeypatch.setattr("tools.catalog.registry._MANY", 3)
    try:
        registry.snapshot(organization.pk, revision(organization))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_catalog_as_it_stands_is_kept_nowhere(organization):
    many_tools(organization, 1)
    before = registry.snapshot(organization.pk, revision(organization))
    with transaction.atomic():
        factories.tool(organization, "later")
        assert "later" in registry.as_it_stands(organization.pk).tools
        transaction.set_rollback(True)
    assert registry.snapshot(organization.pk, revision(organization)) is before


def test_two_organizations_share_nothing(organization):
    other = factories.organization("registry-other")
    factories.tool(organization, "ours")
    ours = registry.snapshot(organization.pk, revision(organization))
    theirs = registry.snapshot(other.pk, revision(other))
    assert "ours" in ours.tools and "ours" not in theirs.tools


def test_a_change_of_a_tier_is_seen_with_the_next_revision(db):
    place = factories.organization("tier-change", "Core")
    before = registry.snapshot(place.pk, revision(place)).tier
    teams = LicenseTier.objects.get(name="Teams")
    tiers.set_tier(organization=place, tier=teams, by=factories.actor(place))
    after = registry.snapshot(place.pk, revision(place)).tier
    assert (before.name, after.name) == ("Core", "Teams")


def test_64_registrations_at_once_fill_ten_places_exactly(committed):
    place = factories.organization(f"race-{uuid4().hex[:8]}", "WriterPro")
    outcomes: list[str] = []
    start = threading.Barrier(16)

    def register(worker):
        start.wait()
        for number in range(4):
            try:
                factories.tool(place, f"t-{worker}-{number}")
                outcomes.append("registered")
            except Forbidden:
                outcomes.append("refused")
        connection.close()

    threads = [threading.Thread(target=register, args=(worker,)) for worker in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (outcomes.count("registered"), outcomes.count("refused")) == (10, 54)
    assert Tool.objects.custom().filter(organization=place).count() == 10
