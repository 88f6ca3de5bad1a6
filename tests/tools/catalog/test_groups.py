"""Nested tool groups, their opening hours, and the default groups of sources."""

import threading
from dataclasses import replace

import pytest
from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tests.tools.snapshots import group, snapshot, tool
from tools.catalog.groups import Through, delete_group, members_of, memberships, save_group
from tools.catalog.registry import registry
from tools.catalog.services.services import save_source
from tools.definitions.tool import ToolDefinition
from tools.errors import Conflict, Malformed
from tools.models import McpServer, Organization, ToolGroup, ToolService

OFFICE = {"days": ["mon", "fri"], "from": "09:00", "to": "17:00"}


@pytest.fixture
def save(organization):
    def act(name, **said):
        return save_group(
            organization=organization, name=name, by=factories.actor(organization), **said
        )

    return act


@pytest.fixture
def revision(organization):
    return lambda: Organization.objects.get(pk=organization.pk).revision


def refused(act, code):
    with pytest.raises(Malformed) as caught:
        act()
    assert caught.value.code == code
    return caught.value


def test_a_group_with_everything_is_in_the_next_snapshot(save, organization, revision):
    save("knowledge")
    save("read", parent="knowledge", schedule=[OFFICE], max_queue_age_s=30, max_cpu_percent=80.5)
    found = registry.snapshot(organization.pk, revision()).groups["read"]
    assert (found.parent, found.schedule) == ("knowledge", (OFFICE,))
    assert (found.max_queue_age_s, found.max_cpu_percent) == (30.0, 80.5)


def test_what_is_not_given_stays(save):
    save("knowledge")
    said = {"parent": "knowledge", "schedule": [OFFICE], "max_queue_age_s": 30}
    save("read", description="d", permissions=["p"], **said)
    row = save("read", max_cpu_percent=50)
    row.refresh_from_db()
    assert (row.parent.name, row.schedule, row.max_queue_age_s) == ("knowledge", [OFFICE], 30)
    assert (row.description, row.permissions, row.max_cpu_percent) == ("d", ["p"], 50)


def test_none_takes_a_parent_and_bounds_away(save):
    save("knowledge")
    save("read", parent="knowledge", max_queue_age_s=30, max_cpu_percent=50)
    row = save("read", parent=None, max_queue_age_s=None, max_cpu_percent=None, schedule=[])
    row.refresh_from_db()
    assert (row.parent, row.max_queue_age_s, row.max_cpu_percent) == (None, None, None)


def test_a_change_is_on_record(save, organization, revision):
    save("knowledge")
    before = revision()
    save("read", parent="knowledge", schedule=[OFFICE])
    record = AuditRecord.objects.filter(organization=organization.slug).latest("id")
    assert (record.code, record.subject, revision()) == ("REG.GROUP_CHANGE", "read", before + 1)
    assert record.details["before"] == {}
    assert record.details["after"] == {
        "description": "", "permissions": [], "parent": "knowledge", "schedule": [OFFICE],
        "max_queue_age_s": None, "max_cpu_percent": None,
    }  # fmt: skip


WRONG = [
    ({"max_queue_age_s": 0}, "max_queue_age_s"), ({"max_queue_age_s": -1}, "max_queue_age_s"),
    ({"max_queue_age_s": True}, "max_queue_age_s"), ({"max_queue_age_s": "1"}, "max_queue_age_s"),
    ({"max_queue_age_s": float("nan")}, "max_queue_age_s"),
    ({"max_queue_age_s": float("inf")}, "max_queue_age_s"),
    ({"max_queue_age_s": 10**400}, "max_queue_age_s"), ({"max_queue_age_s": []}, "max_queue_age_s"),
    ({"max_cpu_percent": 100.1}, "max_cpu_percent"), ({"max_cpu_percent": 0}, "max_cpu_percent"),
    ({"schedule": "always"}, "schedule"), ({"schedule": [OFFICE, 5]}, "schedule[1]"),
    ({"schedule": [{**OFFICE, "to": "25:00"}]}, "schedule[0].to"), ({"hours": []}, "hours"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "field"), WRONG, ids=str)
def test_each_wrong_field_is_named_and_nothing_changes(save, organization, revision, said, field):
    before = revision()
    flaws = refused(lambda: save("read", **said), "invalid_group").details["errors"]
    assert [flaw["field"] for flaw in flaws] == [field]
    assert not ToolGroup.objects.filter(organization=organization, name="read").exists()
    assert revision() == before


def test_a_parent_must_be_there(save, organization):
    other = factories.organization("parents-elsewhere")
    save_group(organization=other, name="theirs", by=factories.actor(other))
    for name in ("ghost", "theirs"):
        refused(lambda name=name: save("read", parent=name), "parent_unknown")
    assert not ToolGroup.objects.filter(organization=organization, name="read").exists()


def test_a_group_is_never_within_itself(save):
    save("a")
    refused(lambda: save("a", parent="a"), "group_cycle")
    save("b", parent="a")
    save("c", parent="b")
    refusal = refused(lambda: save("a", parent="c"), "group_cycle")
    assert refusal.message == "The group would be within itself: a in c in b in a."


def test_groups_nest_ten_deep(save):
    save("g1")
    for depth in range(2, 11):
        save(f"g{depth}", parent=f"g{depth - 1}")
    refused(lambda: save("g11", parent="g10"), "group_too_deep")
    save("top")
    refused(lambda: save("g1", parent="top"), "group_too_deep")
    assert save("g6", parent="top").parent.name == "top"


def test_a_group_that_is_named_stays(save, organization):
    by = factories.actor(organization)
    factories.tool(organization, group=["of-tools"])
    save("parent")
    save("child", parent="parent")
    for kind, name in ((ToolService, "of-services"), (McpServer, "of-servers")):
        save_source(kind=kind, organization=organization, name="s", by=by, default_groups=[name])
    for name, dependant in (
        ("of-tools", "echo"), ("parent", "child"), ("of-services", "s"), ("of-servers", "s"),
    ):  # fmt: skip
        row = ToolGroup.objects.get(organization=organization, name=name)
        with pytest.raises(Conflict) as caught:
            delete_group(group=row, by=by)
        assert caught.value.code == "has_dependants"
        assert caught.value.details["dependants"] == [dependant]
    delete_group(group=ToolGroup.objects.get(organization=organization, name="child"), by=by)
    delete_group(group=ToolGroup.objects.get(organization=organization, name="parent"), by=by)


def test_of_many_at_once_none_closes_a_ring(committed, organization):
    """Eight groups, each to be placed in the next: the last change would close a cycle and is
    refused."""
    by, names = factories.actor(organization), [f"ring-{at}" for at in range(8)]
    for name in names:
        save_group(organization=organization, name=name, by=by)
    outcomes, ready = [], threading.Barrier(len(names))

    def nest(at):
        ready.wait()
        try:
            save_group(organization=organization, name=names[at], by=by, parent=names[at - 1])
            outcomes.append("saved")
        except Malformed as refusal:
            outcomes.append(refusal.code)
        connection.close()

    threads = [threading.Thread(target=nest, args=(at,)) for at in range(len(names))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(outcomes) == ["group_cycle", *["saved"] * 7]


def test_a_tool_is_in_its_groups_and_their_parents():
    place = snapshot(
        tool("ask", group=["read"]), tool("both", group=["read", "knowledge"]), tool("plain"),
        group("knowledge"), group("read", parent="knowledge"),
    )  # fmt: skip
    assert memberships(place.tools["ask"], place) == {
        "knowledge": Through.PARENT, "read": Through.OWN,
    }  # fmt: skip
    assert members_of("knowledge", place) == (("ask", "parent"), ("both", "own"))
    assert members_of("default", place) == (("plain", "own"),)
    assert members_of("ghost", place) == ()


@pytest.mark.parametrize(
    ("named", "carried", "there"),
    [
        (None, ["fun"], {"fun": "source", "parent": "parent"}),
        (None, [], {}),
        (None, None, {"default": "own"}),
        ([], ["fun"], {}),
        (["own"], ["fun"], {"own": "own"}),
    ],
)
def test_a_source_carries_groups_for_tools_that_name_none(named, carried, there):
    canonical = tool("joke").definition.raw
    definition = {
        **canonical, "type": "tool-service", "group": named, "implementation": {"service": "jokes"}
    }  # fmt: skip
    joke = replace(tool("joke"), definition=ToolDefinition(definition))
    sources = {} if carried is None else {("service", "jokes"): frozenset(carried)}
    place = snapshot(joke, group("fun", parent="parent"), group("parent"), source_groups=sources)
    assert memberships(joke, place) == there


@pytest.mark.parametrize("kind", [ToolService, McpServer])
def test_a_source_is_saved_with_its_groups(organization, revision, kind):
    before, by = revision(), factories.actor(organization)
    for groups in (["fun", "new"], [], None):
        save_source(
            kind=kind, organization=organization, name="jokes", by=by, default_groups=groups
        )
        assert kind.objects.get(organization=organization, name="jokes").default_groups == groups
    assert revision() == before + 3
    assert ToolGroup.objects.filter(organization=organization, name="new").exists()
    record = AuditRecord.objects.filter(organization=organization.slug).latest("id")
    assert (record.code, record.subject) == ("REG.SOURCE_CHANGE", "jokes")
    assert record.details == {
        "kind": kind._meta.model_name,
        "before": {"default_groups": []},
        "after": {"default_groups": None},
    }


def test_what_a_source_carries_is_in_the_next_snapshot(organization, revision):
    save_source(
        kind=ToolService, organization=organization, name="jokes", by=factories.actor(organization),
        default_groups=["fun"],
    )  # fmt: skip
    found = registry.snapshot(organization.pk, revision())
    assert found.source_groups == {("service", "jokes"): {"fun"}}
    assert found.knows_group("fun")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": ""}, "name"), ({"name": "a b"}, "name"), ({"name": "a\x00"}, "name"),
        ({"name": "x" * 129}, "name"), ({"default_groups": [""]}, "default_groups"),
        ({"default_groups": ["a", "a"]}, "default_groups"),
        ({"default_groups": ["a\u200b"]}, "default_groups"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused(organization, said, field):
    wanted = {"name": "jokes", "default_groups": None, **said}
    refusal = refused(
        lambda: save_source(
            kind=McpServer, organization=organization, by=factories.actor(organization), **wanted
        ),
        "invalid_source",
    )
    assert [flaw["field"] for flaw in refusal.details["errors"]] == [field]
    assert not McpServer.objects.filter(organization=organization).exists()
