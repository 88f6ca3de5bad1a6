"""Resolves the references of an imported definition: which service, server and prompt it names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.descriptors import Flaws, canonical_key
from tools.definitions.implementations.tool_types import is_config_value
from tools.definitions.texts import names
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition

ServiceParameters = list[dict[str, Any]]  # each with `name` and `required`
_PROMPT_FIELDS = ("id", "name", "prompt", "response-type")
_NO_ID = re.compile(r"[{}\s]")


@dataclass(frozen=True)
class KnownReferences:
    """Services, servers and prompts that exist, or come with the same import."""

    services: Mapping[str, ServiceParameters | None] = field(
        default_factory=dict
    )  # None: not known
    servers: Mapping[str, str] = field(default_factory=dict)  # the one tool each stands for, or ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    system: str = ""  # the prompt that comes before all of them
    server: str = ""  # of the tools of this import that name none


def resolve_references(raw: dict[str, Any], known: KnownReferences) -> tuple[dict[str, Any], Flaws]:
    """The definition with its references resolved, and the errors of these."""
    flaws: Flaws = []
    kind = raw.get("type")
    settle = _RESOLVERS.get(kind) if isinstance(kind, str) else None
    return (settle(raw, known, flaws) if settle else raw), flaws


def read_prompt(raw: Any) -> str:
    """The text of an item `prompt/<id>`. Raises `InvalidDefinition`."""
    if isinstance(raw, str):
        raw = {"prompt": raw}
    if not isinstance(raw, dict):
        raise InvalidDefinition("A prompt is a text, or an object with the key prompt.", errors=[])
    flaws = [
        {
            "field": key,
            "message": f"is not a field of a prompt{names.suggestion(key, _PROMPT_FIELDS)}",
        }
        for key in raw
        if key not in _PROMPT_FIELDS
    ]
    if not isinstance(raw.get("prompt"), str) or not raw["prompt"].strip():
        flaws.append({"field": "prompt", "message": "is required: the text of the prompt"})
    if raw.get("response-type", "text") != "text":
        flaws.append({"field": "response-type", "message": "must be text"})
    if flaws:
        raise InvalidDefinition("The prompt was not accepted; see details.errors.", errors=flaws)
    return str(raw["prompt"])


def _resolve_service(raw: dict[str, Any], known: KnownReferences, flaws: Flaws) -> dict[str, Any]:
    """Values of declared parameters may stand beside the other keys, named as they are declared."""
    made = raw.get("implementation")
    made = made if isinstance(made, dict) else {}
    name = raw.get("service", made.get("service"))
    if not isinstance(name, str) or not name:
        return raw  # the definition's reader reports it as missing
    if name not in known.services:
        field = "service" if "service" in raw else "implementation.service"
        flaws.append({"field": field, "message": "names no tool service that is there"})
        return raw
    declared = known.services[name]
    if declared is None:
        return raw
    flat = {one["name"]: raw[one["name"]] for one in declared if one["name"] in raw}
    given = made.get("config", raw.get("config"))
    config = {**(given if isinstance(given, dict) else {}), **flat}
    for parameter, message in _config_flaws(config, declared):
        inside = given is not None and parameter not in flat
        place = "implementation.config." if made else "config."
        flaws.append({"field": f"{place if inside else ''}{parameter}", "message": message})
    return _collect_config(raw, made, flat, config)


def _collect_config(
    raw: dict[str, Any], made: dict[str, Any], flat: dict[str, Any], config: dict[str, Any]
) -> dict[str, Any]:
    if not flat:
        return raw
    rest = {key: value for key, value in raw.items() if key not in flat}
    values = {key: value for key, value in config.items() if is_config_value(value)}
    return rest | ({"implementation": made | {"config": values}} if made else {"config": values})


def _config_flaws(config: dict[str, Any], declared: ServiceParameters) -> list[tuple[str, str]]:
    """(parameter, error) of undeclared, missing and unsuitable values."""
    known = {one["name"] for one in declared}
    found = []
    for name, value in config.items():
        if name not in known:
            found.append(
                (name[:60], f"is no parameter of the service{names.suggestion(name, known)}")
            )
        elif value is not None and not is_config_value(value):
            found.append((name, "must be a text, a number, true or false"))
    missing = (one["name"] for one in declared if one["required"])
    return found + [
        (name, "is required by the service") for name in missing if config.get(name) is None
    ]


def _resolve_server(raw: dict[str, Any], known: KnownReferences, _: Flaws) -> dict[str, Any]:
    """`mcp-tool` names an item `mcp/<id>`, or else a tool of the server this import is of. One that
    is not there is no flaw: the tool waits for it."""
    return raw if raw.get("implementation") is not None else _add_server(raw, known)


def server_field(raw: dict[str, Any]) -> str:
    """The field of an `mcp-tool` that names its server; "" where none does."""
    if isinstance(raw.get("implementation"), dict):
        return "implementation.server"
    keys = [key for key in raw if canonical_key(key) in {"server", "mcp_tool"}]
    return next((key for key in keys if key == "server"), keys[0] if keys else "")


def _add_server(raw: dict[str, Any], known: KnownReferences) -> dict[str, Any]:
    """A tool that names none is the one of its own name there (S1, 5.1: reset-workflow)."""
    key = next((key for key in raw if canonical_key(key) == "mcp_tool"), None)
    if key is None and isinstance(raw.get("name"), str):
        key, raw = "mcp-tool", raw | {"mcp-tool": raw["name"]}
    tool = raw.get(key) if key else None
    if key is None or not isinstance(tool, str) or "server" in raw:
        return raw
    if tool in known.servers:
        return raw | {"server": tool, key: known.servers[tool] or tool}
    return raw | {"server": known.server} if known.server else raw


def _resolve_prompt(raw: dict[str, Any], known: KnownReferences, flaws: Flaws) -> dict[str, Any]:
    """`template` is the id of a prompt that comes along, or the text itself."""
    template = raw.get("template")
    if not isinstance(template, str) or not template:
        return raw
    if template in known.prompts:
        system = {"system": known.system} if known.system and "system" not in raw else {}
        return raw | {"template": known.prompts[template]} | system
    if not _NO_ID.search(template):
        message = f"names no prompt; import prompt/{template[:100]} together with the tool"
        flaws.append({"field": "template", "message": message})
    return raw


_RESOLVERS: dict[str, Callable[[dict[str, Any], KnownReferences, Flaws], dict[str, Any]]] = {
    ToolType.SERVICE: _resolve_service,
    ToolType.MCP: _resolve_server,
    ToolType.PROMPT: _resolve_prompt,
}
