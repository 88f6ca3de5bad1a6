"""Property test: listing, execution and `explain` agree for every catalog, caller and request.

executed ⊆ visible ⊆ explained as passed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import factories
from tests.tools.policy import memory_catalogs as made
from tools.accounts.callers import caller_of_agent
from tools.accounts.grants.grants import ToolGrants, grants
from tools.authorization.facts import CURRENT, check_groups, question_of
from tools.authorization.listings import usable_tools, visible_tool, visible_tools
from tools.catalog.actions import set_enabled
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.errors import NotFound, Refused
from tools.execution.admit import admit
from tools.insight.explain import Explanation
from tools.insight.tool_reach import reaches
from tools.licensing.tiers import set_tier
from tools.models import Execution, Organization
from tools.policy import call_gates, gates
from tools.policy.availability import group_open, reason_for_caller
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, RequestQuestion

GROUPS = ["default", "read", "write", "a/b", "*", "Read"]
STATES = ["undefined", "analysis", "*", ""]
PERMISSIONS = ["tool.x", "tool.y"]
TOOLS = [f"t{at}" for at in range(6)]
EVERY_EXAMPLE = settings(max_examples=150, deadline=None, database=None)


def names(of: list[str], most: int = 3) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(of), unique=True, max_size=most)


TOOL_FIELDS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["active"] * 4 + ["disabled", "pending", "quarantined"]),
        "group": st.none() | names([one for one in GROUPS if one != "*"] + ["*"]),
        "available_in_states": st.none() | names([one for one in STATES if one]),
        "required_permissions": names(PERMISSIONS, 1),
        "at": st.integers(0, 9),
    }
)
TREE = st.fixed_dictionaries(
    {
        "parents": st.lists(st.sampled_from([None, "read", "default"]), min_size=3, max_size=3),
        "carrying": names(PERMISSIONS, 1),
        "closed": st.booleans(),
    }
)
TIERS = st.fixed_dictionaries({"max_custom_tools": st.sampled_from([None, None, 0, 2, 50])})
NEVER = ({"days": ["mon"], "from": "00:00", "to": "00:01"},)


@st.composite
def catalogs(draw: Any) -> Snapshot:
    tools = [made.tool(name, **draw(TOOL_FIELDS)) for name in TOOLS[: draw(st.integers(0, 6))]]
    tree = draw(TREE)
    parents = dict(zip(["write", "a/b", "Read"], tree["parents"], strict=True))
    groups = [
        made.group(
            name,
            parent=parents.get(name),
            permissions=tree["carrying"] if name == "write" else (),
            schedule=NEVER if name == "read" and tree["closed"] else (),
        )
        for name in GROUPS
        if name != "*"
    ]
    return made.snapshot(tools, groups, **draw(TIERS))


@st.composite
def callers(draw: Any) -> Caller:
    """A caller with or without a narrowed token; the account's grants are in memory."""
    only = draw(st.none() | names(TOOLS))
    caller = made.agent(
        granted_groups=frozenset(draw(names(GROUPS, 4))),
        granted_permissions=frozenset(draw(names([*PERMISSIONS, "*"], 2))),
        token_tools=None if only is None else frozenset(only),
        active=draw(st.sampled_from([True, True, True, False])),
    )
    held = ToolGrants(
        every=draw(st.booleans()),
        tools=frozenset(made.tool(name).id for name in draw(names(TOOLS))),
        groups=frozenset(draw(names(GROUPS[:4]))),
    )
    return grants.suppose(caller, held)


def requests() -> st.SearchStrategy[EffectiveRequest]:
    return st.builds(
        EffectiveRequest.from_options,
        st.none() | names(GROUPS),
        st.none() | st.sampled_from(STATES),
    )


def refusal_of(work: Callable[[], Any]) -> Refused | None:
    try:
        work()
    except Refused as refusal:
        return refusal
    return None


def gates_pass(explanation: Explanation, tool: Any) -> bool:
    question = explanation.question(tool)
    return all(verdict.passed for verdict in gates.explain(question))


@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_what_is_listed_is_what_is_explained_as_passed(snapshot, caller, asked):
    explanation = Explanation(caller, asked, snapshot, everything=True)
    listed = {tool.name for tool in usable_tools(caller, asked, snapshot)}
    passed = {tool.name for tool in snapshot.sorted_tools if gates_pass(explanation, tool)}
    assert listed == passed
    available = {tool.name for tool in snapshot.sorted_tools if explanation.available(tool)}
    assert available == (passed if explanation.allowed else set())


@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_a_call_is_refused_by_the_first_gate_that_is_explained_as_refusing(snapshot, caller, asked):
    for tool in snapshot.sorted_tools:
        question = question_of(caller, tool, asked, snapshot)
        refusals = [one for one in gates.explain(question) if not one.passed]
        refusal = refusal_of(lambda asking=question: gates.authorize(asking))
        if refusal is None:
            assert refusals == []
        else:
            first = refusals[0]
            assert (refusal.code, refusal.details["gate"]) == (first.code, first.gate)
            assert refusal.message == reason_for_caller(first, question)


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_a_request_is_refused_as_it_is_explained(snapshot, caller, asked):
    rows = Explanation(caller, asked, snapshot, everything=True).request
    refusals = [row.code for row in rows if not row.passed]
    standing = not call_gates.is_active(RequestQuestion(caller, asked, snapshot, CURRENT)).passed
    beyond = refusal_of(lambda: check_groups(caller, asked, snapshot))
    assert [standing, bool(beyond)] == [not row.passed for row in rows]
    assert beyond is None or beyond.code in refusals


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_one_tool_is_shown_exactly_when_the_list_shows_it(snapshot, caller, asked):
    seen = {tool.name for tool in visible_tools(caller, snapshot)}
    for name in snapshot.tools:
        if name in seen:
            assert visible_tool(caller, snapshot, name).name == name
        else:
            with pytest.raises(NotFound):
                visible_tool(caller, snapshot, name)
        every_group = EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
        now = group_open(question_of(caller, snapshot.tools[name], every_group, snapshot)).passed
        reached = name in seen and caller.active and now
        assert reached == reaches(caller, snapshot.tools[name], snapshot)


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_a_caller_sees_and_explains_every_tool_it_may_use(snapshot, caller, asked):
    """Applies where the request stays within the grants; any other is refused as a whole."""
    explanation = Explanation(caller, asked, snapshot, everything=False)
    usable = {tool.name for tool in snapshot.sorted_tools if explanation.available(tool)}
    assert usable <= {tool.name for tool in visible_tools(caller, snapshot)}
    assert usable <= {tool.name for tool in explanation.tools}


def test_a_tool_in_no_group_is_explained_to_a_caller_with_all_groups():
    snapshot = made.snapshot([made.tool("loose", group=[])], [])
    caller = grants.suppose(made.agent(granted_groups=frozenset({"*"})), ToolGrants(every=True))
    explanation = Explanation(
        caller, EffectiveRequest.from_options(["*"], None), snapshot, everything=False
    )
    assert [tool.name for tool in explanation.tools] == ["loose"]


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests(), names(GROUPS))
def test_requesting_more_groups_never_takes_a_tool_away(snapshot, caller, asked, more):
    wider = replace(asked, groups=asked.groups | frozenset(more))
    before = {tool.name for tool in usable_tools(caller, asked, snapshot)}
    assert before <= {tool.name for tool in usable_tools(caller, wider, snapshot)}


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests(), st.data())
def test_taking_a_grant_away_never_adds_a_tool(snapshot, caller, asked, data):
    held = grants.find_grants(caller, snapshot.revision)
    fewer = data.draw(st.sets(st.sampled_from(sorted(caller.granted_permissions) or [""])))
    less = ToolGrants(every=False, tools=held.tools, groups=frozenset())
    poorer = replace(
        grants.suppose(caller, less), granted_permissions=caller.granted_permissions & fewer
    )
    after = {tool.name for tool in usable_tools(poorer, asked, snapshot)}
    assert after <= {tool.name for tool in usable_tools(caller, asked, snapshot)}


@pytest.mark.part("matrices")
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests(), st.data())
def test_taking_a_group_away_never_adds_a_tool(snapshot, caller, asked, data):
    kept = data.draw(st.sets(st.sampled_from(sorted(caller.granted_groups) or [""])))
    poorer = replace(caller, granted_groups=caller.granted_groups & kept)
    rich = Explanation(caller, asked, snapshot, everything=True)
    poor = Explanation(poorer, asked, snapshot, everything=True)
    left = {tool.name for tool in snapshot.sorted_tools if poor.available(tool)}
    assert left <= {tool.name for tool in snapshot.sorted_tools if rich.available(tool)}


@pytest.mark.django_db
@EVERY_EXAMPLE
@given(catalogs(), callers(), requests())
def test_an_agent_never_learns_a_name_it_may_not_know(snapshot, caller, asked):
    """Tool names are t0 to t5, and names of groups do not occur as ordinary words."""
    explanation = Explanation(caller, asked, snapshot, everything=False)
    may_know = {tool.name for tool in explanation.tools}
    secret = {"a/b", "Read"} - caller.granted_groups - asked.groups
    secret = set() if "*" in caller.granted_groups else secret
    for tool in explanation.tools:
        for row in explanation.gates_of(tool):
            said = f"{row.reason} {row.remedy}"
            assert not [name for name in secret if name in said]
            assert not [name for name in TOOLS if name in said and name not in may_know]


@pytest.fixture
def mixed(organization: Organization) -> Organization:
    """A tool for each gate that may refuse, in an organization of a small tier."""
    by = factories.actor(organization)
    factories.tool(organization, "open")
    factories.tool(organization, "elsewhere", group=["admin"])
    factories.tool(organization, "later", available_in_states=["analysis"])
    factories.tool(organization, "never", available_in_states=[])
    factories.tool(organization, "powerful", required_permissions=["tool.power"])
    factories.tool(organization, "asked", requires_confirmation=True)
    shut = factories.tool(organization, "shut")
    set_enabled(tool=shut, enabled=False, by=by)
    return organization


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize("tier", ["Enterprise", "Teams", "Core"])
@pytest.mark.parametrize("group", [None, ["read-only"], ["default", "write"], ["admin"], []])
def test_admission_accepts_what_is_explained_as_available(mixed, tier, group):
    tiers = mixed.tier._meta.model.objects
    set_tier(organization=mixed, tier=tiers.get(name=tier), by=factories.actor(mixed))
    agent = factories.agent(mixed, groups=["default", "read-only", "write"])
    caller, asked = factories.caller(agent), EffectiveRequest.from_options(group, None)
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    explanation = Explanation(caller_of_agent(agent), asked, snapshot, everything=True)
    for tool in snapshot.sorted_tools:
        first = next((row for row in explanation.request if not row.passed), None)
        refused_by = first or explanation.explain(tool).refused_by
        parameters = _parameters(tool)
        call = factories.call(tool.name, parameters, group=group)
        refusal = refusal_of(lambda asking=call: admit(caller, asking))
        expected = refused_by.code if refused_by else None
        assert (refusal.code if refusal else None) == expected, tool.name
        if refusal is None:
            held = Execution.objects.get(pk=call.id).status == "RequiresConfirmation"
            assert held == explanation.explain(tool).needs_approval


def _parameters(tool: Any) -> dict[str, Any]:
    """The required parameters, with values of the required types."""
    schema = tool.definition.raw["input_schema"]
    kinds = {"string": "x", "object": {}, "array": [], "integer": 1, "number": 1, "boolean": True}
    found = {}
    for name in schema.get("required", []):
        rule = schema["properties"][name]
        kind = rule.get("type", "string")
        found[name] = rule["enum"][0] if rule.get("enum") else kinds[kind]
    return found
