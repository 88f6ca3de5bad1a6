"""Formats of a tool description, one for each kind of model or client. That of TrustGraph's
configuration can be imported again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from tools.definitions.descriptors import FLAT_KEYS
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType

MOST_DESCRIPTION = 1_000  # characters
UPSTREAM = "upstream"  # where a definition's metadata keeps what a server's tool was approved as
_FOR_CLIENTS: dict[str, type] = {"annotations": dict, "_meta": dict, "icons": list}
# Never one that looks like a name made here, so that no tool can pass for another.
_FUNCTION_NAME = re.compile(r"(?!.*_[0-9a-f]{12}\Z)[A-Za-z0-9_-]{1,64}")
_NO_FUNCTION_NAME = re.compile(r"[^A-Za-z0-9_-]")


def trustgraph_item(definition: dict[str, Any]) -> dict[str, Any]:
    """The value of one item, with the text of a prompt in it."""
    value: dict[str, Any] = trustgraph_items(definition)["tool"]
    if definition["type"] == ToolType.PROMPT:
        value["template"] = definition["implementation"]["template"]
    return value


def trustgraph_items(definition: dict[str, Any], *, beside: bool = False) -> dict[str, Any]:
    """The item `tool/<name>`, whose `name` is the title where there is one, and `prompt/<name>`
    where the tool is made of one.

    `beside`: a service tool's configuration is beside its other keys, as in S2; its names must be
    declared for an import to read it.
    """
    shown = dict(definition)
    made = shown.pop("implementation")
    kind = shown["type"]
    extra: dict[str, Any] = {}
    if kind == ToolType.MCP:
        shown |= {"mcp-tool": made["tool"], "server": made["server"]}
    elif kind == ToolType.SERVICE:
        config = made["config"]
        shown |= {"service": made["service"], **(config if beside else {"config": config})}
    elif kind == ToolType.PROMPT:
        shown |= made | {"template": shown["name"]}
        extra["prompt"] = {"prompt": made["template"]}
    elif kind in FLAT_KEYS:
        shown |= made
    else:
        shown["implementation"] = made
    if title := shown.pop("title"):
        same = title == shown["name"] or not title.strip()
        shown |= {"title": title} if same else {"name": title}
    shown["arguments"] = shown.pop("parameters")
    states = shown.pop("available_in_states")
    if states is not None:
        shown["applicable-states"] = states
    return {"tool": shown, **extra}


class ToolTextFormat(StrEnum):
    MCP = "mcp"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    REACT = "react"
    TRUSTGRAPH = "trustgraph"


def chat_function(tool: ToolDefinition) -> dict[str, Any]:
    """As chat endpoints take it."""
    return {
        "name": function_name(tool.name),
        "description": short_description(tool),
        "parameters": tool.raw["input_schema"],
    }


def function_name(name: str) -> str:
    """As chat endpoints allow it; another tool never has the same."""
    if _FUNCTION_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{_NO_FUNCTION_NAME.sub('_', name)[:51]}_{digest}"


def short_description(tool: ToolDefinition) -> str:
    """Its description, truncated."""
    words = " ".join(str(tool.raw["description"]).split())
    return words if len(words) <= MOST_DESCRIPTION else f"{words[:MOST_DESCRIPTION]} [cut]"


def prompt_paragraph(tool: ToolDefinition) -> str:
    """For a prompt: with every argument, its type, default and choices (checklist S5, 2)."""
    lines = [
        f"- {tool.name}: {short_description(tool)}",
        *_argument_lines(tool.raw["input_schema"]),
    ]
    return "\n".join(lines)


def planner_paragraph(tool: ToolDefinition) -> str:
    """The same for a planner: with the states it is available in and leads to, and what it gives
    back."""
    states = ", ".join(sorted(tool.states)) or "none"
    facts = [f"available in states: {states.replace(WILDCARD, 'all')}"]
    if tool.raw["state"] is not None:
        facts.append(f"leads to state: {tool.raw['state']}")
    if gives := _output_members(tool.raw["output_schema"]):
        facts.append(f"gives: {gives}"[:MOST_DESCRIPTION])
    return f"{prompt_paragraph(tool)}\n    [{'; '.join(facts)}]"


def _output_members(schema: Any) -> str:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    of = {name: one if isinstance(one, dict) else {} for name, one in properties.items()}
    return ", ".join(f"{name} ({_schema_type(one)})" for name, one in of.items())


def _argument_lines(schema: dict[str, Any]) -> Iterable[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return ["    (no arguments)"]
    required = schema.get("required") or ()
    return [_argument_line(name, one, name in required) for name, one in properties.items()]


def _argument_line(name: str, schema: Any, required: bool) -> str:
    of = schema if isinstance(schema, dict) else {}
    facts = [_schema_type(of), "required" if required else "optional"]
    if "default" in of:
        facts.append(f"default {_json_text(of['default'])}")
    if isinstance(of.get("enum"), list):
        facts.append("one of " + ", ".join(map(_json_text, of["enum"])))
    words = " ".join(str(of.get("description") or "").split())[:MOST_DESCRIPTION]
    return f"    {name} ({'; '.join(facts)}): {words}".rstrip(": ")


def _schema_type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:200]


def _format_openai(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "function": _function_header(tool) | {"parameters": _titled_schema(tool)},
    }


def _format_anthropic(tool: ToolDefinition) -> dict[str, Any]:
    return _function_header(tool) | {"input_schema": _titled_schema(tool)}


def _function_header(tool: ToolDefinition) -> dict[str, Any]:
    return {"name": function_name(tool.name), "description": tool.raw["description"]}


def _titled_schema(tool: ToolDefinition) -> dict[str, Any]:
    """Its title is the tool's own name, where the endpoint requires another."""
    schema: dict[str, Any] = tool.raw["input_schema"]
    named = function_name(tool.name) == tool.name
    return schema if named else schema | {"title": tool.name}


def _format_mcp(tool: ToolDefinition) -> dict[str, Any]:
    raw = tool.raw
    shown = {
        "name": tool.name,
        "title": raw["title"],
        "description": raw["description"],
        "inputSchema": raw["input_schema"],
    }
    output = raw["output_schema"]
    # The protocol allows only objects there.
    has_one = isinstance(output, dict) and output.get("type") == "object"
    return (
        shown
        | ({"outputSchema": output} if has_one else {})
        | _client_metadata(raw.get("metadata", {}))
    )


def _client_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """A server's annotations, meta and icons of its tool for clients, as they were approved."""
    for place in (UPSTREAM, "mcp"):
        kept = metadata.get(place)
        if isinstance(kept, dict):
            return {
                key: kept[key]
                for key, kind in _FOR_CLIENTS.items()
                if isinstance(kept.get(key), kind)
            }
    return {}


def _format_react(tool: ToolDefinition) -> dict[str, Any]:
    return {"name": tool.name, "text": prompt_paragraph(tool)}


def _format_trustgraph(tool: ToolDefinition) -> dict[str, Any]:
    return {"key": f"tool/{tool.name}", "value": trustgraph_item(tool.raw)}


FORMATTERS: dict[ToolTextFormat, Callable[[ToolDefinition], dict[str, Any]]] = {
    ToolTextFormat.MCP: _format_mcp,
    ToolTextFormat.OPENAI: _format_openai,
    ToolTextFormat.ANTHROPIC: _format_anthropic,
    ToolTextFormat.REACT: _format_react,
    ToolTextFormat.TRUSTGRAPH: _format_trustgraph,
}
