"""Results of pure tools that are given again, as long as they are good."""

from typing import Any
from uuid import UUID

from tools.execution.context import Admission, Hit, Performance, Result


class Parked(Exception):
    """Another execution is working the same answer out; this one waits for it."""


def find(admission: Admission) -> Hit | None:
    return None


def ending(hit: Hit) -> dict[str, Any]:
    return {}


def serve(admission: Admission, hit: Hit) -> None: ...


def at_claim(performance: Performance) -> None: ...


def keep(performance: Performance, result: Result) -> None: ...


def give_up(execution_id: UUID) -> None: ...
