"""Reach: which callers can use a tool, computed for kinds of tools, in agreement with the gates."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests import bulk, factories
from tools.authorization.listings import usable_tools
from tools.catalog import group_openings
from tools.catalog.actions import set_enabled
from tools.catalog.groups import save_group
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.insight.changes import Tier
from tools.insight.tool_reach import (
    SKIPPED,
    CallerToolReach,
    checks_of_callers,
    known_callers,
    reach_of,
    reaches,
)
from tools.licensing.tool_kinds import kinds_in
from tools.models import Agent, LicenseTier, Organization
from tools.policy import gates
from tools.policy.gates import Scope
from tools.policy.questions import EffectiveRequest

pytestmark = pytest.mark.django_db
ACCESS = gates.select(skip=SKIPPED)


def snapshot_of(organization: Organization) -> Snapshot:
    organization.refresh_from_db()
    return registry.snapshot(organization.pk, organization.revision)


def test_every_gate_is_asked_of_the_tool_of_its_kind_or_by_itself() -> None:
    by_itself = [check for check in gates.GATES if check.scope == Scope.TOOL]
    met = {check.name for check in (*by_itself, *checks_of_callers())}
    assert met - SKIPPED.keys() == {check.name for check in ACCESS if check.scope != Scope.REQUEST}


@pytest.fixture
def agents(organization: Organization) -> list[Agent]:
    """Agents with different grants; some tools of the catalog are usable by few of them, or by
    none."""
    tools = bulk.tools(organization, 6, groups=3)
    factories.tool(organization, "needs", group=["desk"], required_permissions=["ledger"])
    factories.tool(organization, "alone", group=[])
    factories.tool(organization, "states", group=["desk"], available_in_states=["late"])
    set_enabled(tool=tools[0], enabled=False, by=factories.actor(organization))
    desk = str(tools[1].version.definition["group"][0]) if tools[1].version else ""
    sorts = [
        {"groups": ["*"]}, {"groups": []}, {"groups": [desk]}, {"groups": ["desk"]},
        {"groups": ["desk"], "permissions": ["ledger"]}, {"groups": ["default", desk]},
        {"groups": ["*"], "permissions": ["*"]},
    ]  # fmt: skip
    return [factories.agent(organization, **sort) for sort in sorts]


@pytest.mark.parametrize("tier", ["Enterprise", "Core"])
def test_it_reaches_what_every_gate_lets_through(
    organization: Organization, agents: list[Agent], tier: str
) -> None:
    assert LicenseTier.objects.filter(name=tier).exists()
    snapshot = Tier(tier).catalog(snapshot_of(organization))
    callers = known_callers(agents, snapshot.revision)
    reach = reach_of(snapshot)
    expected = [
        {name for name, tool in snapshot.tools.items() if reaches(caller, tool, snapshot)}
        for caller in callers
    ]
    assert [reach.reachable_names(caller) for caller in callers] == expected
    assert len({frozenset(names) for names in expected}) > 1 or tier == "Core"


def test_a_suspended_agent_reaches_nothing(organization: Organization) -> None:
    agent = factories.agent(organization, groups=["*"])
    Agent.objects.filter(pk=agent.pk).update(active=False)
    snapshot = snapshot_of(organization)
    (caller,) = known_callers([agent], snapshot.revision)
    assert reach_of(snapshot).reachable_names(caller) == set()


@pytest.mark.parametrize("state", ["undefined", "late"])
def test_it_reaches_in_a_request_what_is_usable_in_it(
    organization: Organization, agents: list[Agent], state: str
) -> None:
    snapshot = snapshot_of(organization)
    for caller in known_callers(agents, snapshot.revision):
        for groups in (caller.granted_groups, frozenset(["desk"])):
            asked = EffectiveRequest(groups, state)
            usable = {tool.name for tool in usable_tools(caller, asked, snapshot)}
            assert reach_of(snapshot).reachable_names(caller, asked) == usable


def test_a_closing_group_is_closed_for_callers_with_a_cached_reach(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = [{"days": ["mon"], "from": "09:00", "to": "17:00"}]
    save_group(
        organization=organization, name="desk", by=factories.actor(organization), schedule=hours
    )
    factories.tool(organization, "lamp", group=["desk"])
    agent = factories.agent(organization, groups=["desk"])
    snapshot = snapshot_of(organization)
    (caller,) = known_callers([agent], snapshot.revision)
    monday, reach = (
        datetime(2026, 11, 23, 16, tzinfo=UTC),
        CallerToolReach(kinds_in(snapshot), snapshot),
    )
    for hour, there in ((0, {"lamp"}), (2, set()), (0, {"lamp"})):
        moment = (monday + timedelta(hours=hour)).timestamp()
        monkeypatch.setattr(
            group_openings, "time", SimpleNamespace(time=lambda moment=moment: moment)
        )
        assert reach.reachable_names(caller) == there
