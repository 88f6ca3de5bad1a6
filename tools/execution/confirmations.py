"""Calls that wait for a person."""

from tools.execution.context import Admission, Performance
from tools.policy.confirmations import Need


def hold(admission: Admission, need: Need) -> None: ...


def spend(performance: Performance) -> None: ...
