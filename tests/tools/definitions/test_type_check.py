"""Type checks of chains: whether steps fit each other, by the schemas of their tools."""

import sys
from itertools import count

import pytest

from tools.definitions.chains.chain_document import MOST_FLAWS, MOST_REFERENCES, Chain, parse_chain
from tools.definitions.chains.type_check import Interface, find_type_doubts
from tools.definitions.schemas.schema_parts import inline_references

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def objects(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


TOOLS = {
    "page": Interface(
        objects(["url"], url=TEXT),
        objects(
            ["text", "links"],
            text=TEXT,
            title=TEXT,
            status=WHOLE,
            links={"type": "array", "items": objects(["href"], href=TEXT)},
        ),
    ),
    "say": Interface(objects(["text"], text=TEXT, loud={"type": "boolean"}), TEXT),
    "count": Interface(objects(["number"], number=WHOLE), WHOLE),
    "vague": Interface(objects(x=True)),
    "tree": Interface(
        objects(),
        {"$ref": "#/$defs/t", "$defs": {"t": objects(["name"], name=TEXT)}},
    ),
}
OWN = Interface(objects(["url"], url=TEXT, note=TEXT, many={"type": "array", "items": TEXT}))


def find_mismatches(*steps, tools=TOOLS):
    """Place and certainty of each mismatch in the last step."""
    chain = Chain({"steps": list(steps)})
    return [(one.place, one.certain) for one in find_type_doubts(chain, OWN, tools)]


def step(name, tool, parameters, **more):
    return {"id": name, "tool_name": tool, "parameters": parameters} | more


PAGE = step("p", "page", {"url": {"$input": "/url"}})


def of_page(path):
    return {"$step": "p", "path": f"/output{path}"}


@pytest.mark.parametrize(
    "last",
    [
        step("s", "say", {"text": of_page("/text")}),
        step("s", "say", {"text": of_page("/links/0/href")} | {"loud": True}),
        step("s", "count", {"number": {"$step": "p", "path": "/output/status", "default": 0}}),
        step("s", "say", {"text": {"$text": "{{ input.url }}"}}),
        step("s", "say", {"text": {"$literal": "x"}}),
        step("s", "say", {"text": {"$item": ""}}, for_each={"$input": "/many", "default": []}),
        step("s", "say", {"text": {"$item": "/href"}}, for_each=of_page("/links")),
        step("s", "vague", {"x": of_page("")}),
    ],
)
def test_what_fits_is_no_flaw(last):
    assert not any(certain for _, certain in find_mismatches(PAGE, last))


@pytest.mark.parametrize(
    ("last", "place"),
    [
        (step("s", "count", {"number": of_page("/text")}), "steps.1.parameters.number"),
        (step("s", "say", {"text": of_page("")}), "steps.1.parameters.text"),
        (step("s", "say", {"text": of_page("/nowhere")}), "steps.1.parameters.text"),
        (step("s", "say", {"text": of_page("/text/0")}), "steps.1.parameters.text"),
        (step("s", "say", {}), "steps.1.parameters.text"),
        (step("s", "say", {"text": "x", "other": 1}), "steps.1.parameters.other"),
        (step("s", "say", {"text": 7}), "steps.1.parameters.text"),
        (step("s", "say", {"text": {"$input": "/nowhere"}}), "steps.1.parameters.text"),
        (step("s", "say", {"text": {"$literal": 7}}), "steps.1.parameters.text"),
        (step("s", "count", {"number": {"$text": "1"}}), "steps.1.parameters.number"),
        (step("s", "say", {"text": "x"}, for_each=of_page("/text")), "steps.1.for_each"),
        (
            step("s", "count", {"number": {"$item": "/href"}}, for_each=of_page("/links")),
            "steps.1.parameters.number",
        ),
        (
            step("s", "say", {"text": "x"}, compensate_with={
                "tool_name": "count", "parameters": {"number": {"$step": "s"}}}),
            "steps.1.compensate_with.parameters.number",
        ),
    ],
)  # fmt: skip
def test_what_can_never_fit_is_a_flaw_with_its_place(last, place):
    assert (place, True) in find_mismatches(PAGE, last)


def test_what_undoes_an_item_is_given_what_that_item_gave():
    undo = {"tool_name": "count", "parameters": {"number": {"$step": "s"}}}
    loop = step("s", "count", {"number": 1}, for_each=of_page("/links"), compensate_with=undo)
    assert find_mismatches(PAGE, loop) == []


def test_what_may_be_missing_is_a_warning():
    assert find_mismatches(PAGE, step("s", "say", {"text": of_page("/title")})) == [
        ("steps.1.parameters.text", False)
    ]


def test_an_output_without_a_schema_may_be_anything():
    first = step("v", "vague", {})
    last = step("s", "say", {"text": {"$step": "v", "path": "/output/some/where"}})
    assert find_mismatches(first, last) == [("steps.1.parameters.text", False)]


def test_a_loop_gives_a_list_of_what_its_tool_gives():
    loop = step("l", "count", {"number": {"$item": ""}}, for_each=[1, 2])
    assert find_mismatches(loop, step("s", "say", {"text": {"$step": "l"}})) == [
        ("steps.1.parameters.text", True)
    ]
    first = {"$step": "l", "path": "/output/0"}
    assert find_mismatches(loop, step("s", "count", {"number": first})) == [
        ("steps.1.parameters.number", False)
    ]


def test_references_of_a_schema_are_followed():
    first = step("t", "tree", {})
    good = step("s", "say", {"text": {"$step": "t", "path": "/output/name"}})
    bad = step("s", "count", {"number": {"$step": "t", "path": "/output/name"}})
    assert find_mismatches(first, good) == []
    assert find_mismatches(first, bad) == [("steps.1.parameters.number", True)]


def test_a_schema_that_refers_to_itself_ends_somewhere():
    node = {"$ref": "#/$defs/n", "$defs": {"n": objects(child={"$ref": "#/$defs/n"})}}
    tools = TOOLS | {"deep": Interface(objects(), node)}
    last = step("s", "vague", {"x": {"$step": "d", "path": "/output/child/child"}})
    assert not any(
        certain for _, certain in find_mismatches(step("d", "deep", {}), last, tools=tools)
    )


def test_a_parameter_may_have_the_name_of_a_word_of_schemas():
    tools = TOOLS | {"odd": Interface(objects(["definitions"], definitions=TEXT), TEXT)}
    assert find_mismatches(step("o", "odd", {"definitions": "x"}), tools=tools) == []


def test_a_schema_in_which_every_member_is_like_itself_is_compared_all_the_same():
    endless = {"type": "object", "properties": {f"p{at}": {"$ref": "#"} for at in range(100)}}
    made = inline_references(endless, endless)
    assert len(made["properties"]) == 100


STATUS = of_page("/status") | {"default": 0}


def of_whole(*steps, gives=True, **more):
    """The same for the whole chain, whose output schema is `gives`."""
    chain = Chain({"steps": list(steps)} | more)
    own = Interface(OWN.takes, gives)
    return [(one.place, one.certain) for one in find_type_doubts(chain, own, TOOLS)]


def test_its_output_is_held_against_its_own_schema():
    assert of_whole(PAGE, gives=WHOLE, output=STATUS) == []
    assert of_whole(PAGE, gives=WHOLE, output=of_page("/text")) == [("output", True)]
    assert of_whole(PAGE, gives=objects(["n"], n=WHOLE), output={"n": of_page("/text")}) == [
        ("output.n", True)
    ]


def test_where_no_output_is_written_the_last_steps_is_held_against_it():
    assert of_whole(PAGE, gives=TEXT) == [("output", True)]
    assert of_whole(PAGE, step("s", "say", {"text": "x"}), gives=TEXT) == []


def test_what_its_output_points_at_must_be_there():
    assert of_whole(PAGE, output={"all": of_page("/nowhere")}) == [("output.all", True)]
    assert of_whole(PAGE, output={"$input": "/nowhere"}) == [("output", True)]


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ({"equals": [STATUS, 200]}, []),
        ({"equals": [STATUS, "200"]}, [("steps.1.when.equals", False)]),
        ({"equals": [of_page("/title"), "x"]}, [("steps.1.when.equals.0", False)]),
        ({"less": [STATUS, 1.5]}, []),
        ({"less": [of_page("/links"), 3]}, [("steps.1.when.less", False)]),
        ({"contains": [of_page("/links"), "x"]}, []),
        ({"contains": [STATUS, 2]}, [("steps.1.when.contains", False)]),
        ({"not": {"equals": [of_page("/nowhere"), 1]}}, [("steps.1.when.not.equals.0", True)]),
        ({"any": [{"exists": of_page("/nowhere")}, {"failed": "p"}]}, []),
        (
            {"all": [{"exists": of_page("/title")}, {"equals": [of_page("/title"), "x"]}]},
            [],
        ),
    ],
)
def test_what_a_condition_compares_is_held_against_the_schemas(when, found):
    assert find_mismatches(PAGE, step("s", "say", {"text": "x"}, when=when)) == found


def test_a_large_schema_is_read_once_for_many_references():
    assert calls_for(references=400) < 2 * calls_for(references=40)


def calls_for(references):
    """The number of calls and returns that a comparison with a large schema takes."""
    large = objects([], **{f"p{n}": {"type": "array", "items": TEXT} for n in range(3_000)})
    texts = {f"t{n}": {"$input": f"/p{n}/0"} for n in range(references)}
    chain, events = Chain({"steps": [step("v", "vague", {"x": texts})]}), count()
    sys.setprofile(lambda frame, event, argument: next(events) and None)
    try:
        found = find_type_doubts(chain, Interface(large), TOOLS)
    finally:
        sys.setprofile(None)
    assert all(not one.certain for one in found)
    return next(events)


def test_references_and_their_reports_are_bounded():
    most = [{"$input": "/url"}] * MOST_REFERENCES
    assert flaws_of(most) == []
    assert flaws_of([*most, {"$input": "/url"}]) == ["steps.0.parameters"]
    assert len(flaws_of([{"$input": 7}] * MOST_REFERENCES)) == MOST_FLAWS


def flaws_of(given):
    flaws = []
    parse_chain({"steps": [step("v", "vague", {"x": given})]}, flaws, "")
    return [flaw["field"] for flaw in flaws]
