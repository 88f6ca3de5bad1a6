from decimal import Decimal

import pytest

from tools.ui.charts import gauge


@pytest.mark.parametrize(
    ("used", "bound", "held", "drawn"),
    [
        (0, 10, 0, (0, 0, "good")),
        (Decimal(8), Decimal(10), 0, (80, 0, "warn")),
        (5, 10, 5, (50, 50, "bad")),
        (30, 10, 5, (100, 0, "bad")),
        (1, 100_000, 0, (1, 0, "good")),
        (0, 0, 0, (0, 0, "good")),
        (1, 0, 0, (100, 0, "bad")),
    ],
)
def test_a_bar_is_never_longer_than_its_bound(used, bound, held, drawn) -> None:
    made = gauge(used, bound, "says", held)
    assert (made.used, made.held, made.tone) == drawn
