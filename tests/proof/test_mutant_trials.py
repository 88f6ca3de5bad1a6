"""Which tests are chosen, in which order, and what is made of how they ended."""

from pathlib import Path

import pytest
from coverage import CoverageData

from tests.proof.__main__ import compare
from tests.proof.mutant_trials import Contexts, Outcome, ordered, outcome_of, select_shared_tests
from tests.proof.mutants import Mutant

TESTS = [f"tests/{file}.py::test_{number}" for file in ("a", "b/c") for number in range(25)]
LINE = Mutant("audit", "audit/inserts.py", 2, 0, "comparison", "<", "<=", "a < b")


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    data = CoverageData(str(tmp_path / "contexts"))
    executed = {
        "": [1],
        TESTS[0]: [2, 3],
        TESTS[1]: [2],
        "shared:tests/b/c.py": [2],
        "tests/sandbox/test_walls.py::test_a_wall": [9],
        **{test: [8] for test in TESTS[2:]},
    }
    for name, lines in executed.items():
        data.set_context(name)
        data.add_lines({"audit/inserts.py": lines})
    return Contexts(tmp_path / "contexts")


def test_tests_of_a_line_come_before_those_that_share_a_fixture(contexts: Contexts):
    found = contexts.covering(LINE, {"audit/inserts.py": {2}}, "7")
    assert sorted(found.direct) == TESTS[:2]
    assert sorted(found.shared) == sorted(TESTS[25:])


def test_a_line_that_runs_at_import_alone_has_no_test(contexts: Contexts):
    found = contexts.covering(LINE, {"audit/inserts.py": {1}}, "7")
    assert (found.direct, found.shared) == ([], [])


def test_what_runs_in_another_process_is_tried_by_the_folder_of_its_tests(contexts: Contexts):
    mutant = Mutant(
        "sandbox", "sandbox/daemon/runs/sandbox_run.py", 2, 0, "comparison", "<", "<=", ""
    )
    found = contexts.covering(mutant, {mutant.file: {2}}, "7")
    assert found.direct == ["tests/sandbox/test_walls.py::test_a_wall"]
    assert not found.measured


def test_with_a_focus_tests_of_the_rarest_line_come_first(contexts: Contexts):
    mutant = Mutant("gates", LINE.file, 2, 0, "", "<", "", "", focus=("audit/inserts.py:accept",))
    found = contexts.covering(mutant, {"audit/inserts.py": {2, 3, 8}}, "7")
    assert found.direct[:2] == TESTS[:2]
    assert len(found.direct) == len(TESTS)


@pytest.mark.parametrize(
    ("context", "number"),
    [
        ("shared:", 50),
        ("shared:tests/a.py", 25),
        ("shared:tests/b", 25),
        ("shared:tests/a", 0),
        ("tests/a.py", 0),
    ],
)
def test_a_shared_fixture_stands_for_the_tests_below_it(context: str, number: int):
    assert len([*select_shared_tests(TESTS, [context])]) == number


def test_an_order_has_every_test_once_and_is_the_same_for_the_same_key():
    found = ordered(TESTS, "7")
    assert sorted(found) == sorted(TESTS)
    assert found == ordered(reversed(TESTS), "7") != ordered(TESTS, "8")


def _event(event: str, at: float, **more: object) -> dict[str, object]:
    return {"event": event, "at": at, **more}


@pytest.mark.parametrize(
    ("last", "status", "end", "test"),
    [
        ([], 0, "passed", ""),
        ([], -9, "failed", "b"),
        ([_event("failed", 5, test="b", why="no")], 1, "failed", "b"),
        ([_event("over", 5, test="b", ran_s=2.0)], 2, "over", "b"),
        ([_event("over", 5, test="b", ran_s=70.0)], 2, "failed", "b"),
        ([_event("over", 5, test="b", ran_s=2), _event("failed", 6, test="b")], 2, "over", "b"),
    ],
)
def test_the_first_failure_or_the_end_of_the_time_decides(
    last: list[dict[str, object]], status: int, end: str, test: str
):
    events = [
        _event("collected", 0, missing=1), _event("begin", 1, test="a"), _event("ready", 2),
        _event("begin", 4.5, test="b"),
    ]  # fmt: skip
    found = outcome_of([*events, *last], status)
    assert (found.end, found.test, found.begun, found.missing) == (end, test, ["a", "b"], 1)


def test_a_suite_that_cannot_be_collected_has_failed():
    assert outcome_of([], 4) == Outcome(
        "failed", "the start of the session", "pytest ended with status 4"
    )


def _row(number: int, outcome: str, test: str = "") -> dict[str, object]:
    row = {"number": number, "package": "audit", "file": "audit/inserts.py", "line": 7 + number}
    row |= {"kind": "comparison", "original": "<", "mutated": "<="}
    return row | {"outcome": outcome, "test": test}


def test_two_suites_are_compared_by_what_they_killed():
    old = [_row(0, "killed", "a"), _row(1, "survived"), _row(2, "no test"), _row(3, "killed", "d")]
    new = [_row(0, "killed", "x"), _row(1, "killed", "b"), _row(2, "no test"), _row(3, "timed out")]
    lines = compare(old, new)
    assert [line.split() for line in lines[1:8]] == [
        ["mutants", "4", "4"],
        ["covered", "by", "no", "test", "1", "1"],
        ["let", "live", "by", "tests", "of", "the", "line", "1", "1"],
        ["of", "these,", "the", "time", "was", "over", "0", "1"],
        ["undecided", "0", "0"],
        ["killed", "2", "2"],
        ["audit", "2", "2"],
    ]
    at = lines.index("killed by the new suite only")
    assert [line.strip() for line in lines[at - 3 : at - 1]] == [
        "3 audit/inserts.py:10 comparison: '<' -> '<='",
        "killed by d; in the other suite: timed out",
    ]
    assert lines[at + 2].strip() == "killed by b; in the other suite: survived"
