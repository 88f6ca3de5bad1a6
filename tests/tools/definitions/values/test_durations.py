import pytest

from tools.definitions.values.durations import format_duration, parse_duration

RIGHT = [("PT30S", 30), ("PT1M30S", 90), ("P1D", 86_400), ("P1DT2H", 93_600), ("PT0.5S", 0.5),
         ("PT100M", 6_000)]  # fmt: skip
WRONG = ["", "P", "PT", "30", "PT30", "30S", "P1Y", "P1M", "P1W", "PT-1S", "-PT1S", "pt30s",
    "PT1S ",
         "PT1,5S", "PT1S1M", "P1H", "PT99999999S", "PT٣S\n", "PT1.S"]  # fmt: skip


@pytest.mark.parametrize(("text", "length_s"), RIGHT)
def test_a_duration_is_read_in_seconds(text, length_s):
    assert parse_duration(text) == length_s


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration(text)


@pytest.mark.parametrize("length_s", [0.25, 1, 59.5, 60, 90, 3_600, 86_400, 90_061.5])
def test_what_is_written_is_read_again(length_s):
    assert parse_duration(format_duration(length_s)) == length_s
