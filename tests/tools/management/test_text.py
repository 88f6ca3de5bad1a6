"""Terminal output: control characters in the text of a tool or a server are not passed to a
terminal."""

import io

import pytest

from tools.management.command import write_text

SAID = "\x1b]0;owned\x07 \x9b2J\r\u202e a\tb\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "shown"), [(Terminal(), "�]0;owned� �2J�� a\tb\n"), (io.StringIO(), SAID)]
)
def test_only_a_file_gets_what_a_terminal_would_obey(stream, shown):
    write_text(stream, SAID)
    assert stream.getvalue() == shown
