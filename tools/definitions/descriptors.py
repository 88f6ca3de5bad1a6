"""The dialects a definition may come in, turned into the canonical keys (ruling 14).

camelCase as in specification S3, kebab-case as in S2 and S5, `applicable-states` as deployed
TrustGraph configurations say. An unknown key is left for the reader to refuse.
"""

import re
from typing import Any

from tools.definitions.vocabulary import CATEGORY_ALIASES

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ALIASES = {"applicable_states": "available_in_states"}


def canonical_key(key: str) -> str:
    """`requiredIsolation` and `required-isolation` are `required_isolation`."""
    snake = _HUMP.sub(lambda hump: "_" + hump.group(1).lower(), key).replace("-", "_")
    return _ALIASES.get(snake, snake)


def canonical_keys(raw: dict[str, Any], flaws: list[dict[str, str]]) -> dict[str, Any]:
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
    return result


def _renamed(raw: dict[str, Any], flaws: list[dict[str, str]], prefix: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in raw.items():
        name = canonical_key(str(key))
        if name in result:
            flaws.append({"field": f"{prefix}{name}", "message": "stands twice, in two spellings"})
        result[name] = value
    return result
