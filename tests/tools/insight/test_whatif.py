"""What-if previews the impact of a change before it is made."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tools.accounts.callers import caller_of_user
from tools.catalog.actions import delete_tool, find_tool
from tools.catalog.registry import registry
from tools.errors import Forbidden, Malformed, NotFound, Refused
from tools.execution.admit import admit
from tools.insight import replay
from tools.insight.changes import GrantChange, Group, Tier, ToolGroups
from tools.insight.whatif import what_if
from tools.licensing.tiers import set_tier
from tools.models import Execution, LicenseTier, Organization, ToolGroup

pytestmark = pytest.mark.django_db


@pytest.fixture
def difference(organization, admin_user):
    def ask(change, **options):
        organization.refresh_from_db()
        snapshot = registry.snapshot(organization.pk, organization.revision)
        viewer = caller_of_user(options.pop("viewer", admin_user), organization=organization)
        return what_if(viewer=viewer, change=change, snapshot=snapshot, **options)

    return ask


def visibility_changes(found):
    return {one.agent: (one.added, one.removed) for one in found.seen}


def turned(some):
    return [(one.combination.tool, one.combination.calls, one.verdict.code) for one in some]


def called(agent, tool, times=1, **options):
    for _ in range(times):
        try:
            admit(factories.caller(agent), factories.call(tool, {"text": "x"}, **options))
        except Refused:
            pass


def test_a_group_more_shows_the_agent_what_it_holds(difference, organization, scout):
    factories.tool(organization, "press", group=["write"])
    found = difference(GrantChange("scout", groups=("default", "read", "write")))
    assert visibility_changes(found) == {"scout": (["press", "write_file"], [])}


def test_a_group_less_takes_the_tool_and_the_calls_away(difference, organization, scout):
    factories.tool(organization, "press", group=["read"])
    called(scout, "press", times=3, group=["read"])
    found = difference(GrantChange("scout", groups=("default",)))
    assert visibility_changes(found) == {"scout": ([], ["press"])}
    assert turned(found.calls.would_be_refused) == [("press", 3, "group_not_granted")]
    assert (found.calls.calls, found.calls.combinations) == (3, 1)


def test_what_was_refused_would_pass(difference, organization, scout):
    factories.tool(organization, "press", group=["write"])
    called(scout, "press", times=2, group=["write"])
    found = difference(GrantChange("scout", groups=("default", "write")))
    assert turned(found.calls.would_pass) == [("press", 2, "group_not_granted")]
    assert found.calls.would_be_refused == []


@pytest.mark.parametrize(
    ("change", "added", "removed"),
    [
        (GrantChange("scout", tools=("one",)), [], ["two"]),
        (GrantChange("scout", tools=("*",)), [], []),
        (GrantChange("scout", tools=()), [], ["one", "two"]),
        (GrantChange("scout", tools=(), tool_groups=("default",)), [], []),
        (GrantChange("scout", permissions=("tool.x",)), ["strong"], []),
    ],
)
def test_tools_and_permissions_are_grants_too(
    difference, organization, scout, change, added, removed
):
    for name in ("one", "two"):
        factories.tool(organization, name)
    factories.tool(organization, "strong", required_permissions=["tool.x"])
    expected = {"scout": (added, removed)} if added or removed else {}
    assert visibility_changes(difference(change)) == expected


def test_a_tool_that_moves_to_another_group_is_lost_to_some(difference, organization, scout):
    factories.agent(organization, "clerk", groups=["write"])
    factories.tool(organization, "press", group=["read"])
    called(scout, "press", group=["read"])
    found = difference(ToolGroups("press", ("write",)))
    assert visibility_changes(found) == {"clerk": (["press"], []), "scout": ([], ["press"])}
    assert turned(found.calls.would_be_refused) == [("press", 1, "tool_not_in_group")]


def test_absent_groups_are_not_empty_ones(difference, organization, scout):
    factories.tool(organization, "press", group=["write"])
    assert visibility_changes(difference(ToolGroups("press", None))) == {"scout": (["press"], [])}
    assert visibility_changes(difference(ToolGroups("press", ()))) == {}


def test_a_smaller_tier_takes_what_it_does_not_include(difference, organization, scout):
    factories.tool(organization, "press")
    called(scout, "press")
    found = difference(Tier("Core"))
    assert visibility_changes(found)["scout"][1] == ["press"]
    assert turned(found.calls.would_be_refused) == [("press", 1, "license_excludes_custom_tools")]


def test_a_smaller_tier_keeps_the_oldest_custom_tools(difference, organization, scout):
    for number in range(12):
        factories.tool(organization, f"t{number:02}")
    assert visibility_changes(difference(Tier("WriterPro"))) == {"scout": ([], ["t10", "t11"])}


def test_a_larger_tier_brings_back_what_the_licence_put_out(difference, organization, scout):
    for number in range(12):
        factories.tool(organization, f"t{number:02}")
    small = LicenseTier.objects.get(name="WriterPro")
    set_tier(organization=organization, tier=small, by=factories.actor(organization))
    assert visibility_changes(difference(Tier("Teams"))) == {"scout": (["t10", "t11"], [])}


def test_a_new_parent_opens_a_group_to_callers_with_the_parent(difference, organization, scout):
    factories.tool(organization, "deep", group=["inner"])
    factories.tool(organization, "flat", group=["read"])
    found = difference(Group("inner", {"parent": "read"}))
    assert visibility_changes(found) == {"scout": (["deep"], [])}


def test_the_permissions_of_a_group_reach_callers_with_the_group(difference, organization, scout):
    factories.tool(organization, "strong", required_permissions=["tool.x"])
    ToolGroup.objects.get_or_create(organization=organization, name="read")
    Organization.objects.next_revision(organization.pk)
    found = difference(Group("read", {"permissions": ["tool.x"]}))
    assert visibility_changes(found) == {"scout": (["strong"], [])}


def test_windows_are_held_against_the_hour_of_each_call(difference, organization, scout):
    factories.tool(organization, "press", group=["read"])
    called(scout, "press", times=2, group=["read"])
    day, night = (datetime.now(UTC) - timedelta(days=2) for _ in range(2))
    day, night = day.replace(hour=12, minute=1), night.replace(hour=3, minute=1)
    for execution, at in zip(Execution.objects.filter(agent=scout), (day, night), strict=True):
        Execution.objects.filter(pk=execution.pk).update(created_at=at)
    hours = [{"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
              "from": "08:00", "to": "18:00"}]  # fmt: skip
    found = difference(Group("read", {"schedule": hours}), since=timezone.now() - timedelta(days=4))
    assert turned(found.calls.would_be_refused) == [("press", 1, "group_closed")]
    assert found.calls.would_be_refused[0].combination.at.hour == 3


def test_what_is_refused_already_is_not_the_change_s_doing(difference, organization, scout):
    tool = factories.tool(organization, "press", group=["read"])
    called(scout, "press", group=["read"])
    type(tool).objects.filter(pk=tool.pk).update(status="disabled", revision=10**6)
    Organization.objects.next_revision(organization.pk)
    registry.forget()
    found = difference(GrantChange("scout", groups=("default",)))
    assert (visibility_changes(found), found.calls.would_be_refused) == ({}, [])


def test_invalid_calls_and_tools_that_are_gone_say_nothing(difference, organization, scout):
    factories.tool(organization, "press", group=["read"])
    factories.tool(organization, "gone", group=["read"])
    called(scout, "gone", group=["read"])
    with pytest.raises(Refused):
        admit(factories.caller(scout), factories.call("press", {"wrong": 1}, group=["read"]))
    delete_tool(tool=find_tool(organization, "gone"), by=factories.actor(organization))
    found = difference(GrantChange("scout", groups=("default",)))
    assert (found.calls.combinations, found.calls.would_be_refused) == (1, [])


def test_calls_before_the_time_do_not_count(difference, organization, scout):
    factories.tool(organization, "press", group=["read"])
    called(scout, "press", group=["read"])
    Execution.objects.filter(agent=scout).update(created_at=timezone.now() - timedelta(hours=30))
    change = GrantChange("scout", groups=("default",))
    assert difference(change).calls.calls == 0
    assert difference(change, since=timezone.now() - timedelta(days=2)).calls.calls == 1


@pytest.mark.parametrize("ago", [timedelta(days=8), timedelta(seconds=-60)])
def test_a_time_out_of_range_is_refused(difference, scout, ago):
    with pytest.raises(Malformed):
        difference(GrantChange("scout", groups=()), since=timezone.now() - ago)


@pytest.mark.parametrize(
    "change",
    [GrantChange("ghost", groups=()), GrantChange("scout", tools=("ghost",)), Tier("ghost"),
     ToolGroups("ghost", None), Group("ghost", {})],
)  # fmt: skip
def test_a_change_of_what_is_not_there_is_not_found(difference, scout, change):
    with pytest.raises(NotFound):
        difference(change)


def test_a_group_within_itself_is_refused_as_it_is_when_saved(difference, organization, scout):
    factories.tool(organization, "deep", group=["inner"])
    with pytest.raises(Malformed):
        difference(Group("inner", {"parent": "inner"}))


def test_nothing_is_written_and_the_catalog_stays(difference, organization, scout):
    factories.tool(organization, "press", group=["read"])
    records = AuditRecord.objects.filter(organization=organization.slug).count()
    revision = Organization.objects.get(pk=organization.pk).revision
    snapshot = registry.snapshot(organization.pk, revision)
    difference(ToolGroups("press", ("write",)))
    difference(Tier("Core"))
    assert registry.snapshot(organization.pk, revision) is snapshot
    assert snapshot.groups_of(snapshot.tools["press"]) == {"read"}
    assert AuditRecord.objects.filter(organization=organization.slug).count() == records


def test_it_is_for_who_may_make_the_change_and_see_what_it_shows(difference, organization, scout):
    user = factories.person(organization)
    for permission in ("change_agent", "view_agent", "view_tool"):
        with pytest.raises(Forbidden):
            difference(GrantChange("scout", groups=()), viewer=user)
        factories.permit(user, permission)
        user = type(user).objects.get(pk=user.pk)
    assert difference(GrantChange("scout", groups=()), viewer=user).calls is None
    factories.permit(user, "view_execution")
    assert difference(GrantChange("scout", groups=()), viewer=user).calls is not None


def test_too_many_combinations_or_agents_are_cut_and_said(
    difference, organization, scout, monkeypatch
):
    for name in ("one", "two"):
        factories.tool(organization, name)
        called(scout, name, times=2 if name == "two" else 1)
    factories.agent(organization, "zed")
    monkeypatch.setattr("tools.insight.replay.MOST_COMBINATIONS", 1)
    monkeypatch.setattr("tools.insight.whatif.MOST_AGENTS", 1)
    found = difference(Tier("Core"))
    assert (found.cut, [*found.agents.values()]) == (True, ["scout"])
    assert (found.calls.cut, found.calls.combinations) == (True, 1)
    assert turned(found.calls.would_be_refused) == [("two", 2, "license_excludes_custom_tools")]


def test_all_changed_verdicts_are_counted_and_the_first_are_listed(
    difference, organization, scout, monkeypatch
):
    monkeypatch.setattr(replay, "MOST_TURNED", 1)
    for name, times in (("press", 3), ("print", 2)):
        factories.tool(organization, name, group=["read"])
        called(scout, name, times=times, group=["read"])
    found = difference(GrantChange("scout", groups=("default",))).calls
    assert turned(found.would_be_refused) == [("press", 3, "group_not_granted")]
    assert (found.calls_refused, found.calls_passed) == (5, 0)
