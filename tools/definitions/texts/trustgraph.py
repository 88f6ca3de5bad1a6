"""Exports a definition in TrustGraph's configuration format, which can be imported again."""

from typing import Any

from tools.definitions.descriptors import FLAT_KEYS
from tools.definitions.vocabulary import ToolType


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
