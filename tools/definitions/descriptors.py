"""Normalizes dialects of tool descriptors to the canonical keys (ruling 14).

camelCase as in specification S3, kebab-case as in S2 and S5, `applicable-states` as deployed
TrustGraph configurations say, `arguments` for `parameters`, and keys of the implementation beside
the other keys instead of under `implementation`. Unknown keys are kept, and refused by the
definition's reader.
"""

import re
from collections import Counter
from typing import Any

from tools.definitions.vocabulary import CATEGORY_ALIASES, ParameterType, ToolType

Flaws = list[dict[str, str]]
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ALIASES = {
    "applicable_states": "available_in_states",
    "arguments": "parameters",
    "mcp_tool_id": "mcp_tool",
}
_KINDS = {kind.casefold(): kind for kind in ParameterType}
_ASKED = {key: key for key in ("model", "system", "max_tokens", "max_prompt_bytes")}
_GRAPH = {"collection": "collection", "limit": "limit"}
# By type: keys that may stand beside the others, and their names under `implementation`.
FLAT: dict[str, dict[str, str]] = {
    ToolType.MCP: {"mcp_tool": "tool", "server": "server"},
    ToolType.SERVICE: {"service": "service", "config": "config"},
    ToolType.PROMPT: {"template": "template", **_ASKED},
    ToolType.TEXT_COMPLETION: _ASKED,
    ToolType.KNOWLEDGE_QUERY: _GRAPH,
    ToolType.STRUCTURED_QUERY: _GRAPH,
    ToolType.GRAPH_UPDATE: _GRAPH,
}


def canonical_key(key: str) -> str:
    """`requiredIsolation` and `required-isolation` are `required_isolation`."""
    snake = _HUMP.sub(lambda hump: "_" + hump.group(1).lower(), key).replace("-", "_")
    return _ALIASES.get(snake, snake)


def canonical_keys(raw: dict[str, Any], flaws: Flaws) -> dict[str, Any]:
    """The same definition with canonical keys; two spellings of one key are a flaw."""
    result = _renamed(raw, flaws, "")
    constraints = result.get("constraints")
    if isinstance(constraints, dict):
        result["constraints"] = _renamed(constraints, flaws, "constraints.")
    implementation = result.get("implementation")
    if isinstance(implementation, dict):
        result["implementation"] = _renamed(implementation, flaws, "implementation.")
    category = result.get("category")
    if isinstance(category, str):
        result["category"] = CATEGORY_ALIASES.get(category, category)
    if "arguments" in raw:
        result["parameters"] = typed(result["parameters"])
    return _gathered(result, flaws)


def typed(arguments: Any) -> Any:
    """Arguments as specification S5 has them, their types in whatever case, as parameters."""
    if not isinstance(arguments, list):
        return arguments
    return [_typed(one) if isinstance(one, dict) else one for one in arguments]


def as_written(flaws: Flaws, raw: dict[str, Any]) -> Flaws:
    """The flaws of a canonical definition under the keys that its author wrote."""
    written = {
        f"implementation.{part}": key
        for key, part in ((key, flat_part(raw.get("type"), key)) for key in raw)
        if part is not None
    }
    kind = raw.get("type")
    parts = FLAT.get(kind) if isinstance(kind, str) else None
    if parts and raw.get("implementation") is None:  # missing parts, as specifications name them
        missing = {part: key.replace("_", "-") for key, part in parts.items()}
        written = {f"implementation.{part}": key for part, key in missing.items()} | written
        written["implementation"] = next(iter(missing.values()))
    spellings = Counter(map(canonical_key, raw))
    written |= {canonical_key(key): key for key in raw if spellings[canonical_key(key)] == 1}
    return [flaw | {"field": _under(flaw["field"], written)} for flaw in flaws]


def flat_part(kind: Any, key: str) -> str | None:
    """Which part of the implementation a key of the definition itself is, for this type."""
    parts = FLAT.get(kind) if isinstance(kind, str) else None
    return parts.get(canonical_key(key)) if parts else None


def _typed(argument: dict[str, Any]) -> dict[str, Any]:
    kind = argument.get("type")
    known = _KINDS.get(kind.casefold()) if isinstance(kind, str) else None
    return argument | {"type": known} if known else argument


def _gathered(result: dict[str, Any], flaws: Flaws) -> dict[str, Any]:
    """Moves keys of the implementation under `implementation`."""
    kind = result.get("type")
    flat = [key for key in result if flat_part(kind, key)]
    if not flat:
        return result
    parts = {flat_part(kind, key): result.pop(key) for key in flat}
    if result.get("implementation") is not None:
        message = f"stands beside {', '.join(flat)}; give one or the other"
        flaws.append({"field": "implementation", "message": message})
    return result | {"implementation": parts}


def _under(field: str, written: dict[str, str]) -> str:
    for canonical, key in written.items():
        if field == canonical or field.startswith((f"{canonical}.", f"{canonical}[")):
            return key + field[len(canonical) :]
    return field


def _renamed(raw: dict[str, Any], flaws: Flaws, prefix: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in raw.items():
        name = canonical_key(str(key))
        if name in result:
            flaws.append({"field": f"{prefix}{name}", "message": "stands twice, in two spellings"})
        result[name] = value
    return result
