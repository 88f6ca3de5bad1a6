"""Stacked bars and lines: where each part stands."""

from hypothesis import given
from hypothesis import strategies as st

from tools.ui.charts import HEIGHT, WIDTH, line_chart, stacked_chart

AMOUNT = st.floats(0, 1e9)


def test_the_fullest_column_is_as_tall_as_the_picture_and_the_others_in_proportion():
    chart = stacked_chart([("a", [("went", 8), ("failed", 2)]), ("b", [("went", 5)]), ("c", [])])
    a, b, c = chart.columns
    assert sum(bar.height for bar in a.bars) == HEIGHT
    assert [bar.height for bar in b.bars] == [HEIGHT / 2]
    assert c.bars == () and c.width == WIDTH / 3


def test_a_part_stands_on_the_one_before():
    (column,) = stacked_chart([("a", [("went", 3), ("failed", 0), ("refused", 1)])]).columns
    lower, upper = column.bars
    assert (lower.kind, upper.kind) == ("went", "refused")
    assert upper.y + upper.height == lower.y and lower.y + lower.height == HEIGHT


def test_a_single_call_among_a_million_can_be_seen():
    _, column = stacked_chart([("a", [("went", 1e6)]), ("b", [("failed", 1)])]).columns
    assert column.bars[0].height >= 1


def test_there_is_a_picture_of_nothing():
    assert stacked_chart([]).columns == ()
    assert stacked_chart([("a", [("went", 0)])]).columns[0].bars == ()


@given(st.lists(st.lists(AMOUNT, max_size=3), max_size=50))
def test_no_bar_stands_out_of_the_picture(days):
    kinds = ("went", "failed", "refused")
    for column in stacked_chart(
        [("", list(zip(kinds, day, strict=False))) for day in days]
    ).columns:
        for bar in column.bars:
            assert bar.x >= 0 and bar.x + bar.width <= WIDTH + 1e-6
            assert bar.y >= -1e-6 and bar.y + bar.height <= HEIGHT + 1e-6 and bar.height > 0


def test_lines_share_one_scale_and_each_point_stands_in_the_middle_of_its_place():
    chart = line_chart([("a", (1, 4)), ("b", (2, 2))], ("median", "p95"))
    median, p95 = chart.lines
    assert (median.kind, median.path) == ("median", "M250.00 75.00h0L750.00 50.00")
    assert (p95.kind, p95.path) == ("p95", "M250.00 0.00h0L750.00 50.00")
    assert [column.tooltip for column in chart.columns] == ["a", "b"]


def test_a_line_stops_where_nothing_is_known_and_what_stands_alone_is_a_dot():
    (line,) = line_chart(
        [("a", (1,)), ("b", (None,)), ("c", (1,)), ("d", (None,))], ("median",)
    ).lines
    assert line.path == "M125.00 0.00h0M625.00 0.00h0"


def test_there_are_lines_of_nothing():
    assert line_chart([], ("median",)).lines == ()
    assert line_chart([("a", (None,))], ("median",)).lines[0].path == ""
    assert line_chart([("a", (0.0,))], ("median",)).lines[0].path == f"M500.00 {HEIGHT:.2f}h0"
