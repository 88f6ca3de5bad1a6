"""Metric labels for names from clients: unknown names are counted under one label and never
stored."""

from collections.abc import Iterator

from tools import metrics
from tools.catalog.snapshot import Snapshot
from tools.definitions.texts.names import WILDCARD
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest

_NO_STATE = ""  # not the name of a state


def group_label(name: str, snapshot: Snapshot) -> str:
    known = name == WILDCARD or snapshot.knows_group(name)
    return name if known else metrics.UNKNOWN


def state_label(name: str, snapshot: Snapshot) -> str:
    """The name, if it is of a state that a definition names, or of the start state; otherwise
    `UNKNOWN`."""
    return name if name in _known_states(snapshot) else metrics.UNKNOWN


def drop_unknown_names(asked: EffectiveRequest, snapshot: Snapshot) -> EffectiveRequest:
    """The same request without unknown names, which match nothing, so that stored and cached keys
    are bounded by the catalog."""
    known = asked.state in _known_states(snapshot)
    return EffectiveRequest(
        asked.groups & _known_groups(snapshot), asked.state if known else _NO_STATE
    )


def _known_groups(snapshot: Snapshot) -> frozenset[str]:
    """Also groups that only tools name."""
    return snapshot.settle(
        "group names",
        lambda: frozenset([WILDCARD, *snapshot.groups]).union(
            *(snapshot.groups_of(tool) for tool in snapshot.tools.values())
        ),
    )


def _known_states(snapshot: Snapshot) -> frozenset[str]:
    return snapshot.settle("states", lambda: frozenset(_states(snapshot)) - {WILDCARD})


def _states(snapshot: Snapshot) -> Iterator[str]:
    yield DEFAULT_STATE
    for tool in snapshot.tools.values():
        yield from tool.definition.states
        if tool.definition.raw["state"]:
            yield tool.definition.raw["state"]
