import json
import os
from pathlib import Path

import pytest

from config.local.child_processes import MOST_BYTES, LogFile, alarming_text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (json.dumps({"level": "ERROR", "message": "the crib is locked"}), "the crib is locked"),
        (json.dumps({"level": "INFO", "message": "ERROR is only a word here"}), None),
        ("[ERROR] Application callable raised", "[ERROR] Application callable raised"),
        ("{not json", None),
        ("", None),
    ],
)
def test_the_terminal_shows_warnings_and_worse_in_short(line: str, shown: str | None) -> None:
    assert alarming_text(line, r"^\[?(ERROR|CRITICAL)") == shown


def test_a_line_is_read_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "web.log")
    with log.open() as writer:
        os.write(writer.fileno(), b"one\ntw")
        assert list(log.new_lines()) == ["one"]
        os.write(writer.fileno(), b"o\n")
        assert list(log.new_lines()) == ["two"]
    assert list(log.new_lines()) == []


def test_a_log_that_grew_large_is_set_aside_under_its_writer(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "web.log")
    with log.open() as writer:
        os.write(writer.fileno(), b"x" * MOST_BYTES + b"\n")
        log.rotate()
        os.write(writer.fileno(), b"after\n")
    assert (tmp_path / "web.log").read_bytes() == b"after\n"
    assert (tmp_path / "web.log.1").stat().st_size == MOST_BYTES + 1
    assert log.last_line() == "after"
