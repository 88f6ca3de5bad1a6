"""Management commands run with arguments; their exit code, standard output and standard error are
returned."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import load_command_class

from tools.models import Organization


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)


Type = Callable[..., Ran]


@pytest.fixture
def organization_arguments(organization: Organization) -> tuple[str, str]:
    """The arguments that select the organization."""
    return ("--organization", organization.slug)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Type:
    """Runs a command in this process, so that it sees what the test has not committed."""

    def run(name: str, *words: str) -> Ran:
        capsys.readouterr()
        code = _exit_code(name, list(words))
        return Ran(code, *capsys.readouterr())

    return run


def _exit_code(name: str, words: list[str]) -> int:
    command = load_command_class("tools", name)
    command._called_from_command_line = True
    try:
        options = command.create_parser("manage.py", name).parse_args(words)
        command.execute(**vars(options))
    except SystemExit as end:
        return int(end.code or 0)
    return 0
