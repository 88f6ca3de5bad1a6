"""Selects the tools that an agent may use now, and describes them to a model.

Only filtered tools are described (checklist S1, 5). The filter is no protection: every gate checks
the tool that a model names when it is called, whether it was listed or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tools.authorization.listings import usable_tools
from tools.catalog.registry import CatalogTool, Snapshot
from tools.catalog.search.tool_search import rank_tools
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import ASK_MODEL, CALL_TOOL, FIND_TOOLS, RUN_AGENT
from tools.definitions.texts import tool_formats
from tools.definitions.tool import ToolDefinition
from tools.policy.questions import EffectiveRequest

MOST_TOOLS = 64  # in a prompt; more are found by find_tools
MOST_STATES = 32  # examined for a workflow
_ITS_OWN = frozenset({ASK_MODEL, RUN_AGENT})


@dataclass(frozen=True)
class Toolbox:
    """`left_out` is the number of usable tools that do not fit."""

    tools: tuple[ToolDefinition, ...]
    left_out: int = 0

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """As chat endpoints take them."""
        return [tool_formats.chat_function(tool) for tool in self.tools]

    @cached_property
    def text(self) -> str:
        """A paragraph for each, with every argument (checklist S5, 2)."""
        return "\n".join(map(tool_formats.prompt_paragraph, self.tools))

    @cached_property
    def workflow_text(self) -> str:
        """The same, with the states that each is available in and leads to, and what it gives."""
        return "\n".join(map(tool_formats.planner_paragraph, self.tools))

    def named(self, name: str) -> str:
        """The tool's own name for the model's name of it; unchanged where it is unknown."""
        return self._by_function.get(name, name)

    @cached_property
    def _by_function(self) -> dict[str, str]:
        return {tool_formats.function_name(tool.name): tool.name for tool in self.tools}


def toolbox_of(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, question: str
) -> Toolbox:
    """What the caller may use in these groups and this state, the best for the question first where
    there are more than fit into a prompt."""
    return _toolbox(usable_by(caller, asked, snapshot), snapshot, question)


def workflow_toolbox(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, question: str
) -> Toolbox:
    """The same in this state and in each that these tools can lead to, as far as the caller may."""
    found: dict[str, CatalogTool] = {}
    states = [asked.state]
    for state in states:  # it grows on the way
        for tool in usable_by(caller, EffectiveRequest(asked.groups, state), snapshot):
            found.setdefault(tool.name, tool)
            after = tool.definition.raw["state"]
            if after is not None and after not in states and len(states) < MOST_STATES:
                states.append(after)
    return _toolbox(list(found.values()), snapshot, question)


def usable_by(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[CatalogTool]:
    """Without the tools that agents are built on."""
    return [
        tool
        for tool in usable_tools(caller, asked, snapshot)
        if tool.definition.entry_point not in _ITS_OWN
    ]


def _toolbox(usable: list[CatalogTool], snapshot: Snapshot, question: str) -> Toolbox:
    chosen = usable if len(usable) <= MOST_TOOLS else list(_chosen(usable, snapshot, question))
    return Toolbox(tuple(tool.definition for tool in chosen), len(usable) - len(chosen))


def _chosen(usable: list[CatalogTool], snapshot: Snapshot, question: str) -> Iterator[CatalogTool]:
    finders = [one for one in usable if one.definition.entry_point in (FIND_TOOLS, CALL_TOOL)]
    best = [hit.tool for hit in rank_tools(snapshot, question, usable)]
    seen: set[str] = set()
    for tool in (*finders, *best, *usable):
        if tool.name not in seen and len(seen) < MOST_TOOLS:
            seen.add(tool.name)
            yield tool
