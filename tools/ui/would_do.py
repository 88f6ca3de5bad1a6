"""What a call would do, in sentences: from the definition that would run, which was signed."""

from typing import Any

from tools.definitions.tool import ToolDefinition
from tools.definitions.visible import visible
from tools.definitions.vocabulary import Delivery, ToolType
from tools.models import ToolVersion

_MOST_STEPS = 12
_LONGEST = 400
_EFFECTS = {
    Delivery.PURE: "It changes nothing.",
    Delivery.IDEMPOTENT: "Done twice, it changes no more than done once.",
    Delivery.TRANSACTIONAL: "What it changes is written with its result, or not at all.",
    Delivery.EXTERNAL: "What it does outside cannot be undone from here.",
}


def would_do(version: ToolVersion) -> list[str]:
    """How it runs, what its author says of it, and whether that leaves something behind."""
    definition = ToolDefinition(version.definition)
    said = [_how(definition), _described(definition.raw), _effect(definition)]
    return [sentence for sentence in said if sentence]


def _how(tool: ToolDefinition) -> str:
    how = dict(tool.raw.get("implementation") or {})
    says = {
        ToolType.BUILTIN: lambda: "Runs a tool that comes with the product.",
        ToolType.CODE: lambda: f"Runs code behind the sandbox's wall{_level(tool.raw)}.",
        ToolType.HTTP: lambda: f"Sends {how.get('method')} to {how.get('url')}.",
        ToolType.MCP: lambda: f"Calls {how.get('tool')} of the MCP server {how.get('server')}.",
        ToolType.SERVICE: lambda: f"Asks the tool service {how.get('service')}.",
        ToolType.CHAIN: lambda: _steps(tool),
        ToolType.PROMPT: lambda: "Fills in a prompt.",
        ToolType.TEXT_COMPLETION: lambda: "Asks a language model.",
        ToolType.KNOWLEDGE_QUERY: lambda: "Searches knowledge.",
        ToolType.STRUCTURED_QUERY: lambda: "Asks the graph of knowledge.",
        ToolType.GRAPH_UPDATE: lambda: "Writes to the graph of knowledge.",
    }
    return _shown(says[tool.type]())


def _steps(tool: ToolDefinition) -> str:
    names = [step.tool_name for step in tool.chain.steps]
    more = len(names) - _MOST_STEPS
    listed = ", ".join(names[:_MOST_STEPS]) + (f" and {more} more" if more > 0 else "")
    return f"Calls in turn: {listed}."


def _level(raw: dict[str, Any]) -> str:
    level = (raw.get("constraints") or {}).get("required_isolation")
    return f", at {level} or stronger" if level and level != "None" else ""


def _described(raw: dict[str, Any]) -> str:
    text = " ".join(str(raw.get("description") or "").split())
    return f"Its author says: {_shown(text)}" if text else ""


def _effect(tool: ToolDefinition) -> str:
    constraints = tool.raw.get("constraints") or {}
    if constraints.get("allow_side_effects") is False:
        return _EFFECTS[Delivery.PURE]
    return _EFFECTS.get(tool.raw.get("delivery", Delivery.EXTERNAL), "")


def _shown(text: str) -> str:
    """Nothing in it can hide, and none is longer than anybody reads."""
    seen = visible(text)
    return seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]} …"
