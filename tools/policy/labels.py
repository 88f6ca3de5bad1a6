"""Names as metrics label them: one that clients made up is counted under a single word."""

from collections.abc import Iterator

from tools import metrics
from tools.catalog.registry import Snapshot
from tools.definitions.names import WILDCARD
from tools.policy.decision import DEFAULT_STATE


def group_label(name: str, snapshot: Snapshot) -> str:
    known = name == WILDCARD or snapshot.knows_group(name)
    return name if known else metrics.UNKNOWN


def state_label(name: str, snapshot: Snapshot) -> str:
    """A state that some definition names, or the one that every workflow begins in."""
    known = snapshot.settle("states", lambda: frozenset(_states(snapshot)) - {WILDCARD})
    return name if name in known else metrics.UNKNOWN


def _states(snapshot: Snapshot) -> Iterator[str]:
    yield DEFAULT_STATE
    for tool in snapshot.tools.values():
        yield from tool.definition.states
        if tool.definition.raw["state"]:
            yield tool.definition.raw["state"]
