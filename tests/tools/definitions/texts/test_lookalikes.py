"""Invisible characters and confusable ones are named."""

import pytest

from tools.definitions.texts.lookalikes import (
    find_invisible,
    find_lookalikes,
    make_visible,
    skeleton,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a‹U+200B ZERO WIDTH SPACE›b"),
        ("a\u00a0b", "a‹U+00A0 NO-BREAK SPACE›b"),
        ("\u202etxt", "‹U+202E RIGHT-TO-LEFT OVERRIDE›txt"),
        ("\U000e0041", "‹U+E0041 TAG LATIN CAPITAL LETTER A›"),
        ("a\u00adb", "a‹U+00AD SOFT HYPHEN›b"),
        ("a\x1bb", "a‹U+001B›b"),
        ("x\ufe0f", "x‹U+FE0F VARIATION SELECTOR-16›"),
        ("\u3164", "‹U+3164 HANGUL FILLER›"),
        ("a\nb\tc d", "a\nb\tc d"),
        ("Ünïcödé 日本語 العربية", "Ünïcödé 日本語 العربية"),
    ],
)
def test_what_cannot_be_seen_is_named(text, shown):
    assert make_visible(text) == shown


def test_each_hidden_character_is_reported_once():
    assert find_invisible("a\u200bb\u200bc\u00ad") == [
        "U+200B ZERO WIDTH SPACE",
        "U+00AD SOFT HYPHEN",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p\u0430yment", ["a"]),  # one Cyrillic letter among Latin ones
        ("\u0430\u0440\u0440\u0435", ["a", "p", "p", "e"]),  # all are Cyrillic, and read as Latin
        ("привет мир", []),  # plain Russian is accepted
        ("café naïve", []),
        ("\uff52ead", ["r"]),
        ("日本語", []),
    ],
)
def test_characters_that_pass_for_latin_ones_are_found(text, found):
    assert [one.looks_like for one in find_lookalikes(text)] == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("read_file", "read-file"), ("read_file", "ReadFile"), ("read_file", "read.fi1e"),
        ("send_email", "send_ernail"), ("paypal", "p\u0430ypal"), ("admin", "admın"),
        ("log_in", "l0g_in"), ("read_file", "\uff52ead_file"), ("a\u200bb", "ab"),
    ],
)  # fmt: skip
def test_names_that_read_alike_have_one_skeleton(one, other):
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("read_file", "write_file"),
        ("get_1", "get_2"),
        ("mail", "mall"),
        ("clone", "done"),
        ("a", "b"),
    ],
)
def test_names_that_read_differently_have_two(one, other):
    assert skeleton(one) != skeleton(other)
