"""Plans are parsed into ordered steps, or rejected with an error message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.agents.planning.plan_language import (
    MOST_STEPS,
    MOST_TEXT,
    AgentPlan,
    InvalidPlan,
    parse_plan,
)


def step(name="one", *needs, **more):
    raw = {"id": name, "tool": "look", "arguments": {}, "depends_on": [*needs], "confidence": 0.9}
    return {**raw, "why": "", **more}


def text(*steps):
    return json.dumps({"steps": list(steps)})


def refers(name, path="/output"):
    return {"what": [{"$step": name, "path": path}]}


def test_a_plan_is_read_with_all_that_it_says():
    (found,) = parse_plan(text(step("find", arguments={"q": 1}, confidence=1, why="because")))
    assert (found.id, found.tool, found.arguments) == ("find", "look", {"q": 1})
    assert (found.depends_on, found.confidence, found.why) == ((), 1.0, "because")


def test_a_plan_may_have_no_steps():
    assert parse_plan(text()) == []


def test_steps_are_taken_after_what_they_depend_on_else_as_they_were_written():
    plan = parse_plan(text(step("a", "c"), step("b"), step("c", "d"), step("d")))
    assert [one.id for one in plan] == ["b", "d", "c", "a"]


def test_who_refers_to_a_step_depends_on_it():
    plan = parse_plan(text(step("a", arguments=refers("b")), step("b")))
    assert [one.id for one in plan] == ["b", "a"] and plan[1].depends_on == ("b",)


def test_steps_of_earlier_plans_may_be_depended_on_and_their_ids_not_used_again():
    known = frozenset({"old"})
    assert parse_plan(text(step("a", "old")), known=known)[0].depends_on == ("old",)
    with pytest.raises(InvalidPlan, match=r"steps\.0\.id is the id of another step: old"):
        parse_plan(text(step("old")), known=known)


def test_numbers_of_steps_follow_that_of_their_thought():
    plan = AgentPlan(4, tuple(parse_plan(text(step("a"), step("b")))))
    assert [(number, one.id) for number, one in plan.numbered()] == [(5, "a"), (6, "b")]
    assert plan.next_number == 7


@pytest.mark.parametrize("mark", ["```json\n", "```\n"])
def test_the_marks_that_models_set_around_code_do_no_harm(mark):
    assert [one.id for one in parse_plan(f"\n{mark}{text(step())}\n```\n")] == ["one"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "not one JSON document"),
        ("Here is my plan: " + text(step()), "not one JSON document"),
        (text(step()) + text(step("two")), "not one JSON document"),
        ('{"steps": [], "steps": []}', "stands twice"),
        ('{"steps": [{"confidence": NaN}]}', "not a number JSON knows"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ('{"steps": ["\\u0000"]}', "NUL"),
        ("[]", 'nothing but "steps"'),
        ('{"steps": [], "answer": "42"}', 'nothing but "steps"'),
        ('{"steps": {}}', "steps must be a list"),
        ("x" * (MOST_TEXT + 1), "longer than"),
        (text(*(step(f"s{number}") for number in range(MOST_STEPS + 1))), "20 is the most"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_reason(said, words):
    with pytest.raises(InvalidPlan, match=words):
        parse_plan(said)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("text", "steps.0 must be an object"),
        (step(tol="look"), "steps.0.tol is not a field of a step"),
        (step("Über"), "steps.0.id must begin with a letter"),
        (step(id=None), "steps.0.id must begin"),
        (step(tool=""), "steps.0.tool must be a text"),
        (step(tool=["look"]), "steps.0.tool must be a text"),
        (step(tool="x" * 129), "steps.0.tool must be a text"),
        (step(arguments=[]), "steps.0.arguments must be an object"),
        (step(arguments={"$step": "one"}), "steps.0.arguments must be an object"),
        (step(arguments=refers("one")), "$step names no other step"),
        (step(arguments=refers("none")), "$step names no other step"),
        (step(arguments=refers(["one"])), "$step names no other step"),
        (step(arguments=refers("two", "/parameters")), "path must be /output"),
        (step(arguments={"a": {"$input": "/q"}}), "may be $step or $literal, not $input"),
        (step(arguments={"a": {"$text": "{{ x }}"}}), "may be $step or $literal, not $text"),
        (step(depends_on="two"), "steps.0.depends_on must be a list"),
        (step(depends_on=[["two"]]), "steps.0.depends_on must be a list"),
        (step("one", "none"), "steps.0.depends_on names no other step: none"),
        (step("one", "one"), "steps.0.depends_on names no other step: one"),
        (step("two"), "steps.1.id is the id of another step: two"),
        (step(confidence=1.01), "steps.0.confidence must be a number from 0 to 1"),
        (step(confidence=-0.1), "steps.0.confidence"),
        (step(confidence="0.5"), "steps.0.confidence"),
        (step(confidence=True), "steps.0.confidence"),
        (step(confidence=None), "steps.0.confidence"),
        (step(why=3), "steps.0.why"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_with_its_place(raw, words):
    with pytest.raises(InvalidPlan) as refused:
        parse_plan(text(raw, step("two")))
    assert words in str(refused.value)


@pytest.mark.parametrize("arguments", [{}, refers("a")])
def test_steps_that_wait_for_each_other_are_refused(arguments):
    circle = step("b", "a", arguments={}), step("a", "c"), step("c", "b", arguments=arguments)
    with pytest.raises(InvalidPlan, match="in a circle: b, a, c"):
        parse_plan(text(step("free"), *circle))


def test_references_are_bounded():
    many = {"list": [{"$step": "two"}] * 101}
    with pytest.raises(InvalidPlan, match="100 references"):
        parse_plan(text(step(arguments=many), step("two")))


def test_ten_of_many_flaws_are_reported():
    with pytest.raises(InvalidPlan, match="and 20 more") as refused:
        parse_plan(text(*({} for _ in range(10))))
    assert len(str(refused.value)) < 1_500


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(["a", "$step"]),
    lambda part: (
        st.lists(part, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["id", "tool", "arguments", "depends_on", "confidence", "why", "$step"]
            ),
            part,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=4))
def test_whatever_a_model_says_is_a_plan_in_order_or_unfit(steps):
    try:
        plan = parse_plan(json.dumps({"steps": steps}))
    except InvalidPlan:
        return
    before: set[str] = set()
    for one in plan:
        assert before.issuperset(one.depends_on) and 0 <= one.confidence <= 1
        before.add(one.id)
