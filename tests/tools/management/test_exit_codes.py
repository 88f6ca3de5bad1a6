"""The commands as real processes."""

import os
import subprocess
import sys

import pytest

from tests.crib import CHECKOUT


def manage(*words, **environment):
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=CHECKOUT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
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
    ],
)
def test_without_a_database_a_command_says_so_in_one_line(words, tmp_path):
    ran = manage(*words, TOOLCRIB_DATA=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("The database does not answer. Start Toolcrib with `make run`")
    assert ran.stderr.count("\n") == 1


def test_a_database_that_was_named_and_does_not_answer_is_said_too(tmp_path):
    url = "postgresql://somebody@127.0.0.1:1/toolcrib?connect_timeout=1"
    ran = manage("list_tools", TOOLCRIB_DATA=str(tmp_path), DATABASE_URL=url)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)


def test_a_command_works_beside_the_running_product(crib, organization, committed):
    words = ("--organization", organization.slug, "--group", "read-only")
    made = manage("create_agent", "bot", *words)
    assert (made.returncode, made.stderr) == (0, "")
    assert f"'{crib.url}/api/v1/tools?group=read-only'" in made.stdout
    assert manage("list_tools", "--agent", "bot", *words).returncode == 0
    assert manage("invoke_tool", "read_file", "--agent", "bot", *words).returncode == 1
    assert manage("invoke_tool", "read_file", "--agent", "Bot").returncode == 2


def test_a_reader_that_has_read_enough_is_no_error(crib):
    line = f"{sys.executable} manage.py list_tools --json | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", line], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("0\n", "")
