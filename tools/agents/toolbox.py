"""What an agent may reach for at this moment, and how a model is told of it.

Only what the filter leaves is told (checklist S1, 5). That hides nothing: what a model names is
held against every gate when it is called, whether it stood here or not.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tools.catalog.registry import CatalogTool, Snapshot
from tools.catalog.search import ranked
from tools.definitions.callers import Caller
from tools.definitions.implementations.builtin import ASK_MODEL, CALL_TOOL, FIND_TOOLS, RUN_AGENT
from tools.definitions.tool import ToolDefinition
from tools.policy import authorization
from tools.policy.decision import Asked

MOST_TOOLS = 64  # that a model is told of; more are found by find_tools
MOST_DESCRIPTION = 1_000  # characters
MOST_STATES = 32  # that a workflow is looked through for
_ITS_OWN = frozenset({ASK_MODEL, RUN_AGENT})
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_FUNCTION_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Toolbox:
    """`left_out` says how many more the caller may use than there is room for."""

    tools: tuple[ToolDefinition, ...]
    left_out: int = 0

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """As chat endpoints take them."""
        return [
            {
                "name": function_name(tool.name),
                "description": described(tool),
                "parameters": tool.raw["input_schema"],
            }
            for tool in self.tools
        ]

    @cached_property
    def text(self) -> str:
        """A paragraph for each, with every argument (checklist S5, 2)."""
        return "\n".join(map(_paragraph, self.tools))

    @cached_property
    def workflow_text(self) -> str:
        """The same, with the states that each is available in and leads to, and what it gives."""
        return "\n".join(f"{_paragraph(tool)}\n{_workflow(tool)}" for tool in self.tools)

    def named(self, name: str) -> str:
        """The tool's own name for what a model called it; unchanged where nothing is known."""
        return self._by_function.get(name, name)

    @cached_property
    def _by_function(self) -> dict[str, str]:
        return {function_name(tool.name): tool.name for tool in self.tools}


def toolbox_of(caller: Caller, asked: Asked, snapshot: Snapshot, question: str) -> Toolbox:
    """What the caller may use in these groups and this state, the best for the question first where
    there are more than a model can be told of."""
    return _toolbox(usable_by(caller, asked, snapshot), snapshot, question)


def workflow_toolbox(caller: Caller, asked: Asked, snapshot: Snapshot, question: str) -> Toolbox:
    """The same in this state and in each that these tools can lead to, as far as the caller may."""
    found: dict[str, CatalogTool] = {}
    states = [asked.state]
    for state in states:  # it grows on the way
        for tool in usable_by(caller, Asked(asked.groups, state), snapshot):
            found.setdefault(tool.name, tool)
            after = tool.definition.raw["state"]
            if after is not None and after not in states and len(states) < MOST_STATES:
                states.append(after)
    return _toolbox(list(found.values()), snapshot, question)


def usable_by(caller: Caller, asked: Asked, snapshot: Snapshot) -> list[CatalogTool]:
    """Without what agents are made of."""
    return [
        tool
        for tool in authorization.usable_tools(caller, asked, snapshot)
        if tool.definition.entry_point not in _ITS_OWN
    ]


def _toolbox(usable: list[CatalogTool], snapshot: Snapshot, question: str) -> Toolbox:
    chosen = usable if len(usable) <= MOST_TOOLS else list(_chosen(usable, snapshot, question))
    return Toolbox(tuple(tool.definition for tool in chosen), len(usable) - len(chosen))


def _chosen(usable: list[CatalogTool], snapshot: Snapshot, question: str) -> Iterator[CatalogTool]:
    finders = [one for one in usable if one.definition.entry_point in (FIND_TOOLS, CALL_TOOL)]
    best = [hit.tool for hit in ranked(snapshot, question, usable)]
    seen: set[str] = set()
    for tool in (*finders, *best, *usable):
        if tool.name not in seen and len(seen) < MOST_TOOLS:
            seen.add(tool.name)
            yield tool


def function_name(name: str) -> str:
    """As chat endpoints allow it; another tool never has the same."""
    if _FUNCTION_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{_NO_FUNCTION_NAME.sub('_', name)[:55]}_{digest}"


def described(tool: ToolDefinition) -> str:
    """Its own words, within bounds."""
    words = " ".join(str(tool.raw["description"]).split())
    return words if len(words) <= MOST_DESCRIPTION else f"{words[:MOST_DESCRIPTION]} [cut]"


def _paragraph(tool: ToolDefinition) -> str:
    lines = [f"- {tool.name}: {described(tool)}", *_arguments(tool.raw["input_schema"])]
    return "\n".join(lines)


def _arguments(schema: dict[str, Any]) -> Iterable[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return ["    (no arguments)"]
    required = schema.get("required") or ()
    return [_argument(name, one, name in required) for name, one in properties.items()]


def _workflow(tool: ToolDefinition) -> str:
    raw = tool.raw
    states = ", ".join(sorted(tool.states)) or "none"
    facts = [f"available in states: {states.replace('*', 'all')}"]
    if raw["state"] is not None:
        facts.append(f"leads to state: {raw['state']}")
    if gives := _members(raw["output_schema"]):
        facts.append(f"gives: {gives}"[:MOST_DESCRIPTION])
    return f"    [{'; '.join(facts)}]"


def _members(schema: Any) -> str:
    """Of an output, for whoever refers to one of them."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    of = {name: one if isinstance(one, dict) else {} for name, one in properties.items()}
    return ", ".join(f"{name} ({_type(one)})" for name, one in of.items())


def _argument(name: str, schema: Any, required: bool) -> str:
    of = schema if isinstance(schema, dict) else {}
    facts = [_type(of), "required" if required else "optional"]
    if "default" in of:
        facts.append(f"default {_plain(of['default'])}")
    if isinstance(of.get("enum"), list):
        facts.append("one of " + ", ".join(map(_plain, of["enum"])))
    words = " ".join(str(of.get("description") or "").split())[:MOST_DESCRIPTION]
    return f"    {name} ({'; '.join(facts)}): {words}".rstrip(": ")


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:200]
