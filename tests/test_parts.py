"""In which order the tests are shared out."""

import pytest

from tests.parts import arranged, first_of_last


@pytest.mark.parametrize(
    ("tests", "processes", "first"), [(10, 2, 5), (11, 2, 5), (10, 3, 6), (3, 2, 1), (0, 2, 0)]
)
def test_the_share_of_the_last_process_begins_behind_those_of_the_others(
    tests: int, processes: int, first: int
) -> None:
    assert first_of_last(tests, processes) == first


class Item:
    def __init__(self, name: str, *fixtures: str) -> None:
        self.name, self.fixturenames = name, fixtures


@pytest.mark.parametrize(("processes", "order"), [(1, "abcdPQ"), (2, "abcPQd"), (3, "abcdPQ")])
def test_what_needs_the_product_comes_together_and_begins_a_share(
    processes: int, order: str
) -> None:
    named = [Item("P", "crib"), *map(Item, "abcd"), Item("Q", "committed")]
    assert "".join(item.name for item in arranged(named, processes)) == order  # type: ignore[arg-type, attr-defined]
