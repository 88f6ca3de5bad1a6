"""The capability graph: which tool's output another tool accepts, by their definitions alone."""

from typing import Any

import pytest

from tests.factories import definition
from tools.definitions.capability import ports
from tools.definitions.capability.capability_search import (
    MOST_STEPS,
    PlanningTarget,
    given_ports,
    schema_of_example,
    target_port,
)
from tools.definitions.capability.graph import (
    CapabilityEdge,
    CapabilityGraph,
    CapabilityNode,
    Fit,
    _compare_schemas,
    link_ports,
)
from tools.definitions.capability.ports import input_ports, output_ports
from tools.definitions.capability.proposals import (
    MOST_PLANS,
    CapabilityPlan,
    draft_proposal,
    find_plans,
)
from tools.definitions.chains.chain_document import chain_definition
from tools.definitions.chains.type_check import Interface
from tools.definitions.tool import Definition, ToolDefinition, read_definition

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def objects(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required],
            "additionalProperties": False}  # fmt: skip


def texts(*names: str) -> dict[str, Any]:
    return objects(*names, **dict.fromkeys(names, TEXT))


def tool(name: str, takes: Any, gives: Any = None, **fields: Any) -> Definition:
    reads = {"constraints": {"allow_side_effects": False}}
    takes = texts(*takes) if isinstance(takes, list) else takes
    gives = texts(*gives) if isinstance(gives, list) else gives or {}
    return read_definition(
        definition(name, parameters=None, input_schema=takes, output_schema=gives)
        | reads | fields
    )  # fmt: skip


def graph(*definitions: Definition) -> CapabilityGraph:
    return CapabilityGraph(
        CapabilityNode.from_definition(ToolDefinition(one)) for one in definitions
    )


def edges(*definitions: Definition) -> list[CapabilityEdge]:
    made = graph(*definitions)
    return made.edges(made.place, frozenset(made.place), 100)[0]


def planned(
    definitions: list[Definition], have: dict[str, Any], wish: PlanningTarget
) -> list[CapabilityPlan]:
    made = graph(*definitions)
    return find_plans(made, frozenset(made.place), given_ports(have), wish)


def proposed(
    definitions: list[Definition], have: dict[str, Any], wish: PlanningTarget
) -> list[Any]:
    known = {one["name"]: Interface.from_definition(one) for one in definitions}
    found = planned(definitions, have, wish)
    return [draft_proposal(plan, wish, known, frozenset()) for plan in found]


def ways(definitions: list[Definition], have: list[str], want: str) -> list[list[str]]:
    found = planned(definitions, dict.fromkeys(have), PlanningTarget(target_port(want)))
    return [list(plan.names) for plan in found]


def fit(gives: dict[str, Any], takes: dict[str, Any]) -> Fit | None:
    """The best fit between the values of two tools."""
    found = edges(tool("a", texts(), gives), tool("b", takes))
    return found[0].link.fit if found else None


# What a tool consumes and produces.


def test_a_tool_consumes_what_its_input_schema_asks_for_and_what_it_allows():
    schema = objects("url", "depth", url=TEXT, depth=WHOLE | {"default": 1}, agent=TEXT)
    assert [(one.name, one.sure) for one in input_ports(schema)] == [
        ("url", True), ("depth", False), ("agent", False),
    ]  # fmt: skip


def test_a_tool_produces_what_its_output_schema_promises_at_any_depth():
    person = objects("mail", mail=TEXT)
    schema = objects("person", person=person, links={"type": "array", "items": TEXT})
    assert [(one.pointer, one.sure) for one in output_ports(schema)] == [
        ("/person", True), ("/links", False), ("/person/mail", True), ("/links/0", False),
    ]  # fmt: skip


def test_what_may_be_this_or_that_is_never_always_there():
    schema = {"anyOf": [texts("url"), {"type": "null"}]}
    assert [(one.name, one.sure) for one in output_ports(schema)] == [("url", False)]


def test_references_within_a_schema_are_followed():
    schema = objects("page", page={"$ref": "#/$defs/p"}) | {"$defs": {"p": texts("url")}}
    assert [one.pointer for one in output_ports(schema)] == ["/page", "/page/url"]


def test_a_schema_that_refers_to_itself_comes_to_an_end():
    schema = objects("url", url=TEXT, next={"$ref": "#"})
    assert {one.name for one in output_ports(schema)} == {"url", "next"}


@pytest.mark.parametrize("schema", [{}, None, True, False, TEXT, {"$ref": "#"}, {"$ref": "#/x"}])
def test_an_output_of_which_nothing_is_said_produces_nothing(schema):
    assert output_ports(schema) == ()


def test_however_much_a_schema_says_only_so_much_is_read():
    wide = objects(**{f"p{at}": TEXT for at in range(200)})
    deep: dict[str, Any] = TEXT
    for _ in range(30):
        deep = objects("deeper", deeper=deep)
    assert len(input_ports(wide)) == 60
    assert len(output_ports(wide)) == 80
    assert len(output_ports(deep)) == 4


# When two values are the same.


@pytest.mark.parametrize(
    ("given", "taken"),
    [("url", "url"), ("pageUrl", "page_url"), ("PAGE-URL", "page.url"), ("cities", "city"),
     ("straße", "STRASSE")],
)  # fmt: skip
def test_names_agree_without_case_plural_or_punctuation(given, taken):
    assert fit(texts(given), texts(taken)) == Fit.EXACT


CUSTOMER = TEXT | {"x-means": "number of a customer"}
ORDER = TEXT | {"x-means": "number of an order"}
FITS = {
    "both are texts": (texts("summary"), texts("recipient"), None),
    "titles where names do not agree": (
        objects("a", a={"type": "string", "title": "Page URL"}), texts("page_url"), Fit.EXACT,
    ),
    "a name together with its parent": (
        objects("user", user=texts("id")), texts("userId"), Fit.PATH,
    ),
    "what schemas declare": (objects("a", a=CUSTOMER), objects("b", b=CUSTOMER), Fit.EXACT),
    "what schemas declare goes before a name": (
        objects("number", number=CUSTOMER), objects("number", number=ORDER), None,
    ),
    "what one declares is a name of it": (
        objects("a", a=TEXT | {"x-means": "page url"}), texts("page_url"), Fit.EXACT,
    ),
    "what certainly does not fit": (objects("url", url=WHOLE), texts("url"), None),
    "an output of any kind": (objects("url", url={}), texts("url"), Fit.DOUBTFUL),
}  # fmt: skip


@pytest.mark.parametrize(("output", "taken", "how"), FITS.values(), ids=FITS)
def test_an_output_fits_an_input_by_its_name_its_title_or_what_it_declares(output, taken, how):
    assert fit(output, taken) == how


@pytest.mark.parametrize("name", ["id", "name", "status", "value"])
def test_a_name_that_half_of_all_tools_use_is_a_doubtful_match(name):
    (edge,) = edges(tool("a", [], [name]), tool("b", [name]))
    assert edge.link.fit == Fit.DOUBTFUL
    assert "x-means" in edge.link.why[0]


def test_a_format_that_both_declare_is_a_doubtful_match():
    mail = TEXT | {"format": "email"}
    (edge,) = edges(tool("a", [], objects("of", of=mail)), tool("b", objects("to", to=mail)))
    assert (edge.link.fit, edge.link.why) == (Fit.DOUBTFUL, ("only the format email agrees",))


# How well it fits.


def test_deeper_in_the_output_it_needs_a_path():
    (edge,) = edges(tool("a", [], objects("page", page=texts("url"))), tool("b", ["url"]))
    assert (edge.link.fit, edge.given.pointer) == (Fit.PATH, "/page/url")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (objects(url=TEXT), "it may be missing"),
        (objects("url", url={"type": ["string", "null"]}), "may be null, and string is taken"),
    ],
)
def test_what_may_be_missing_or_of_another_kind_is_doubtful_and_says_why(output, why):
    (edge,) = edges(tool("a", [], output), tool("b", ["url"]))
    assert (edge.link.fit, edge.link.why) == (Fit.DOUBTFUL, (why,))


def test_of_several_places_the_best_is_shown():
    gives = objects("url", "page", url={"type": ["string", "null"]}, page=texts("url"))
    (edge,) = edges(tool("a", [], gives), tool("b", ["url"]))
    assert edge.given.pointer == "/page/url"


def test_a_tool_has_no_edge_to_itself():
    assert edges(tool("a", ["text"], ["text"])) == []


def test_edges_are_bounded_and_say_so():
    made = graph(*(tool(f"t{at}", ["text"], ["text"]) for at in range(20)))
    found, more = made.edges(made.place, frozenset(made.place), 30)
    assert (len(found), more) == (30, True)


def test_edges_to_tools_that_one_may_not_use_are_not_there():
    made = graph(tool("a", [], ["url"]), tool("b", ["url"]))
    assert made.edges(["a"], frozenset(["a"]), 10) == ([], False)


# From the given values to the wanted one.

FETCH = tool("fetch", ["url"], ["html"])
STRIP = tool("strip", ["html"], ["text"])
SHORTEN = tool("shorten", ["text"], ["summary"])
READING = [FETCH, STRIP, SHORTEN]


WRITES = tool("a_writer", ["url"], ["text"], constraints={"allow_side_effects": True})
CIRCLE = [tool("there", ["html"], ["text"]), tool("back", ["text"], ["html"])]
GREETED = [tool("names", [], ["name"]), tool("greet", ["name"], ["greeting"])]
WAYS = {
    "over several tools": (READING, ["url"], "summary", [["fetch", "strip", "shorten"]]),
    "what only reads before what does things": (
        [WRITES, tool("reader", ["url"], ["text"])], ["url"], "text", [["reader"], ["a_writer"]],
    ),
    "other ways to the same": (
        [*READING, tool("crawl", ["url"], ["html"])], ["url"], "summary",
        [["crawl", "strip", "shorten"], ["fetch", "strip", "shorten"]],
    ),
    "no way round": (
        [SHORTEN, tool("polish", ["text"], ["text"])], ["text"], "summary", [["shorten"]],
    ),
    "a circle comes to an end": ([*CIRCLE, FETCH], ["url"], "text", [["fetch", "there"]]),
    "a hint beside being asked": (GREETED, [], "greeting", [["greet"], ["names", "greet"]]),
}  # fmt: skip


@pytest.mark.parametrize(("tools", "known", "wish", "found"), WAYS.values(), ids=WAYS)
def test_the_ways_to_what_is_wanted_are_proposed_in_their_order(tools, known, wish, found):
    assert ways(tools, known, wish) == found


DEAR = tool("a_dear", ["url"], ["text"], cost_per_invocation="0.5")


@pytest.mark.parametrize(
    ("tools", "wish", "best"),
    [
        ([*READING, tool("digest", ["url"], ["summary"])], "summary", "digest"),  # the shortest
        ([DEAR, tool("cheap", ["url"], ["text"])], "text", "cheap"),
        # Which tools use a given value.
        ([tool("a_free", [], ["text"]), tool("used", ["url"], ["text"])], "text", "used"),
    ],
    ids=["digest", "cheap", "used"],
)
def test_the_best_stands_first(tools, wish, best):
    assert ways(tools, ["url"], wish)[0] == [best]


def test_two_inputs_may_come_from_two_tools():
    merge = tool("merge", ["html", "weather"], ["report"])
    weather = tool("forecast", ["city"], ["weather"])
    (way,) = ways([FETCH, weather, merge], ["url", "city"], "report")
    assert (set(way), way[-1]) == ({"fetch", "forecast", "merge"}, "merge")


def test_there_are_at_most_so_many_proposals():
    many = [tool(f"t{at}", ["url"], ["text"]) for at in range(30)]
    assert len(ways(many, ["url"], "text")) == MOST_PLANS


def test_a_chain_has_at_most_so_many_steps():
    def line(length: int) -> list[Definition]:
        return [tool(f"t{at}", [f"v{at}x"], [f"v{at + 1}x"]) for at in range(length)]

    assert len(ways(line(MOST_STEPS), ["v0x"], f"v{MOST_STEPS}x")[0]) == MOST_STEPS
    assert ways(line(MOST_STEPS + 1), ["v0x"], f"v{MOST_STEPS + 1}x") == []


def test_the_order_is_always_the_same():
    many = [tool(f"t{at}", ["url"], ["text"]) for at in range(9)]
    assert ways(many, ["url"], "text") == ways(many[::-1], ["url"], "text")


def test_a_capability_may_be_wanted():
    able = tool("ocr", ["image"], capabilities=["Text Recognition"])
    (plan,) = planned([able], {"image": None}, PlanningTarget(capability="text recognition"))
    assert plan.names == ("ocr",)


def test_a_tool_may_be_wanted():
    (plan,) = planned(READING, {"url": None}, PlanningTarget(tool="shorten"))
    assert plan.names == ("fetch", "strip", "shorten")


def test_a_tool_that_one_may_not_use_is_neither_wanted_nor_on_the_way():
    made = graph(*READING)
    usable = frozenset(["fetch", "shorten"])
    assert find_plans(made, usable, given_ports({"url": None}), PlanningTarget(tool="strip")) == []
    (plan,) = find_plans(
        made, usable, given_ports({"url": None}), PlanningTarget(target_port("summary"))
    )
    assert plan.names == ("shorten",)


@pytest.mark.parametrize("want", ["ghost", "url", "日本"])
def test_what_no_tool_gives_has_no_proposal(want):
    assert ways(READING, ["url"], want) == []


def test_what_one_has_must_fit_what_is_taken():
    assert ways([SHORTEN], ["text"], "summary") == [["shorten"]]
    (plan,) = planned([SHORTEN], {"text": WHOLE}, PlanningTarget(target_port("summary")))
    assert [one.name for one in plan.calls[0].lacking] == ["text"]


def test_what_is_wanted_must_fit_its_schema():
    assert planned([SHORTEN], {"text": None}, PlanningTarget(target_port("summary", WHOLE))) == []


# As a chain.


def test_a_proposal_is_a_chain_with_its_references():
    (found,) = proposed(READING, {"url": None}, PlanningTarget(target_port("summary")))
    assert found.document["steps"] == [
        {"id": "fetch", "tool_name": "fetch", "parameters": {"url": {"$input": "/url"}}},
        {"id": "strip", "tool_name": "strip",
         "parameters": {"html": {"$step": "fetch", "path": "/output/html"}}},
        {"id": "shorten", "tool_name": "shorten",
         "parameters": {"text": {"$step": "strip", "path": "/output/text"}}},
    ]  # fmt: skip
    assert found.document["output"] == {"$step": "shorten", "path": "/output/summary"}
    assert (found.lacks, found.warnings) == ([], [])


def test_it_is_accepted_by_the_reader_of_chains():
    (found,) = proposed(READING, {"url": None}, PlanningTarget(target_port("summary")))
    assert read_definition(chain_definition(found.document))["type"] == "chain"


def test_each_link_says_where_its_value_comes_from():
    first, second, _ = proposed(READING, {"url": None}, PlanningTarget(target_port("summary")))[
        0
    ].links
    assert first == {"step": "fetch", "parameter": "url", "from": {"given": "url"},
                     "fit": Fit.EXACT, "why": []}  # fmt: skip
    assert second["from"] == {"step": "fetch", "path": "/output/html"}


def test_what_it_still_lacks_is_asked_for_by_the_chain():
    send = tool("send", ["summary", "recipient"])
    found = proposed([SHORTEN, send], {"text": None}, PlanningTarget(tool="send"))[0]
    (lack,) = found.lacks
    assert (lack["name"], lack["step"], lack["parameter"]) == ("recipient", "send", "recipient")
    assert found.document["input_schema"]["required"] == ["text", "recipient"]
    assert found.document["steps"][1]["parameters"]["recipient"] == {"$input": "/recipient"}


def test_what_is_lacked_twice_under_one_name_are_two_parameters():
    one, two = tool("one", ["note", "text"], ["draft"]), tool("two", ["note", "draft"], ["letter"])
    found = proposed([one, two], {"text": None}, PlanningTarget(target_port("letter")))[0]
    assert [lack["name"] for lack in found.lacks] == ["note", "two_note"]


def test_an_input_that_has_one_value_only_is_given_it():
    kind = {"const": {"$step": "not a reference"}}
    made = tool("say", objects("text", "kind", text=TEXT, kind=kind), ["summary"])
    (found,) = proposed([made], {"text": None}, PlanningTarget(target_port("summary")))
    assert found.document["steps"][0]["parameters"]["kind"] == {"$literal": kind["const"]}
    assert found.lacks == []


def test_an_option_is_set_where_one_has_just_that():
    made = tool("say", objects("text", text=TEXT, language=TEXT, tone=TEXT), ["summary"])
    (found,) = proposed(
        [made], {"text": None, "language": None}, PlanningTarget(target_port("summary"))
    )
    assert [*found.document["steps"][0]["parameters"]] == ["text", "language"]


def test_what_one_has_keeps_its_schema_in_the_chain():
    found = proposed(
        [SHORTEN], {"text": TEXT | {"maxLength": 9}}, PlanningTarget(target_port("summary"))
    )[0]
    assert found.document["input_schema"]["properties"]["text"]["maxLength"] == 9


def test_possible_mismatches_are_reported_as_when_a_chain_is_saved():
    maybe = tool("maybe", ["url"], objects(text=TEXT))
    (found,) = proposed([maybe, SHORTEN], {"url": None}, PlanningTarget(target_port("summary")))
    assert [one.place for one in found.warnings] == ["steps.1.parameters.text"]


@pytest.mark.parametrize("name", ["9lives", "Get.It", "x" * 128, "-", "a" * 100 + "B"])
def test_whatever_a_tool_is_called_its_step_has_an_id(name):
    (found,) = proposed(
        [tool(name, ["url"], ["text"])], {"url": None}, PlanningTarget(target_port("text"))
    )
    assert found is not None


@pytest.mark.parametrize("name", ["a/b", "a~b", "日本", "a b", "ünï"])
def test_whatever_a_value_is_called_it_can_be_referred_to(name):
    made = tool("t", texts(name), texts(f"{name}s done"))
    (found,) = proposed([made], {name: None}, PlanningTarget(target_port(f"{name}s done")))
    assert found.warnings == []


@pytest.mark.parametrize(
    ("example", "schema"),
    [
        ("x", {"type": "string"}), (1, {"type": "integer"}), (1.5, {"type": "number"}),
        (None, {"type": "null"}), (True, {"type": "boolean"}), ([], {"type": "array"}),
        ([1], {"type": "array", "items": {"type": "integer"}}),
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "integer"}},
                    "required": ["a"]}),
    ],
)  # fmt: skip
def test_an_example_says_of_which_kind_values_like_it_are(example, schema):
    assert schema_of_example(example) == schema


def test_links_between_the_same_two_values_are_always_the_same():
    one, other = input_ports(texts("url"))[0], output_ports(texts("url"))[0]
    assert link_ports(other, one) == link_ports(other, one)


def test_a_long_chain_that_lacks_nothing_stands_before_a_short_one_that_does():
    line = [tool(f"t{at}", [f"v{at}x"], [f"v{at + 1}x"]) for at in range(6)]
    assert len(ways(line, ["v0x"], "v6x")[0]) == 6


def test_a_source_may_match_a_parameter_of_another_meaning_by_its_name():
    (plan,) = planned([tool("greet", ["name"], ["greeting"])], {"name": None},
                      PlanningTarget(target_port("greeting")))  # fmt: skip
    assert plan.calls[0].lacking == ()


def test_a_schema_in_which_every_member_is_like_itself_comes_to_an_end():
    endless = objects(**{f"p{at}": {"$ref": "#"} for at in range(100)})
    gives = objects("text", text={"$ref": "#/$defs/e"}) | {"$defs": {"e": TEXT | endless}}
    made = tool("t", endless | {"required": ["p1"]}, gives)
    found = proposed([made], {"p1": endless}, PlanningTarget(target_port("text")))
    assert len(found) <= 1


def test_what_refers_to_another_part_of_its_schema_can_be_lacked():
    shared = {"$ref": "#/$defs/a"}
    takes = objects("note", note=shared) | {"$defs": {"a": TEXT | {"maxLength": 3}}}
    (found,) = proposed([tool("t", takes, ["text"])], {}, PlanningTarget(target_port("text")))
    assert found.lacks[0]["schema"]["maxLength"] == 3


def test_a_schema_that_is_too_large_is_doubtful():
    large = TEXT | {"enum": [f"value {at}" for at in range(900)]}
    assert fit(objects("url", url=TEXT), objects("url", url=large)) == Fit.DOUBTFUL


def test_parts_of_an_input_schema_are_one():
    takes = {"type": "object", "allOf": [objects("url", url=TEXT)]}
    assert [one.name for one in input_ports(takes)] == ["url"]


def test_what_a_caller_makes_up_is_not_kept_and_pushes_nothing_out():
    known = [tool("first", ["city"], ["weather"]), tool("second", ["weather"], ["report"])]
    assert len(edges(*known)) == 1
    kept = [one.cache_info() for one in (ports._port_keys, _compare_schemas)]
    for number in range(20):
        schema = {"type": "string", "title": f"Made up {number}", "maxLength": number + 1}
        for wish in (
            PlanningTarget(value=target_port("weather", schema)),
            PlanningTarget(value=target_port(f"w{number}")),
        ):
            planned(known, {"city": schema, f"name{number}": schema}, wish)
    now = [one.cache_info() for one in (ports._port_keys, _compare_schemas)]
    assert [one.currsize for one in now] == [one.currsize for one in kept]
