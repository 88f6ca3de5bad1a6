"""License enforcement: what the tier includes now, for every way to call a tool and never at a
weaker isolation level."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from audit.actions import Actor
from audit.models import AuditRecord
from tests import factories
from tests.tools.snapshots import current_catalog
from tools.accounts import account_actions as policy
from tools.authorization.listings import usable_tools
from tools.builtin.manifest import DEFINITIONS
from tools.catalog import actions, seats, tiers
from tools.catalog.builtins import install_builtins
from tools.catalog.sandbox import profiles
from tools.catalog.tiers import state_now, tier_now
from tools.errors import Forbidden, Malformed, Refused, ToolcribError
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.licensing import licenses
from tools.licensing import tiers as tier_actions
from tools.models import LicenseTier, Organization, Tool, ToolStatus
from tools.policy.isolation_levels import effective_level
from tools.policy.questions import EffectiveRequest


def tier(name):
    return LicenseTier.objects.get(name=name)


def move(organization, name):
    return tier_actions.set_tier(
        organization=organization, tier=tier(name), by=factories.actor(organization)
    )


def ends(organization, *, days, grace_days=14):
    """Set the organization's license to end so many days from now."""
    Organization.objects.next_revision(organization.pk)
    Organization.objects.filter(pk=organization.pk).update(
        license_expires_at=timezone.now() + timedelta(days=days), license_grace_days=grace_days
    )


def tools(organization, count):
    return [factories.tool(organization, f"t{number}") for number in range(count)]


def status(organization, name):
    return Tool.objects.get(organization=organization, name=name).status


def refusal(agent, name="echo", **fields):
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call(name, {"text": "x"}, **fields))
    slug = agent.organization.slug
    started = AuditRecord.objects.filter(organization=slug, code="TOOL.START", subject=name)
    assert not started.exists()
    return caught.value.code


# --- the tier that counts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "counts", "state"),
    [(40, "Enterprise", "valid"), (3, "Enterprise", "expiring"), (-3, "Enterprise", "grace"),
     (-14.01, "Core", "expired")],
)  # fmt: skip
def test_the_tier_counts_until_the_days_of_grace_are_over(organization, days, counts, state):
    ends(organization, days=days)
    here = current_catalog(organization)
    assert (tier_now(here).name, state_now(here)) == (counts, state)
    assert tiers.tier_of(organization.pk).name == counts


def test_a_licence_runs_out_by_the_clock_alone(organization, agent):
    factories.tool(organization)
    ends(organization, days=0, grace_days=0)
    revision = Organization.objects.get(pk=organization.pk).revision
    assert refusal(agent) == "license_excludes_custom_tools"
    assert Organization.objects.get(pk=organization.pk).revision == revision


def test_a_listing_that_is_remembered_closes_when_the_licence_ends(
    organization, agent, monkeypatch
):
    factories.tool(organization)
    ends(organization, days=1, grace_days=0)
    here, caller, asked = (
        current_catalog(organization),
        factories.caller(agent),
        EffectiveRequest.from_options(None, None),
    )
    assert "echo" in {tool.name for tool in usable_tools(caller, asked, here)}
    in_two_days = time.time() + 2 * 86_400
    monkeypatch.setattr(time, "time", lambda: in_two_days)
    assert "echo" not in {tool.name for tool in usable_tools(caller, asked, here)}


def test_asking_which_tier_counts_costs_no_query(organization, django_assert_num_queries):
    ends(organization, days=-3)
    here = current_catalog(organization)
    with django_assert_num_queries(0):
        for _ in range(100):
            tier_now(here)


def test_answers_carry_a_warning_in_the_days_of_grace_and_only_then(organization, agent, api):
    factories.tool(organization)
    assert factories.execution(agent).warnings == []
    ends(organization, days=-3)
    (warning,) = factories.execution(agent).warnings
    assert "licence ended on" in warning and "Core" in warning
    ends(organization, days=3)
    assert factories.execution(agent).warnings == []


def test_the_refusal_says_that_the_licence_has_ended(organization, api):
    factories.tool(organization)
    ends(organization, days=-20)
    answer = api.execute("echo", {"text": "x"}).json()
    assert "The Enterprise licence ended on" in answer["message"]


# --- isolation -----------------------------------------------------------------------------------


def test_what_a_tier_may_ask_for_stands_in_its_row(db):
    levels = dict(LicenseTier.objects.values_list("name", "isolation_levels"))
    standard = ["None", "Standard"]
    assert levels == {
        "Core": standard, "WriterPro": standard, "Teams": standard, "Enterprise": None
    }  # fmt: skip


def strict(level="Strict"):
    return {"required_isolation": level}


def test_a_tool_that_asks_for_more_than_the_licence_is_refused_and_not_run_lower(
    organization, agent
):
    factories.tool(organization, constraints=strict())
    move(organization, "Teams")
    assert refusal(agent) == "license_excludes_isolation"
    here = current_catalog(organization)
    assert effective_level(here.tools["echo"], here) == "Strict"


def test_a_raised_minimum_that_the_licence_does_not_include_is_not_lowered(organization, agent):
    factories.tool(organization)
    policy.set_isolation(
        organization=organization, minimum="Strict", by=factories.actor(organization)
    )
    move(organization, "Teams")
    assert refusal(agent) == "license_excludes_isolation"
    assert refusal(agent, "read_file", group=["read-only"]) == "license_excludes_isolation"


def test_what_runs_restricted_because_it_must_is_never_refused_for_it(organization, agent):
    move(organization, "Teams")
    written = factories.definition(constraints=strict("Restricted"))
    actions.register_tool(
        organization=organization,
        definition=written,
        by=Actor("agent", "scribe", organization.slug),
    )
    factories.execution(agent)
    here = current_catalog(organization)
    assert effective_level(here.tools["echo"], here) == "Restricted"


def test_a_builtin_runs_at_its_own_level_whatever_the_tier_lists(db):
    place = factories.organization("own-level", "Core")
    tier_actions.change_tier(tier=tier("Core"), by=factories.actor(place), isolation_levels=[])
    agent = factories.agent(place, groups=["read-only"])
    assert factories.execution(agent, "read_file", path="a", group=["read-only"]).pk


@pytest.mark.parametrize("way", ["register", "update", "restore", "minimum"])
def test_what_a_licence_does_not_include_cannot_be_asked_for(organization, way):
    by = factories.actor(organization)
    tool = factories.tool(organization, constraints=strict())
    actions.update_tool(tool=tool, definition=factories.definition(), by=by)
    move(organization, "Teams")
    asking = {
        "register": lambda: factories.tool(organization, "new", constraints=strict()),
        "update": lambda: actions.update_tool(
            tool=tool, definition=factories.definition(constraints=strict("Restricted")), by=by
        ),
        "restore": lambda: actions.restore_version(tool=tool, label="1.0.0", by=by),
        "minimum": lambda: policy.set_isolation(organization=organization, minimum="Strict", by=by),
    }
    with pytest.raises(Forbidden) as caught:
        asking[way]()
    assert caught.value.code == "license_excludes_isolation"


def test_a_minimum_may_be_lowered_to_what_the_licence_includes(organization):
    by = factories.actor(organization)
    policy.set_isolation(organization=organization, minimum="Strict", by=by)
    move(organization, "Teams")
    policy.set_isolation(organization=organization, minimum="Standard", by=by)
    assert current_catalog(organization).minimum_isolation == "Standard"


def test_a_profile_may_not_demand_what_the_licence_does_not_include(organization):
    by = factories.actor(organization)
    tier_actions.change_tier(tier=tier("Enterprise"), by=by, isolation_levels=["Standard"])
    with pytest.raises(Forbidden):
        profiles.create_profile(
            organization=organization, profile={"name": "p", "minimum_isolation": "Strict"}, by=by
        )


def test_a_tier_lists_levels_that_there_are(organization):
    with pytest.raises(Malformed, match="Restricted"):
        tier_actions.change_tier(
            tier=tier("Core"), by=factories.actor(organization), isolation_levels=["Weak"]
        )


# --- seats ---------------------------------------------------------------------------------------


def at_once(work, count):
    """Runs `work(number)` in so many threads, which start together."""
    gate = threading.Barrier(count)

    def run(number):
        try:
            gate.wait(60)
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as threads:
        return [*threads.map(run, range(count))]


@pytest.fixture
def place(committed):
    return factories.organization(f"seats-{uuid4().hex[:12]}", "WriterPro")


def attempt(work):
    try:
        work()
    except ToolcribError as refused:
        return refused.code
    return "ok"


def counts(results):
    return {code: results.count(code) for code in set(results)}


@pytest.fixture
def tier_of(committed):
    """Creates a tier with a limit of custom tools, and deletes it at the end; its organizations
    stay."""
    made = []

    def make(limit):
        name, rank = f"tier-{uuid4().hex[:12]}", 30_000 - uuid4().int % 20_000
        made.append(LicenseTier.objects.create(name=name, rank=rank, max_custom_tools=limit))
        return made[-1]

    yield make
    for one in made:
        Organization.objects.filter(tier=one).update(tier=tier("Enterprise"))
        one.delete()


@pytest.mark.part("matrices")
def test_64_at_once_register_exactly_as_many_tools_as_the_licence_allows(place):
    results = at_once(lambda number: attempt(lambda: factories.tool(place, f"t{number}")), 64)
    assert counts(results) == {"ok": 10, "license_tool_limit": 54}
    assert seats.seated(place.pk).count() == 10


def test_at_once_enabled_and_registered_stay_within_the_limit(place, tier_of):
    tools(place, 10)
    move(place, "Core")
    tier_actions.set_tier(organization=place, tier=tier_of(5), by=factories.actor(place))
    disabled = [*Tool.objects.custom().filter(organization=place, status="disabled")]
    Tool.objects.custom().filter(organization=place, status="active").update(
        status="disabled", deleted_at=timezone.now()
    )

    def work(number):
        if number % 2:
            tool, by = disabled[number % len(disabled)], factories.actor(place)
            return attempt(lambda: actions.set_enabled(tool=tool, enabled=True, by=by))
        return attempt(lambda: factories.tool(place, f"n{number}"))

    results = at_once(work, 16)
    assert seats.seated(place.pk).count() == 5 and "license_tool_limit" in results


@pytest.mark.part("matrices")
def test_a_tier_lowered_while_organizations_move_to_it_binds_them_all(tier_of):
    """In either order, no organization keeps what the tier no longer includes."""
    shrinking = tier_of(5)
    places = [factories.organization(f"seats-{uuid4().hex[:12]}") for _ in range(6)]
    for each in places:
        tools(each, 5)

    def work(number):
        if number == 3:
            by = factories.actor(places[0])
            return tier_actions.change_tier(tier=shrinking, by=by, max_custom_tools=2)
        each = places[number if number < 3 else number - 1]
        return tier_actions.set_tier(organization=each, tier=shrinking, by=factories.actor(each))

    at_once(work, 7)
    assert {seats.seated(each.pk).count() for each in places} == {2}
    limits = {tier_now(current_catalog(each)).max_custom_tools for each in places}
    assert limits == {2}


def test_tiers_that_are_changed_at_once_wait_for_each_other(tier_of):
    """Each affects all organizations whose license expires, and locks them in the same order."""
    tiers = [tier_of(5) for _ in range(4)]
    places = [factories.organization(f"seats-{uuid4().hex[:12]}") for _ in range(6)]
    rows = Organization.objects.filter(pk__in=[place.pk for place in places])
    rows.update(license_expires_at=timezone.now() + timedelta(days=40))
    before = dict(rows.values_list("pk", "revision"))
    by = factories.actor(places[0])
    at_once(lambda n: tier_actions.change_tier(tier=tiers[n], by=by, max_custom_tools=n), 4)
    assert dict(rows.values_list("pk", "revision")) == {pk: n + 4 for pk, n in before.items()}
    rows.update(license_expires_at=None)


def test_a_tool_that_a_person_switched_off_keeps_its_seat(db):
    place = factories.organization("seat-kept", "WriterPro")
    first, *_ = tools(place, 10)
    actions.set_enabled(tool=first, enabled=False, by=factories.actor(place))
    with pytest.raises(Forbidden):
        factories.tool(place, "eleventh")
    actions.set_enabled(tool=first, enabled=True, by=factories.actor(place))
    assert status(place, "t0") == ToolStatus.ACTIVE


def test_a_tool_the_licence_disabled_is_enabled_only_where_there_is_room(organization):
    tools(organization, 12)
    move(organization, "WriterPro")
    newest = Tool.objects.get(organization=organization, name="t11")
    by = factories.actor(organization)
    with pytest.raises(Forbidden) as caught:
        actions.set_enabled(tool=newest, enabled=True, by=by)
    assert caught.value.code == "license_tool_limit"
    actions.delete_tool(tool=actions.find_tool(organization, "t0"), by=by)
    enabled = actions.set_enabled(tool=newest, enabled=True, by=by)
    assert (enabled.status, enabled.status_reason) == ("active", "")


def test_tools_beyond_the_limit_are_refused_before_anything_has_disabled_them(
    organization, agent, db
):
    tools(organization, 12)
    tier_actions.change_tier(
        tier=tier("Core"), by=factories.actor(organization), max_custom_tools=10
    )
    ends(organization, days=-20)
    assert refusal(agent, "t11") == "license_tool_limit"
    assert status(organization, "t11") == ToolStatus.ACTIVE
    factories.execution(agent, "t9")


def test_a_row_that_was_switched_on_past_the_actions_is_still_refused(organization, agent):
    tools(organization, 11)
    move(organization, "WriterPro")
    revision = Organization.objects.next_revision(organization.pk)
    Tool.objects.filter(organization=organization, name="t10").update(
        status="active", revision=revision
    )
    assert refusal(agent, "t10") == "license_tool_limit"


# --- every entry point ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Core", "WriterPro"])
def test_no_way_leads_past_the_licence(organization, agent, api, admin_api, name, admin_client):
    """Each way to write or run a tool, with twelve custom tools and a lower tier."""
    made, by = tools(organization, 12), factories.actor(organization)
    waiting = factories.execution(agent, "t11")
    change = move(organization, name)
    limit = tier(name).max_custom_tools
    assert [*change.disabled] == [f"t{number}" for number in range(11, limit - 1, -1)]
    perform(waiting.pk)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.error_code) == ("PermissionDenied", "tool_disabled")

    full = "license_tool_limit"
    rest = [
        admin_api.post("/tools", factories.definition("more")),
        admin_api.post("/tools/t11/enable"),
        admin_api.put("/tools/t11", factories.definition("t11", description="New.") | ON),
        admin_api.patch("/tools/t11", {"enabled": True}),
    ]
    assert [answer.json()["code"] for answer in rest] == [full] * 4
    assert attempt(lambda: factories.tool(organization, "more")) == full
    assert attempt(lambda: actions.set_enabled(tool=made[11], enabled=True, by=by)) == full
    actions.restore_version(tool=made[11], label="1.0.0", by=by)
    install_builtins(organization=organization, by=by)
    admin_client.post("/tools/t11/enable")
    assert status(organization, "t11") == ToolStatus.DISABLED
    assert seats.seated(organization.pk).count() == limit

    assert refusal(agent, "t11") == "tool_disabled"
    assert refusal(agent, "validate_content", group=["read-only"]) == "license_excludes_tool"
    listed = api.get("/tools?group=default&group=read-only&page_size=200").json()["results"]
    assert {tool["name"] for tool in listed} == {
        "read_file",
        *(f"t{number}" for number in range(limit)),
    }
    explained = api.get("/tools/explain?group=read-only").json()["results"]
    gates = {
        row["tool"]: {gate["gate"]: gate["code"] for gate in row["gates"]} for row in explained
    }
    assert gates["validate_content"]["license"] == "license_excludes_tool"
    assert gates["t11"]["license"] in {"license_tool_limit", "license_excludes_custom_tools"}


ON = {"enabled": True}


def test_a_call_that_waits_is_refused_when_the_licence_has_ended_meanwhile(organization, agent):
    factories.tool(organization)
    waiting = factories.execution(agent)
    ends(organization, days=-20)
    perform(waiting.pk)
    waiting.refresh_from_db()
    assert waiting.error_code == "license_excludes_custom_tools"
    codes = AuditRecord.objects.filter(execution_id=waiting.pk).values_list("code", flat=True)
    assert "TOOL.START" not in codes and "TOOL.DENY" in codes


def test_what_the_product_brings_counts_against_no_limit(db):
    place = factories.organization("builtins", "Core")
    assert Tool.objects.filter(organization=place).count() == len(DEFINITIONS)
    assert licenses.preview(place, tier("Core")).disabled == ()
