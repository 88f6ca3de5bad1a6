"""The default groups and state of a call from a form."""

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.definitions.vocabulary import ToolType
from tools.policy.decision import DEFAULT_STATE


def default_group(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> list[str]:
    """A granted group of the tool: its own groups come before inherited ones."""
    own = sorted(snapshot.own_groups(tool))
    every = [*own, *sorted(snapshot.groups_of(tool))]
    granted = [name for name in every if name in caller.granted_groups]
    return (granted or own)[:1] or ([WILDCARD] if caller.is_superuser else [])


def default_groups(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> list[str]:
    """Also groups for a chain's steps, which are called with the groups of the chain's call."""
    granted, every = caller.granted_groups, WILDCARD in caller.granted_groups
    steps = [
        name
        for step in _chain_steps(tool, snapshot)
        for name in default_group(step, caller, snapshot)
        if every or name in granted
    ]
    return list(dict.fromkeys([*default_group(tool, caller, snapshot), *steps]))


def _chain_steps(tool: CatalogTool, snapshot: Snapshot) -> list[CatalogTool]:
    """The tools that a chain calls, directly or through other chains."""
    found: dict[str, CatalogTool] = {}
    ahead = [tool]
    while ahead:
        one = ahead.pop(0)
        if one.definition.type != ToolType.CHAIN:
            continue
        named = [snapshot.tool(step.tool_name) for step in one.definition.chain.steps]
        new = {step.name: step for step in named if step and step.name not in found}
        found |= new
        ahead += new.values()
    return list(found.values())


def default_state(tool: CatalogTool) -> str:
    states = sorted(tool.definition.states - {WILDCARD})
    return states[0] if states and DEFAULT_STATE not in states else DEFAULT_STATE
