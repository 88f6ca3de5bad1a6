"""Availability: which tools exist for a request, by specification S1, 4.2, and rulings 1 to 3."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.snapshots import anybody, closed_now, group, snapshot, tool
from tools.authorization.facts import question_of
from tools.authorization.listings import usable_tools
from tools.definitions.tool import ToolDefinition
from tools.policy.availability import group_open, in_group, matches_groups, matches_state
from tools.policy.questions import EffectiveRequest

GROUPS = [
    # the tool's groups, the requested groups, whether the tool is available
    (None, None, True),
    (None, ["default"], True),
    (None, [], False),
    (None, ["read-only"], False),
    (None, ["*"], True),
    ([], None, False),
    ([], ["default"], False),
    ([], [], False),
    ([], ["*"], True),
    (["read-only"], None, False),
    (["read-only"], ["default"], False),
    (["read-only"], ["read-only"], True),
    (["read-only"], ["Read-Only"], False),
    (["read-only"], [" read-only"], False),
    (["read-only"], ["read-"], False),
    (["read-only"], ["read-*"], False),
    (["read-only", "knowledge"], ["knowledge", "write"], True),
    (["read-only", "default"], None, True),
    (["*"], None, False),
    (["*"], ["default"], False),
    (["*"], ["anything"], False),
    (["*"], ["*"], True),
    (["a"], ["b", "*"], True),
]
STATES = [
    (None, "undefined", True),
    (None, "analysis", True),
    (None, "*", True),
    ([], "undefined", False),
    ([], "*", False),
    (["*"], "anything", True),
    (["*", "analysis"], "other", True),
    (["analysis"], "analysis", True),
    (["analysis"], "Analysis", False),
    (["analysis"], "analysis ", False),
    (["analysis"], "undefined", False),
    (["analysis"], "*", False),
    (["analysis"], "", False),
    (["undefined"], None, True),
    (["analysis"], None, False),
    (["analysis", "results"], "results", True),
]


@pytest.mark.parametrize(("tool", "requested", "there"), GROUPS)
def test_a_tool_is_there_when_its_groups_meet_the_requested_ones(tool, requested, there):
    definition = ToolDefinition({"group": tool})
    assert (
        matches_groups(definition.groups, EffectiveRequest.from_options(requested, None).groups)
        is there
    )


@pytest.mark.parametrize(("tool", "current", "there"), STATES)
def test_a_tool_is_there_when_the_current_state_is_one_of_its_own(tool, current, there):
    definition = ToolDefinition({"available_in_states": tool})
    assert (
        matches_state(definition.states, EffectiveRequest.from_options(None, current).state)
        is there
    )


# Specification S1, 11.2: nested groups.
TREE = {"knowledge/read": "knowledge", "knowledge/write": "knowledge", "knowledge": "everything"}
NESTED = [
    # the tool's groups, the requested groups, whether the tool is available
    (["knowledge/read"], ["knowledge/read"], True),
    (["knowledge/read"], ["knowledge"], True),
    (["knowledge/read"], ["everything"], True),
    (["knowledge/read"], ["knowledge/write"], False),
    (["knowledge"], ["knowledge/read"], False),
    (["knowledge/read"], None, False),
    (["knowledge/read"], ["knowledge/"], False),
    (["knowledge/read/deeper"], ["knowledge/read"], False),
    (["knowledge/read"], ["*"], True),
    (["knowledge/read"], [], False),
    ([], ["knowledge"], False),
    (None, ["everything"], False),
]
CLOSED = [
    # the tool's groups, the closed groups, the requested groups, whether the tool is open
    (["knowledge/read"], ["knowledge"], ["knowledge"], False),
    (["knowledge/read"], ["knowledge"], ["knowledge/read"], True),
    (["knowledge/read"], ["knowledge"], ["knowledge", "knowledge/read"], True),
    (["knowledge/read"], ["knowledge"], ["everything"], False),
    (["knowledge/read"], ["knowledge"], ["*"], True),
    (["knowledge/read"], ["everything"], ["knowledge"], True),
    (["knowledge/read"], ["knowledge/read"], ["knowledge/read"], False),
    (["knowledge/read"], ["knowledge/read"], ["knowledge"], False),
    (["knowledge/read"], ["knowledge/read"], ["*"], False),
    (["knowledge/read", "knowledge/write"], ["knowledge/write"], ["knowledge"], True),
    (["knowledge/read", "other"], ["knowledge/read"], ["*"], True),
    (["other"], ["knowledge"], ["other"], True),
    (None, ["default"], None, False),
    ([], ["default", "other"], ["*"], True),
]


def question(groups, requested, closed=()):
    tree = {*TREE, *TREE.values(), "other", "default"}
    hours = {name: closed_now() if name in closed else [] for name in tree}
    made = [group(name, parent=TREE.get(name), schedule=hours[name]) for name in tree]
    echo = tool("echo", group=groups)
    return question_of(
        anybody(), echo, EffectiveRequest.from_options(requested, None), snapshot(echo, *made)
    )


@pytest.mark.parametrize(("groups", "requested", "there"), NESTED)
def test_a_tool_in_a_group_is_also_in_its_parents(groups, requested, there):
    assert in_group(question(groups, requested)).passed is there


@pytest.mark.parametrize(("groups", "closed", "requested", "there"), CLOSED)
def test_one_open_way_to_a_tool_is_enough(groups, closed, requested, there):
    asked = question(groups, requested, closed)
    assert group_open(asked).passed is there
    assert [one.name for one in usable_tools(asked.caller, asked.asked, asked.snapshot)] == (
        ["echo"] if there else []
    )


def test_only_the_groups_that_are_in_the_way_are_blamed():
    asked = question(["knowledge/read"], ["knowledge"], ["knowledge", "everything", "other"])
    verdict = group_open(asked)
    assert (verdict.gate, verdict.code) == ("group_open", "group_closed")
    assert verdict.reason.count("is closed") == 1
    assert "The group knowledge is closed" in verdict.reason


def test_of_a_tool_that_is_not_reached_nothing_is_said_to_be_closed():
    asked = question(["knowledge/read"], ["other"], ["knowledge", "other"])
    assert not in_group(asked).passed
    assert group_open(asked).passed


NAMES = ["default", "a", "b", "c", "A", "a ", "*"]
STATE_NAMES = ["undefined", "s", "S", "*", ""]
TOOLS = st.lists(
    st.tuples(
        st.none() | st.lists(st.sampled_from(NAMES), unique=True),
        st.none() | st.lists(st.sampled_from(STATE_NAMES[:-1]), unique=True),
    ),
    max_size=6,
)
REQUESTED = st.none() | st.lists(st.sampled_from(NAMES), unique=True)
PARENTS = st.lists(st.sampled_from([None, "default", "a", "b", "c", "A"]), min_size=5, max_size=5)
CURRENT = st.none() | st.sampled_from(STATE_NAMES)


def tree_of(parents):
    """The parent of each group is an earlier one, or none."""
    names = ["default", "a", "b", "c", "A"]
    return {
        name: parent if parent in names[:at] else None
        for at, (name, parent) in enumerate(zip(names, parents, strict=True))
    }


def is_available(groups, states, requested, current, tree, closed):
    """The oracle: ruling 1, literally."""
    requested = ["default"] if requested is None else requested
    current = current or "undefined"  # an empty text is the state `undefined`, too
    if not (states is None or "*" in states or current in states):
        return False
    ways = []
    for name in ["default"] if groups is None else groups:
        way, above = [], name
        while above is not None:
            way.append(above)
            if above in requested:
                ways.append(tuple(way))
            above = tree.get(above)
        if "*" in requested:
            ways.append((name,))
    if "*" in requested and groups == []:
        return True
    return any(not closed.intersection(way) for way in ways)


@given(
    TOOLS, REQUESTED, CURRENT, PARENTS, st.frozensets(st.sampled_from(["default", "a", "b", "c"]))
)
@settings(max_examples=200, deadline=None)
def test_the_tools_that_exist_are_those_of_the_ruling(made, requested, current, parents, closed):
    tree = tree_of(parents)
    hours = {name: closed_now() if name in closed else [] for name in tree}
    groups = [group(name, parent=tree[name], schedule=hours[name]) for name in tree]
    tools = [
        tool(f"t{at}", group=held, available_in_states=states)
        for at, (held, states) in enumerate(made)
    ]
    asked = EffectiveRequest.from_options(requested, current)
    found = usable_tools(anybody(), asked, snapshot(*tools, *groups))
    assert [one.name for one in found] == [
        f"t{at}"
        for at, (held, states) in enumerate(made)
        if is_available(held, states, requested, current, tree, closed)
    ]
