"""The part of each test, and the order in which xdist distributes tests."""

from pathlib import Path

import pytest

from tests.parts import begin_of_last, part_of, speaks_of


@pytest.mark.part("generated", but_each=2)
@pytest.mark.parametrize("case", [0, 1, 2, pytest.param(4, marks=pytest.mark.part("walks"))])
def test_each_second_case_is_in_no_part_unless_it_says_so_itself(
    request: pytest.FixtureRequest, case: int
) -> None:
    assert part_of(request.node) == {0: None, 1: "generated", 2: None, 4: "walks"}[case]


def test_a_part_imports_no_file_that_does_not_speak_of_it() -> None:
    here, other = Path(__file__), "frame" + "works"
    assert speaks_of("walks", here) and not speaks_of(other, here)


@pytest.mark.parametrize(
    ("tests", "processes", "begin"),
    [(10, 1, 10), (10, 2, 5), (11, 2, 5), (10, 3, 6), (3, 2, 1), (0, 2, 0)],
)
def test_the_share_of_the_last_process_begins_behind_those_of_the_others(
    tests: int, processes: int, begin: int
) -> None:
    assert begin_of_last(tests, processes) == begin
