"""The question that a gate is asked, and its verdict."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.tool import DEFAULT_GROUP

DEFAULT_STATE = "undefined"


@dataclass(frozen=True, slots=True)
class EffectiveRequest:
    """The effective request: groups after the default was put in, and the current state."""

    groups: frozenset[str]
    state: str

    @classmethod
    def of(cls, group: list[str] | None, state: str | None) -> "EffectiveRequest":
        """Absent or null groups are `default`; an empty list stays empty (ruling 2). An empty text
        is the state `undefined`, as an absent one is."""
        groups = [DEFAULT_GROUP] if group is None else group
        return cls(frozenset(groups), state or DEFAULT_STATE)


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """May this caller use this tool in this request?"""

    caller: Caller
    tool: CatalogTool
    asked: EffectiveRequest
    snapshot: Snapshot
    at_its_door: bool = False  # at the address of batches: see `authorization.LENT`


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's verdict. `reason` is written for the caller and says what to do next."""

    gate: str
    passed: bool
    code: str = "ok"
    reason: str = ""

    def as_dict(self) -> dict[str, str | bool]:
        return {
            "gate": self.gate,
            "passed": self.passed,
            "code": self.code,
            "reason": self.reason,
        }


@cache
def passed(gate: str) -> Verdict:
    """A passing verdict: always the same object, since a listing needs thousands."""
    return Verdict(gate, True)


Gate = Callable[[AccessRequest], Verdict]
