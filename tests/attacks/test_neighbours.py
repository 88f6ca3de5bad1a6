"""Two organizations side by side: what each of them has is its own."""

from collections.abc import Callable

import pytest

from sandbox.spec import IsolationLevel
from tests.attacks.attack import SANDBOXED, Duel
from tests.attacks.kit import Parameters, belongings, hear, report_ready
from tests.attacks.siege import Siege

type Needs = Callable[[IsolationLevel], None]


def tells_what_it_has(p: Parameters) -> object:
    return belongings()


def waits_and_tells_what_it_has(p: Parameters) -> object:
    report_ready(p)
    hear(p)
    return belongings()


@pytest.mark.parametrize("level", SANDBOXED)
def test_two_organizations_have_nothing_in_common(
    siege: Siege, needs: Needs, level: IsolationLevel
) -> None:
    needs(level)
    both = Duel("side by side", waits_and_tells_what_it_has, tells_what_it_has, SANDBOXED)
    results = siege.at_once(both, level)
    assert [result.error_message for result in results] == [None, None]
    one, other = (result.output for result in results)
    assert len(one) >= 5
    assert [name for name in one if one[name] == other[name]] == []
