"""Which tools exist for a request: specification S1, 4.2, as rulings 1 to 3 read it."""

import pytest

from tools.definitions.tool import ToolDefinition
from tools.policy.availability import matches_groups, matches_state
from tools.policy.decision import Asked

GROUPS = [
    # the tool's groups, what is requested, whether the tool is there
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
    assert matches_groups(definition.groups, Asked.of(requested, None).groups) is there


@pytest.mark.parametrize(("tool", "current", "there"), STATES)
def test_a_tool_is_there_when_the_current_state_is_one_of_its_own(tool, current, there):
    definition = ToolDefinition({"available_in_states": tool})
    assert matches_state(definition.states, Asked.of(None, current).state) is there
