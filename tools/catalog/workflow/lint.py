"""The linter of a catalog's groups and states: errors and oddities (checklist S1, 12).

A pure function of a snapshot: it changes nothing and makes no query. The grants of agents are known
to `policy`, so they are an argument.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.workflow.workflow import (
    EVERY_GROUP,
    START,
    Workflow,
    is_everywhere,
    leads_to,
    open_to,
    workflow,
)
from tools.definitions.texts.names import WILDCARD, join_names, similar_name
from tools.definitions.tool import Definition, ToolDefinition, definition_digest
from tools.models import ToolStatus

MOST_SHOWN = 20  # names that one finding lists
_IN_A_SENTENCE = 4
_MOST_COMPARED = 100  # states; above that misspelled ones are not searched for
_NO_AGENT = UUID(int=0)


class WorkflowSeverity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"


_ORDER = {severity: at for at, severity in enumerate(WorkflowSeverity)}


@dataclass(frozen=True, slots=True)
class WorkflowFinding:
    """`tool` or `state` is its subject; `tools` and `states` are all that it affects."""

    code: str
    severity: WorkflowSeverity
    message: str
    remedy: str
    tool: str | None = None
    state: str | None = None
    tools: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def concerns(self, tool: str) -> bool:
        return tool == self.tool or tool in self.tools

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "hint": self.remedy,
            "tool": self.tool,
            "state": self.state,
            "tools": list(self.tools[:MOST_SHOWN]),
            "states": list(self.states[:MOST_SHOWN]),
        }


def lint(
    snapshot: Snapshot,
    groups: frozenset[str] = EVERY_GROUP,
    granted: frozenset[str] | None = None,
) -> tuple[WorkflowFinding, ...]:
    """Findings for a set of groups, the most serious first.

    `granted` are the groups that some agent may request; None skips the check of whether any agent
    can see a tool.
    """
    flow = workflow(snapshot, groups)
    found = [
        *_cycles(flow),
        *_unreachable(flow, workflow(snapshot)),
        *_ends(flow),
        *_lost(flow, workflow(snapshot)),
        *_resets(flow),
        *_never_available(flow),
        *_unseen(flow, snapshot, granted),
    ]
    return tuple(sorted(found, key=lambda one: (_ORDER[one.severity], one.code)))


def with_definition(snapshot: Snapshot, definition: Definition) -> Snapshot:
    """The catalog as it would be with a canonical definition saved and in service."""
    known, now = snapshot.tool(definition["name"]), datetime.now(UTC)
    proposed = CatalogTool(
        id=known.id if known else _NO_AGENT,
        name=definition["name"],
        status=ToolStatus.ACTIVE,
        version_id=_NO_AGENT,
        version="",
        number=0,
        digest=definition_digest(definition),
        signature="",
        key_id="",
        definition=ToolDefinition(definition),
        created_at=now,
        updated_at=now,
    )
    return _with(snapshot, proposed)


def in_service(snapshot: Snapshot, name: str) -> Snapshot:
    """The catalog as it would be with the tool enabled; the same one where it is, or is gone."""
    tool = snapshot.tool(name)
    if tool is None or tool.enabled:
        return snapshot
    return _with(snapshot, replace(tool, status=ToolStatus.ACTIVE))


def _with(snapshot: Snapshot, tool: CatalogTool) -> Snapshot:
    tools = MappingProxyType({**snapshot.tools, tool.name: tool})
    return snapshot.changed(tools=tools)


def _cycles(flow: Workflow) -> Iterator[WorkflowFinding]:
    """One finding per set of states that lead into one another. Only where the start is part of it
    can a reset close the cycle; a cycle within that needs none is a finding of its own."""
    for cycle in flow.cycles(resets=False):
        yield _endless(cycle, _names(_moving(flow, frozenset(cycle))))
    for cycle in flow.cycles():
        if START in cycle:
            yield _begins_again(cycle, _names(_moving(flow, frozenset(cycle))))


def _endless(cycle: list[str], tools: tuple[str, ...]) -> WorkflowFinding:
    return WorkflowFinding(
        "cycle",
        WorkflowSeverity.WARNING,
        f"The states {_some_names(cycle)} lead into one another, through {_some_names(tools)}: "
        "a workflow may go round for ever.",
        f"Let one of these tools lead to another state, or to {START!r} if the way back is meant.",
        tools=tools,
        states=tuple(cycle),
    )


def _begins_again(cycle: list[str], tools: tuple[str, ...]) -> WorkflowFinding:
    return WorkflowFinding(
        "cycle_through_reset",
        WorkflowSeverity.INFORMATION,
        f"The states {_some_names(cycle)} form a workflow that begins again: a tool resets it to "
        f"{START!r}.",
        "Nothing to do, if the reset is meant.",
        tools=tools,
        states=tuple(cycle),
    )


def _moving(flow: Workflow, states: frozenset[str]) -> Iterator[CatalogTool]:
    """The tools that lead from one state of a set to another one of it."""
    for state in states:
        for tool in flow.tools_by_state.get(state, ()):
            target = leads_to(tool)
            if target != state and target in states:
                yield tool
    for tool in flow.everywhere:
        if leads_to(tool) in states:
            yield tool


def _unreachable(flow: Workflow, whole: Workflow) -> Iterator[WorkflowFinding]:
    for state in flow.states:
        if state not in flow.distances:
            tools = _names(flow.tools_by_state.get(state, ())) or _names(
                flow.entered.get(state, ())
            )
            yield WorkflowFinding(
                "unreachable_state",
                WorkflowSeverity.WARNING,
                f"Nothing leads from {START!r} to the state {state!r}, which {_some_names(tools)} "
                f"{'names' if len(tools) == 1 else 'name'}.",
                _how_to_reach(state, flow, whole),
                state=state,
                tools=tools,
            )


def _how_to_reach(state: str, flow: Workflow, whole: Workflow) -> str:
    own, every = _names(flow.entered.get(state, ())), _names(whole.entered.get(state, ()))
    if own:
        return f"{_some_names(own)} would lead there: mend the states before it."
    if every and state in whole.distances:
        return f"Tools of other groups lead there: {_some_names(every)}. Request their groups too."
    guess = _or_is_it(state, flow, flow.entered)
    return (
        f"Let a tool lead to it with its field state{guess}, or take it out of "
        "available_in_states. Sessions never enter it."
    )


def _ends(flow: Workflow) -> Iterator[WorkflowFinding]:
    for state in sorted(flow.distances):
        ended = flow.dead_end_reason(state)
        if ended is not None:
            tools = _names(flow.entered.get(state, ()))
            after = f"{state!r} (after {_some_names(tools)})" if tools else repr(state)
            yield (_dead_end if ended == "no_tool" else _last)(state, after, tools)


def _dead_end(state: str, after: str, tools: tuple[str, ...]) -> WorkflowFinding:
    return WorkflowFinding(
        "dead_end",
        WorkflowSeverity.ERROR,
        f"In the state {after} no tool is available: a session stays there for ever.",
        f"List {state!r} in available_in_states of a tool in these groups, or request a group "
        "whose tools are available there.",
        state=state,
        tools=tools,
    )


def _last(state: str, after: str, tools: tuple[str, ...]) -> WorkflowFinding:
    return WorkflowFinding(
        "no_way_on",
        WorkflowSeverity.INFORMATION,
        f"From the state {after} no tool leads to another state.",
        "Nothing to do, if the workflow ends here.",
        state=state,
        tools=tools,
    )


def _lost(flow: Workflow, whole: Workflow) -> Iterator[WorkflowFinding]:
    """Tools that lead to a state without tools."""
    for state, tools in flow.entered.items():
        if state == START or state in flow.tools_by_state:
            continue
        if state not in whole.tools_by_state:
            guess = _or_is_it(state, flow, whole.tools_by_state)
            for tool in tools:
                yield _unknown(
                    tool,
                    state,
                    guess,
                    WorkflowSeverity.WARNING if flow.everywhere else WorkflowSeverity.ERROR,
                )
        elif not flow.everywhere:
            others = _names(whole.tools_by_state[state])
            for tool in tools:
                yield _lost_to_others(tool, state, others)


def _unknown(
    tool: CatalogTool, state: str, guess: str, severity: WorkflowSeverity
) -> WorkflowFinding:
    return WorkflowFinding(
        "unknown_state",
        severity,
        f"{tool.name} leads to the state {state!r}, which no tool names in available_in_states.",
        f"Check the name{guess}, or list the state in available_in_states of what follows.",
        tool=tool.name,
        state=state,
    )


def _lost_to_others(tool: CatalogTool, state: str, others: tuple[str, ...]) -> WorkflowFinding:
    return WorkflowFinding(
        "empty_state",
        WorkflowSeverity.ERROR,
        f"{tool.name} leads to the state {state!r}, where these groups have no tool.",
        f"Request a group of {_some_names(others)} too, or leave the group of {tool.name} out.",
        tool=tool.name,
        state=state,
    )


def _resets(flow: Workflow) -> Iterator[WorkflowFinding]:
    """Tools that move a workflow back, above all those that are available in every state."""
    for tool in flow.tools:
        target = leads_to(tool)
        if target is None or target not in flow.distances:
            continue
        back = _back_from(flow, tool, target)
        if not back:
            continue
        silent = is_everywhere(tool) or len(back) < len(tool.definition.states)
        yield WorkflowFinding(
            "silent_reset" if silent else "goes_back",
            WorkflowSeverity.WARNING if silent else WorkflowSeverity.INFORMATION,
            f"{tool.name} moves a workflow back to {target!r} from {_some_names(back)}"
            f"{_why_silent(tool, silent)}.",
            "Leave out its field state, so that the tool stays where it is, or list in "
            "available_in_states only the states it is for."
            if silent
            else "Nothing to do, if the way back is meant.",
            tool=tool.name,
            state=target,
            states=tuple(back),
        )


def _back_from(flow: Workflow, tool: CatalogTool, target: str) -> list[str]:
    if is_everywhere(tool):
        return flow.later_than(target)
    limit = flow.distances[target]
    return sorted(s for s in tool.definition.states if flow.distances.get(s, 0) > limit)


def _why_silent(tool: CatalogTool, silent: bool) -> str:
    if not silent:
        return ""
    if is_everywhere(tool):
        return ", for it is available in every state"
    return ", though it is also available before"


def _never_available(flow: Workflow) -> Iterator[WorkflowFinding]:
    for tool in flow.tools:
        states = tool.definition.states
        if not states:
            yield WorkflowFinding(
                "never_available",
                WorkflowSeverity.WARNING,
                f"{tool.name} is available in no state: its available_in_states is empty.",
                "Leave available_in_states out for every state, or disable the tool.",
                tool=tool.name,
            )
        elif not is_everywhere(tool) and not any(state in flow.distances for state in states):
            yield WorkflowFinding(
                "states_never_entered",
                WorkflowSeverity.WARNING,
                f"{tool.name} is available only in {_some_names(sorted(states))}, and no tool "
                "of these groups leads there.",
                "See the finding for each state. A caller without a session may still name the "
                "state itself.",
                tool=tool.name,
                states=tuple(sorted(states)),
            )


def _unseen(
    flow: Workflow, snapshot: Snapshot, granted: frozenset[str] | None
) -> Iterator[WorkflowFinding]:
    if granted is None or WILDCARD in granted:
        return
    for tool in flow.tools:
        if open_to(tool, granted, snapshot):
            continue
        groups = sorted(snapshot.groups_of(tool))
        yield WorkflowFinding(
            "seen_by_nobody",
            WorkflowSeverity.WARNING,
            f"{tool.name} is in {_some_names(groups)}, and no agent was granted "
            f"{'it' if len(groups) == 1 else 'one of them'}."
            if groups
            else f"{tool.name} is in no group, and no agent was granted {WILDCARD!r}.",
            "Grant an agent one of its groups." if groups else "Give the tool a group.",
            tool=tool.name,
        )


def _names(tools: Iterable[CatalogTool]) -> tuple[str, ...]:
    return tuple(sorted({tool.name for tool in tools}))


def _some_names(names: Iterable[str]) -> str:
    return join_names(names, _IN_A_SENTENCE)


def _or_is_it(state: str, flow: Workflow, known: Iterable[str]) -> str:
    """Suggests a similar name. Comparing is expensive, so only in catalogs that people can
    survey."""
    if len(flow.states) > _MOST_COMPARED:
        return ""
    near = similar_name(state, (name for name in known if name != state), cutoff=0.75)
    return f" (did you mean {near!r}?)" if near else ""
