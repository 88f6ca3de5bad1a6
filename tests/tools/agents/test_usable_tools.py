"""What a planner is given: the tools that are available in the state the workflow will have
reached."""

import pytest

from tests.tools import snapshots
from tests.tools.snapshots import anybody, moving
from tools.agents.planning.plan_language import PlanStep
from tools.agents.usable_tools import MOST_STATES, MOST_TOOLS, UsableTools, build_workflow_toolbox
from tools.definitions.texts.tool_formats import planner_paragraph
from tools.policy.questions import EffectiveRequest

BOTH = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a"],
    "additionalProperties": False,
}


def usable(*tools):
    return UsableTools(anybody(), frozenset(["default"]), snapshots.snapshot(*tools))


def step(tool, name="one", **arguments):
    return PlanStep(name, tool, arguments, (), 1.0, "")


def test_states_are_walked_through_as_success_would_lead():
    tools = moving("in", None, "inside", parameters=[]), moving("use", ["inside"], parameters=[])
    assert usable(*tools).plan_flaws([step("in"), step("use")], "undefined") == []
    (flaw,) = usable(*tools).plan_flaws([step("use"), step("in")], "undefined")
    assert flaw.startswith("step one: The tool use is not available in the state 'undefined'")


def test_a_tool_that_leads_nowhere_leaves_the_state():
    assert usable(moving("t", None)).state_after("t", "here") == "here"
    assert usable().state_after("unknown", "here") == "here"


def test_an_unknown_tool_and_one_out_of_service_are_barred():
    assert usable().refusal_of("none", "undefined").code == "tool_not_found"
    assert (
        usable(snapshots.tool("t", "disabled")).refusal_of("t", "undefined").code == "tool_disabled"
    )


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"a": "x"}, 0),
        ({"a": 1}, 1),
        ({}, 1),
        ({"a": "x", "c": 1}, 1),
        ({"a": {"$step": "s"}}, 0),
        ({"a": {"$step": "s"}, "b": "no list"}, 1),
        ({"a": {"$step": "s"}, "c": 1}, 1),
        ({"b": [{"$step": "s"}]}, 1),
        ({"a": "x", "b": ["y", {"$step": "s"}]}, 0),
        ({"a": "x", "b": [1, {"$step": "s"}]}, 1),
    ],
)
def test_arguments_are_looked_at_as_far_as_no_reference_stands_in_them(arguments, count):
    tool = snapshots.tool("t", parameters=None, input_schema=BOTH)
    assert len(usable(tool).plan_flaws([step("t", **arguments)], "undefined")) == count


def test_a_tools_own_way_of_validation_holds():
    tool = snapshots.tool("t", argument_validation="warn")
    assert usable(tool).plan_flaws([step("t")], "undefined") == []


def test_a_planner_sees_only_the_reachable_states():
    tools = [
        moving("a", ["undefined"], "one"), moving("b", ["one"], "two"),
        moving("c", ["two"]), moving("d", ["elsewhere"]),
    ]  # fmt: skip
    asked = EffectiveRequest(frozenset(["default"]), "undefined")
    box = build_workflow_toolbox(anybody(), asked, snapshots.snapshot(*tools), "?")
    assert [tool.name for tool in box.tools] == ["a", "b", "c"]


def test_a_workflow_without_end_is_followed_as_far_as_its_bound():
    tools = [moving(f"t{at:03}", [f"s{at}"], f"s{at + 1}") for at in range(100)]
    asked = EffectiveRequest(frozenset(["default"]), "s0")
    box = build_workflow_toolbox(anybody(), asked, snapshots.snapshot(*tools), "?")
    assert len(box.tools) + box.left_out == MOST_STATES < MOST_TOOLS


def test_a_tool_in_a_workflow_says_where_it_is_where_it_leads_and_what_it_gives():
    gives = {"type": "object", "properties": {"rows": {"type": "array"}, "any": True}}
    text = planner_paragraph(moving("t", ["b", "a"], "c", output_schema=gives).definition)
    assert "[available in states: a, b; leads to state: c; gives: " in text
    assert "rows (array)" in text and "any (any)" in text
    assert "[available in states: all]" in planner_paragraph(moving("t", None).definition)
