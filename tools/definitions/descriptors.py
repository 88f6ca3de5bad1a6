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
_PARAMETER_TYPES = {kind.casefold(): kind for kind in ParameterType}
_MODEL_KEYS = {key: key for key in ("model", "system", "max_tokens", "max_prompt_bytes")}
_GRAPH_KEYS = {"collection": "collection", "limit": "limit"}
# By type: keys that may stand beside the others, and their names under `implementation`.
FLAT_KEYS: dict[str, dict[str, str]] = {
    ToolType.MCP: {"mcp_tool": "tool", "server": "server"},
    ToolType.SERVICE: {"service": "service", "config": "config"},
    ToolType.PROMPT: {"template": "template", **_MODEL_KEYS},
    ToolType.TEXT_COMPLETION: _MODEL_KEYS,
    ToolType.KNOWLEDGE_QUERY: _GRAPH_KEYS,
    ToolType.STRUCTURED_QUERY: _GRAPH_KEYS,
    ToolType.GRAPH_UPDATE: _GRAPH_KEYS,
}


def canonical_key(key: str) -> str:
    """`requiredIsolation` and `required-isolation` are `required_isolation`."""
    snake = _HUMP.sub(lambda hump: "_" + hump.group(1).lower(), key).replace("-", "_")
    return _ALIASES.get(snake, snake)


def canonical_keys(raw: dict[str, Any], flaws: Flaws) -> dict[str, Any]:
    """The same definition with canonical keys; two spellings of one key are a flaw."""
    result = _rename_keys(raw, flaws, "")
    constraints = result.get("constraints")
    if isinstance(constraints, dict):
        result["constraints"] = _rename_keys(constraints, flaws, "constraints.")
    implementation = result.get("implementation")
    if isinstance(implementation, dict):
        result["implementation"] = _rename_keys(implementation, flaws, "implementation.")
    category = result.get("category")
    if isinstance(category, str):
        result["category"] = CATEGORY_ALIASES.get(category, category)
    if "arguments" in raw:
        result["parameters"] = normalize_argument_types(result["parameters"])
    return _nest_implementation(result, flaws)


def normalize_argument_types(arguments: Any) -> Any:
    """Arguments as specification S5 has them, their types in whatever case, as parameters."""
    if not isinstance(arguments, list):
        return arguments
    return [_normalize_argument_type(one) if isinstance(one, dict) else one for one in arguments]


def restore_written_keys(flaws: Flaws, raw: dict[str, Any]) -> Flaws:
    """The flaws of a canonical definition under the keys that its author wrote."""
    written = {
        f"implementation.{part}": key
        for key, part in ((key, implementation_part(raw.get("type"), key)) for key in raw)
        if part is not None
    }
    kind = raw.get("type")
    parts = FLAT_KEYS.get(kind) if isinstance(kind, str) else None
    if parts and raw.get("implementation") is None:  # missing parts, as specifications name them
        missing = {part: key.replace("_", "-") for key, part in parts.items()}
        written = {f"implementation.{part}": key for part, key in missing.items()} | written
        written["implementation"] = next(iter(missing.values()))
    spellings = Counter(map(canonical_key, raw))
    written |= {canonical_key(key): key for key in raw if spellings[canonical_key(key)] == 1}
    return [flaw | {"field": _written_field(flaw["field"], written)} for flaw in flaws]


def implementation_part(kind: Any, key: str) -> str | None:
    """Which part of the implementation a key of the definition itself is, for this type."""
    parts = FLAT_KEYS.get(kind) if isinstance(kind, str) else None
    return parts.get(canonical_key(key)) if parts else None


def _normalize_argument_type(argument: dict[str, Any]) -> dict[str, Any]:
    kind = argument.get("type")
    known = _PARAMETER_TYPES.get(kind.casefold()) if isinstance(kind, str) else None
    return argument | {"type": known} if known else argument


def _nest_implementation(result: dict[str, Any], flaws: Flaws) -> dict[str, Any]:
    """Moves keys of the implementation under `implementation`."""
    kind = result.get("type")
    flat = [key for key in result if implementation_part(kind, key)]
    if not flat:
        return result
    parts = {implementation_part(kind, key): result.pop(key) for key in flat}
    if result.get("implementation") is not None:
        message = f"stands beside {', '.join(flat)}; give one or the other"
        flaws.append({"field": "implementation", "message": message})
    return result | {"implementation": parts}


def _written_field(field: str, written: dict[str, str]) -> str:
    for canonical, key in written.items():
        if field == canonical or field.startswith((f"{canonical}.", f"{canonical}[")):
            return key + field[len(canonical) :]
    return field


def _rename_keys(raw: dict[str, Any], flaws: Flaws, prefix: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in raw.items():
        name = canonical_key(str(key))
        if name in result:
            flaws.append({"field": f"{prefix}{name}", "message": "stands twice, in two spellings"})
        result[name] = value
    return result
