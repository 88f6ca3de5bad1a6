"""Workflows whose state, groups and history are the server's."""

from tools.errors import NotFound
from tools.execution.context import Admission, Performance, Result


def enter(admission: Admission) -> None:
    raise NotFound("There is no such session.", code="session_not_found")


def ask_again(performance: Performance) -> None: ...


def move(performance: Performance, result: Result) -> None: ...
