"""The group and the state in which a person calls a tool, where the page asks for none."""

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.names import WILDCARD
from tools.policy.decision import DEFAULT_STATE


def usual_group(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> list[str]:
    """One the person is granted, of its own before those it is in through others."""
    own = sorted(snapshot.own_groups(tool))
    every = [*own, *sorted(snapshot.groups_of(tool))]
    granted = [name for name in every if name in caller.granted_groups]
    return (granted or own)[:1] or ([WILDCARD] if caller.is_superuser else [])


def usual_state(tool: CatalogTool) -> str:
    states = sorted(tool.definition.states - {WILDCARD})
    return states[0] if states and DEFAULT_STATE not in states else DEFAULT_STATE
