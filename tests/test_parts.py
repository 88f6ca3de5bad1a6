"""In which order the tests are shared out."""

import pytest

from tests.parts import begin_of_last


@pytest.mark.parametrize(
    ("tests", "processes", "begin"),
    [(10, 1, 10), (10, 2, 5), (11, 2, 5), (10, 3, 6), (3, 2, 1), (0, 2, 0)],
)
def test_the_share_of_the_last_process_begins_behind_those_of_the_others(
    tests: int, processes: int, begin: int
) -> None:
    assert begin_of_last(tests, processes) == begin
