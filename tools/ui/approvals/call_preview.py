"""A preview of a call in sentences, from the signed definition that would run."""

from typing import Any

from tools.definitions.texts.lookalikes import make_visible
from tools.definitions.texts.names import join_names
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import Delivery, ToolType
from tools.models import ToolVersion

_MOST_STEPS = 12
_LONGEST = 400
_IMPLEMENTATION_FIELDS = (
    "method",
    "url",
    "tool",
    "server",
    "service",
)  # fields of an implementation
_SENTENCES = {
    ToolType.BUILTIN: "Runs a tool that comes with the product.",
    ToolType.CODE: "Runs code behind the sandbox's wall{level}.",
    ToolType.HTTP: "Sends {method} to {url}.",
    ToolType.MCP: "Calls {tool} of the MCP server {server}.",
    ToolType.SERVICE: "Asks the tool service {service}.",
    ToolType.PROMPT: "Fills in a prompt.",
    ToolType.TEXT_COMPLETION: "Asks a language model.",
    ToolType.KNOWLEDGE_QUERY: "Searches knowledge.",
    ToolType.STRUCTURED_QUERY: "Asks the graph of knowledge.",
    ToolType.GRAPH_UPDATE: "Writes to the graph of knowledge.",
}
_EFFECTS = {
    Delivery.PURE: "It changes nothing.",
    Delivery.IDEMPOTENT: "Done twice, it changes no more than done once.",
    Delivery.TRANSACTIONAL: "What it changes is written with its result, or not at all.",
    Delivery.EXTERNAL: "What it does outside cannot be undone from here.",
}


def preview_sentences(version: ToolVersion) -> list[str]:
    """How the tool runs, its author's description, and whether it has side effects."""
    definition = ToolDefinition(version.definition)
    said = [
        _execution_sentence(definition),
        _description_sentence(definition.raw),
        _effect_sentence(definition),
    ]
    return [sentence for sentence in said if sentence]


def _execution_sentence(tool: ToolDefinition) -> str:
    how = dict(tool.raw.get("implementation") or {})
    if tool.type == ToolType.CHAIN:
        return _visible_text(_chain_sentence(tool))
    said = {
        "level": _isolation_text(tool.raw),
        **{name: how.get(name, "") for name in _IMPLEMENTATION_FIELDS},
    }
    return _visible_text(_SENTENCES[tool.type].format_map(said))


def _chain_sentence(tool: ToolDefinition) -> str:
    listed = join_names([step.tool_name for step in tool.chain.steps], _MOST_STEPS)
    return f"Calls in turn: {listed}."


def _isolation_text(raw: dict[str, Any]) -> str:
    level = (raw.get("constraints") or {}).get("required_isolation")
    return f", at {level} or stronger" if level and level != "None" else ""


def _description_sentence(raw: dict[str, Any]) -> str:
    text = " ".join(str(raw.get("description") or "").split())
    return f"Its author says: {_visible_text(text)}" if text else ""


def _effect_sentence(tool: ToolDefinition) -> str:
    constraints = tool.raw.get("constraints") or {}
    if constraints.get("allow_side_effects") is False:
        return _EFFECTS[Delivery.PURE]
    return _EFFECTS.get(tool.raw.get("delivery", Delivery.EXTERNAL), "")


def _visible_text(text: str) -> str:
    """The text with invisible characters shown, cut to a readable length."""
    seen = make_visible(text)
    return seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]} …"
