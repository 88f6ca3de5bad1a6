"""The picture of a chain: its steps below each other, and the ways of what they give back."""

from itertools import pairwise

import pytest

from tools.definitions.chains.chain_document import Chain
from tools.ui.chains.chain_drawing import StepStatus, condition_words, draw_chain


def step(name, **more):
    return {"id": name, "tool_name": "echo", "parameters": {}} | more


def drawn(*steps, run=None, **more):
    return draw_chain(Chain({"steps": list(steps), **more}), ["url"], run)


def test_steps_stand_below_each_other_between_what_goes_in_and_what_comes_out():
    found = drawn(step("one"), step("two"))
    assert [box.name for box in found.boxes] == ["Takes", "one", "two", "Gives back"]
    assert all(one.bottom < other.y for one, other in pairwise(found.boxes))
    assert found.height >= found.boxes[-1].bottom


def test_a_value_goes_from_its_step_to_each_that_looks_at_it():
    uses = {"text": {"$step": "one", "path": "/output/a"}}
    found = drawn(step("one"), step("two"), step("three", parameters=uses), output={"$step": "one"})
    values = [line for line in found.lines if line.data]
    assert len(values) == 1 and len(values[0].arrows) == 2


def test_ways_that_pass_each_other_have_lanes_of_their_own():
    found = drawn(
        step("one"),
        step("two"),
        step("three", parameters={"a": {"$step": "one"}}),
        step("four", parameters={"a": {"$step": "two"}}),
    )
    first, second, _ = (line.path.split("V")[0].split("H")[1] for line in found.lines if line.data)
    assert first != second
    assert found.width > drawn(step("one")).width


def test_a_template_and_a_condition_look_at_steps_too():
    text = {"text": {"$text": "{{ steps.one.output }} and {{ steps['two'].output }}"}}
    found = drawn(step("one"), step("two"), step("three", parameters=text))
    assert sum(line.data for line in found.lines) == 3  # the output is the last step's
    when = {"all": [{"succeeded": "one"}, {"not": {"failed": "two"}}]}
    found = drawn(step("one"), step("two"), step("three", when=when))
    assert sum(line.data for line in found.lines) == 3


def test_a_crowd_of_ways_is_counted_instead_of_drawn_over():
    crowd = [step(f"s{at}") for at in range(12)]
    last = step("last", parameters={str(at): {"$step": f"s{at}"} for at in range(12)})
    found = drawn(*crowd, last)
    assert found.unseen == 4


def test_a_step_says_what_is_not_usual_of_it():
    found = drawn(
        step("one"),
        step(
            "two", for_each={"$input": "/to"}, parallel=3, on_error="compensate",
            retries={"attempts": 4}, compensate_with={"tool_name": "undo", "parameters": {}},
        ),
    )  # fmt: skip
    assert found.boxes[2].words == [
        "for each of input/to, 3 at once", "tried up to 4 times",
        "if it fails, undoes what was done", "undone by undo",
    ]  # fmt: skip


def test_a_long_line_is_cut_and_is_whole_in_the_tooltip():
    name = "x" * 90
    found = drawn({"id": "one", "tool_name": name, "parameters": {}})
    assert found.boxes[1].lines[0].endswith("…") and name in found.boxes[1].tooltip


def test_a_run_says_how_each_step_stands():
    found = drawn(step("one"), run={"one": StepStatus("Success", "done")})
    assert found.boxes[1].status.words == "done"
    assert "done" in found.boxes[1].tooltip


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"equals": [{"$step": "a", "path": "/output/b"}, True]}, "a/b = true"),
        ({"not": {"all": [{"failed": "a"}, {"skipped": "b"}]}}, "not (a failed and b skipped)"),
        ({"exists": {"$item": "/x"}}, "there is item/x"),
        ({"any": [{"less": [1, 2]}, {"contains": ["ab", {"$text": "x"}]}]},
         '1 < 2 or "ab" contains a text'),
        ({"greater": [{"$literal": {"$step": "a"}}, 0]}, '{"$step": "a"} > 0'),
    ],
)  # fmt: skip
def test_a_condition_in_words(condition, words):
    assert condition_words(condition) == words
