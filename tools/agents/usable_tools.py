"""The tools that an agent may use now: a check of plans against them, and their description for a
model.

A step is checked before it is taken, so that an impossible step leads to no approval and no call.
Only usable tools are described (checklist S1, 5). Neither is protection: every gate still checks
the tool that a model names when it is called, whether it was listed or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tools.agents.planning.plan_language import PlanStep
from tools.authorization import listings
from tools.authorization.facts import check_groups_uncounted, question_of
from tools.catalog.search.tool_search import rank_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.chains import expressions
from tools.definitions.implementations.tool_types import ASK_MODEL, CALL_TOOL, FIND_TOOLS, RUN_AGENT
from tools.definitions.schemas.json_schemas import SchemaFlaw
from tools.definitions.texts import tool_formats
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ArgumentValidation
from tools.errors import Malformed, Refused
from tools.policy import gates
from tools.policy.questions import EffectiveRequest

MOST_TOOLS = 64  # in a prompt; find_tools finds more
MOST_STATES = 32  # examined for a workflow
_AGENT_TOOLS = frozenset({ASK_MODEL, RUN_AGENT})


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

    def tool_name(self, name: str) -> str:
        """The tool's own name for the model's name of it; unchanged where it is unknown."""
        return self._by_function.get(name, name)

    @cached_property
    def _by_function(self) -> dict[str, str]:
        return {tool_formats.function_name(tool.name): tool.name for tool in self.tools}


def build_toolbox(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, question: str
) -> Toolbox:
    """What the caller may use in these groups and this state, the best for the question first where
    there are more than fit into a prompt."""
    return _fit_toolbox(tools_for_agents(caller, asked, snapshot), snapshot, question)


def build_workflow_toolbox(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, question: str
) -> Toolbox:
    """The same in this state and in each state that these tools can lead to."""
    found: dict[str, CatalogTool] = {}
    states = [asked.state]
    for state in states:  # the list grows meanwhile
        for tool in tools_for_agents(caller, EffectiveRequest(asked.groups, state), snapshot):
            found.setdefault(tool.name, tool)
            after = tool.definition.raw["state"]
            if after is not None and after not in states and len(states) < MOST_STATES:
                states.append(after)
    return _fit_toolbox(list(found.values()), snapshot, question)


def tools_for_agents(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot
) -> list[CatalogTool]:
    """Without the tools that agents are built on."""
    return [
        tool
        for tool in listings.usable_tools(caller, asked, snapshot)
        if tool.definition.entry_point not in _AGENT_TOOLS
    ]


def _fit_toolbox(usable: list[CatalogTool], snapshot: Snapshot, question: str) -> Toolbox:
    chosen = (
        usable if len(usable) <= MOST_TOOLS else list(_select_tools(usable, snapshot, question))
    )
    return Toolbox(tuple(tool.definition for tool in chosen), len(usable) - len(chosen))


def _select_tools(
    usable: list[CatalogTool], snapshot: Snapshot, question: str
) -> Iterator[CatalogTool]:
    finders = [one for one in usable if one.definition.entry_point in (FIND_TOOLS, CALL_TOOL)]
    best = [hit.tool for hit in rank_tools(snapshot, question, usable)]
    seen: set[str] = set()
    for tool in (*finders, *best, *usable):
        if tool.name not in seen and len(seen) < MOST_TOOLS:
            seen.add(tool.name)
            yield tool


@dataclass(frozen=True, slots=True)
class ToolRefusal:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class UsableTools:
    caller: Caller
    groups: frozenset[str]
    snapshot: Snapshot

    def refusal_of(self, name: str, state: str) -> ToolRefusal | None:
        """Why the tool may not be used in this state; None if it may be."""
        asked, tool = EffectiveRequest(self.groups, state), self.snapshot.tool(name)
        try:
            check_groups_uncounted(self.caller, asked, self.snapshot)
            if tool is not None:
                gates.authorize(question_of(self.caller, tool, asked, self.snapshot))
        except (Refused, Malformed) as refusal:
            return ToolRefusal(refusal.code, refusal.message)
        if tool is None or tool not in tools_for_agents(self.caller, asked, self.snapshot):
            return ToolRefusal("tool_not_found", f"There is no tool {name} for agents here.")
        return None

    def state_after(self, name: str, state: str) -> str:
        """The state after a success of the tool (specification S1, 4.2)."""
        tool = self.snapshot.tool(name)
        after = tool.definition.raw["state"] if tool is not None else None
        return state if after is None else str(after)

    def plan_flaws(self, steps: list[PlanStep], state: str) -> list[str]:
        """Why steps of a plan would be refused, if they are taken in this order from a state on."""
        found = []
        for step in steps:
            if (refusal := self.refusal_of(step.tool, state)) is not None:
                found.append(f"step {step.id}: {refusal.message}")
            elif (tool := self.snapshot.tool(step.tool)) is not None:
                found += [
                    f"step {step.id}: {flaw}" for flaw in _argument_flaws(tool, step.arguments)
                ]
            state = self.state_after(step.tool, state)
        return found


def _argument_flaws(tool: CatalogTool, arguments: dict[str, Any]) -> list[str]:
    """Of the arguments, except those that contain a reference."""
    if tool.definition.raw["argument_validation"] != ArgumentValidation.ENFORCE:
        return []
    places = [ref.place.replace(".", "/") for ref in expressions.find_references(arguments)]
    if not places:
        return [_describe_flaw(flaw) for flaw in tool.input_validator.flaws(arguments)]
    flaws = tool.input_validator.flaws(arguments, masked=True)
    clear = [
        _describe_flaw(flaw) for flaw in flaws if not any(_overlap(flaw.place, at) for at in places)
    ]
    return [*_name_flaws(tool.definition.raw["input_schema"], arguments), *clear]


def _describe_flaw(flaw: SchemaFlaw) -> str:
    return f"its argument {flaw.place} does not fit: {flaw.message}"


def _overlap(one: str, other: str) -> bool:
    """Whether one of two places lies in the other."""
    one, other = one.rstrip("/"), other.rstrip("/")
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _name_flaws(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """Checks names of arguments, which are known also where a value is a reference."""
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    known = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False
    unknown = [name for name in arguments if name not in known] if closed else []
    return [f"its argument {name} is missing" for name in missing] + [
        f"it has no argument {name[:80]}" for name in unknown
    ]
