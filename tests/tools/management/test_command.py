"""Exit codes and output of management commands in a real process."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.crib import CHECKOUT
from tools.management.command import write_text

# Loading Django takes seconds: one process runs all commands, each with its own arguments.
TYPIST = """
import contextlib, io, json, sys
import manage
def typed(words):
    sys.argv = ["manage.py", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            manage.main()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()
print(json.dumps([typed(words) for words in json.load(sys.stdin)]))
"""


@dataclass(frozen=True)
class Ran:
    words: tuple[str, ...]
    code: int
    out: str
    err: str


def typed(*commands, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", TYPIST],
        cwd=CHECKOUT,
        env=os.environ | environment,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    return [Ran(words, *end) for words, end in zip(commands, found, strict=True)]


COMMANDS = (
    ("create_agent", "bot"),
    ("create_token", "--user", "admin"),
    ("list_tools",),
    ("lint_tools",),
    ("list_config_items",),
    ("get_config_item", "tool/x"),
    ("delete_config_item", "tool/x"),
    ("put_config_item", "tool/x", os.devnull),
    ("set_tool", "--name", "x"),
    ("import_tools", os.devnull),
    ("export_tools",),
    ("explain_tool", "read_file", "--agent", "bot"),
    ("invoke_tool", "read_file", "--agent", "bot"),
)


@pytest.mark.part("walks")
def test_without_a_database_every_command_says_so_in_one_line(tmp_path):
    said = "The database does not answer. Start Toolcrib with `make run`"
    wrong = []
    for ran in typed(*COMMANDS, TOOLCRIB_DATA=str(tmp_path)):
        reported = ran.err.startswith(said) and ran.err.count("\n") == 1
        if not reported or (ran.code, ran.out) != (1, ""):
            wrong.append(ran)
    assert wrong == []


@pytest.mark.part("faults")
def test_a_database_that_was_named_and_does_not_answer_is_said_too(tmp_path):
    url = "postgresql://somebody@127.0.0.1:1/toolcrib?connect_timeout=1"
    ran = subprocess.run(
        [sys.executable, "manage.py", "list_tools"],
        cwd=CHECKOUT,
        env=os.environ | {"TOOLCRIB_DATA": str(tmp_path), "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)


def test_commands_work_beside_the_running_product(crib, organization, committed):
    words = ("--organization", organization.slug, "--group", "read-only")
    made, listed, refused, misspelled = typed(
        ("create_agent", "bot", *words),
        ("list_tools", "--agent", "bot", *words),
        ("invoke_tool", "read_file", "--agent", "bot", *words),
        ("invoke_tool", "read_file", "--agent", "Bot"),
    )
    assert (made.code, made.err) == (0, "")
    assert f"'{crib.url}/api/v1/tools?group=read-only'" in made.out
    assert (listed.code, refused.code, misspelled.code) == (0, 1, 2)


@pytest.mark.part("walks")
def test_a_reader_that_has_read_enough_is_no_error(crib):
    line = f"{sys.executable} manage.py list_tools --json | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", line], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("0\n", "")


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
