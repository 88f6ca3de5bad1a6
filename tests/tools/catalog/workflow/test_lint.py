"""The linter of states and groups: its findings, and what it accepts."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.catalogs import WORKFLOW
from tests.tools.snapshots import moving, snapshot, tool
from tools.catalog.snapshot import Snapshot
from tools.catalog.workflow.lint import (
    WorkflowFinding,
    WorkflowSeverity,
    in_service,
    lint,
    with_definition,
)
from tools.catalog.workflow.workflow import MOST_EDGES, MOST_STATES, graph, workflow

START = "undefined"


def codes(found: Iterable[WorkflowFinding]) -> dict[str, str]:
    """The subject of the first finding, by code."""
    return {one.code: one.tool or one.state or "" for one in reversed([*found])}


def only(found: Iterable[WorkflowFinding], code: str) -> WorkflowFinding:
    (one,) = [finding for finding in found if finding.code == code]
    return one


def specification() -> Snapshot:
    return snapshot(
        *(moving(name, states, state, group=groups) for name, groups, state, states in WORKFLOW)
    )


def test_a_catalog_without_states_is_in_order() -> None:
    assert lint(snapshot(tool("a"), tool("b", group=["x"])), granted=frozenset({"*"})) == ()


def test_an_empty_catalog_is_a_dead_end() -> None:
    assert codes(lint(snapshot())) == {"dead_end": START}


def test_the_specifications_text_completion_silently_resets_its_workflow() -> None:
    found = lint(specification())
    reset = only(found, "silent_reset")
    assert (reset.tool, reset.state) == ("text-completion", START)
    assert reset.states == ("analysis", "results")
    assert only(found, "goes_back").tool == "reset-workflow"


def test_the_specifications_workflow_begins_again_which_is_no_fault() -> None:
    found = only(lint(specification()), "cycle_through_reset")
    assert found.severity == WorkflowSeverity.INFORMATION
    assert found.states == ("analysis", "results", START)
    assert set(found.tools) == {
        "complex-analysis", "knowledge-query", "reset-workflow", "text-completion",
    }  # fmt: skip


def test_scenario_9_3_as_it_is_written_ends_in_a_dead_end() -> None:
    found = lint(specification(), frozenset({"library", "compute"}))
    assert only(found, "dead_end").state == "results"
    assert only(found, "dead_end").severity == WorkflowSeverity.ERROR
    assert only(found, "empty_state").tool == "complex-analysis"


def test_states_that_only_others_lead_to_are_named_with_who_leads_there() -> None:
    found = lint(specification(), frozenset({"advanced"}))
    remedies = {one.state: one.remedy for one in found if one.code == "unreachable_state"}
    assert "other groups lead there: knowledge-query" in remedies["analysis"]
    assert "complex-analysis would lead there" in remedies["results"]


def test_a_cycle_that_is_no_reset_is_a_warning_with_its_states_and_tools() -> None:
    found = lint(
        snapshot(moving("a", [START], "x"), moving("b", ["x"], "y"), moving("c", ["y"], "x"))
    )
    cycle = only(found, "cycle")
    assert (cycle.states, cycle.tools) == (("x", "y"), ("b", "c"))
    assert cycle.severity == WorkflowSeverity.WARNING


def test_a_reset_does_not_excuse_a_cycle_beside_it() -> None:
    found = lint(
        snapshot(
            moving("a", [START], "x"),
            moving("b", ["x"], "y"),
            moving("c", ["y"], "x"),
            moving("reset", ["y"], START),
        )
    )
    assert only(found, "cycle").states == ("x", "y")
    assert only(found, "cycle_through_reset").states == (START, "x", "y")


def test_a_tool_that_stays_in_its_state_is_no_cycle() -> None:
    found = codes(lint(snapshot(moving("a", [START], "x"), moving("b", ["x"], "x"))))
    assert found == {"no_way_on": "x"}


def test_the_last_state_of_a_workflow_is_only_information() -> None:
    found = lint(snapshot(moving("a", [START], "done"), moving("read", ["done"])))
    assert [one.severity for one in found] == [WorkflowSeverity.INFORMATION]


def test_a_tool_available_everywhere_keeps_a_state_from_being_a_dead_end() -> None:
    found = lint(snapshot(moving("a", [START], "done"), tool("everywhere")))
    assert only(found, "unknown_state").severity == WorkflowSeverity.WARNING
    assert "dead_end" not in codes(found)


def test_an_unknown_state_is_an_error_that_suggests_a_name() -> None:
    found = lint(snapshot(moving("a", [START], "anaylsis"), moving("b", ["analysis"])))
    unknown = only(found, "unknown_state")
    assert (unknown.tool, unknown.severity) == ("a", WorkflowSeverity.ERROR)
    assert "did you mean 'analysis'?" in unknown.remedy
    assert "did you mean 'anaylsis'?" in only(found, "unreachable_state").remedy


def test_a_tool_that_is_available_in_no_state_is_found() -> None:
    assert codes(lint(snapshot(tool("a"), moving("never", [])))) == {"never_available": "never"}


def test_a_tool_whose_states_are_never_entered_is_found() -> None:
    found = lint(snapshot(tool("a"), moving("late", ["later", "last"])))
    assert only(found, "states_never_entered").states == ("last", "later")


def test_a_tool_that_goes_back_on_the_side_is_a_silent_reset() -> None:
    found = lint(snapshot(moving("a", [START, "x", "y"], "x"), moving("b", ["x"], "y")))
    assert only(found, "silent_reset").states == ("y",)


@pytest.mark.parametrize(
    ("group", "granted", "seen"),
    [
        (None, ["default"], True),
        (["x"], ["default"], False),
        (["x"], ["*"], True),
        ([], ["default"], False),
        ([], ["*"], True),
        (["knowledge/read"], ["knowledge"], True),
    ],
)
def test_a_tool_that_no_agent_was_granted_is_reported(group, granted, seen) -> None:
    place = snapshot(tool("a", group=group), parents={"knowledge/read": "knowledge"})
    found = codes(lint(place, granted=frozenset(granted)))
    assert found == ({} if seen else {"seen_by_nobody": "a"})


def test_without_grants_nothing_is_said_of_who_sees() -> None:
    assert lint(snapshot(tool("a", group=[]))) == ()


def test_tools_out_of_service_do_not_count() -> None:
    place = snapshot(moving("a", [START], "x"), moving("b", ["x"], status="disabled"))
    assert only(lint(place), "dead_end").state == "x"
    assert "dead_end" not in codes(lint(in_service(place, "b")))


def test_a_definition_that_is_not_saved_is_judged_among_the_others() -> None:
    place = snapshot(moving("a", [START], "x"), moving("b", ["x"]))
    workflow(place)  # fills the cache, which must not be used for the other one
    changed = dict(place.tools["a"].definition.raw, state="elsewhere")
    assert codes(lint(with_definition(place, changed)))["unknown_state"] == "a"
    assert "unknown_state" not in codes(lint(place))


def test_findings_stand_with_the_gravest_first() -> None:
    found = [one.severity for one in lint(specification(), frozenset({"library", "compute"}))]
    assert found == sorted(found, key=[*WorkflowSeverity].index) and len(set(found)) > 1


def test_a_long_list_of_names_is_cut_in_what_is_shown() -> None:
    found = only(
        lint(snapshot(*(moving(f"t{n}", ["far"]) for n in range(50)))), "unreachable_state"
    )
    assert len(found.tools) == 50 and len(found.as_dict()["tools"]) == 20
    assert "and 46 more" in found.message


def test_the_graph_shows_states_in_order_with_their_marks() -> None:
    shown = graph(specification(), frozenset({"library", "compute"})).as_dict()
    assert [(node["name"], node["reachable"], node["dead_end"]) for node in shown["nodes"]] == [
        (START, True, None), ("analysis", True, None), ("results", True, "no_tool"),
        ("modification", False, None), ("research", False, None),
    ]  # fmt: skip
    assert {"from": START, "to": "analysis", "tool": "knowledge-query"} in shown["edges"]


def test_a_tool_available_everywhere_is_one_edge() -> None:
    edges = [edge for edge in graph(specification()).edges if edge.tool == "text-completion"]
    assert [(edge.start, edge.end) for edge in edges] == [(None, START)]


def test_a_large_graph_is_cut_and_says_so() -> None:
    tools = [moving(f"t{n}", [f"s{n}", START], f"s{n + 1}") for n in range(MOST_STATES + 50)]
    shown = graph(snapshot(*tools))
    assert len(shown.nodes) == MOST_STATES and len(shown.edges) <= MOST_EDGES
    assert shown.left_off > 50


STATES = st.sampled_from([START, "a", "b", "c", "d", "*"])
TOOLS = st.lists(
    st.tuples(
        st.none() | st.lists(STATES, max_size=3, unique=True),
        st.none() | STATES,
        st.none() | st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True),
    ),
    max_size=7,
)
GROUPS = st.frozensets(st.sampled_from(["x", "y", "default", "*"]))
Drawn = list[tuple[list[str] | None, str | None, list[str] | None]]


def catalog(drawn: Drawn) -> Snapshot:
    return snapshot(
        *(
            moving(f"t{n}", states, state, group=group)
            for n, (states, state, group) in enumerate(drawn)
        )
    )


def step(drawn: Drawn, groups: frozenset[str], state: str, resets: bool = True) -> set[str]:
    """The states after one request, as rulings 1 to 4 define it."""
    return {
        state if leads is None else leads
        for states, leads, group in drawn
        if ("*" in groups or {*(["default"] if group is None else group)} & groups)
        and (states is None or "*" in states or state in states)
        and (resets or leads != START)
    }


def walk(drawn: Drawn, groups: frozenset[str], state: str, resets: bool = True) -> set[str]:
    reached, ahead = set(), {state}
    while ahead:
        reached |= ahead
        ahead = {n for one in ahead for n in step(drawn, groups, one, resets)} - reached
    return reached


@given(TOOLS, GROUPS)
def test_what_can_be_reached_is_what_a_naive_walk_reaches(drawn: Drawn, groups) -> None:
    assert set(workflow(catalog(drawn), groups).distances) == walk(drawn, groups, START)


@given(TOOLS, GROUPS)
def test_dead_ends_are_where_a_naive_walk_has_nothing_to_call(drawn: Drawn, groups) -> None:
    found = lint(catalog(drawn), groups)
    stuck = {s for s in walk(drawn, groups, START) if not step(drawn, groups, s)}
    assert {one.state for one in found if one.code == "dead_end"} == stuck


@given(TOOLS, st.booleans())
def test_cycles_are_the_states_that_lead_into_one_another(drawn: Drawn, resets: bool) -> None:
    flow, every = workflow(catalog(drawn)), frozenset({"*"})
    beyond = {s: walk(drawn, every, s, resets) for s in flow.states}
    both = {frozenset(t for t in beyond[s] if s in beyond[t]) for s in flow.states}
    found = {frozenset(cycle) for cycle in flow.cycles(resets=resets)}
    assert found == {part for part in both if len(part) > 1}
