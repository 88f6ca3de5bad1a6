"""What was taken out of evidence is never sent as if it were the value."""

from tools.ui.playground.replay import remove_redactions

MARK = "[redacted 0123456789ab]"


def test_what_was_redacted_is_left_out_and_named() -> None:
    kept, places = remove_redactions({"path": "a", "password": MARK, "n": 1})
    assert kept == {"path": "a", "n": 1}
    assert places == ["password"]


def test_what_was_redacted_within_a_value_is_left_empty_at_its_place() -> None:
    asked = {"headers": {"Authorization": f"Bearer {MARK}", "Accept": "*"}, "urls": ["a", MARK]}
    kept, places = remove_redactions(asked)
    assert kept == {"headers": {"Authorization": "", "Accept": "*"}, "urls": ["a", ""]}
    assert places == ["headers/Authorization", "urls/1"]


def test_what_was_cut_is_not_taken_for_the_whole() -> None:
    asked = {
        "text": "begin… 12 more characters [whole 0123456789ab]",
        "list": ["a", "… 7 more [whole 0123456789ab]"],
        "object": {"a": 1, "…": "3 more"},
        "…": "4 more",
    }
    kept, places = remove_redactions(asked)
    assert kept == {"list": ["a", ""], "object": {"a": 1}}
    assert places == ["text", "list/1", "object/what was cut", "what was cut"]


def test_what_is_no_object_has_no_parameters() -> None:
    assert remove_redactions(["a"]) == ({}, [])
