"""The difference between two states of an object, for a record's details."""

from collections.abc import Mapping
from typing import Any

_ABSENT = object()
_JSON_TYPES = frozenset({type(None), bool, int, float, str})


def difference(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """`{"before": …, "after": …}` of the values that differ, as plain JSON. None is for a value
    that was absent before, or is absent now."""
    was, now = dict(before or {}), dict(after or {})
    changed = [name for name in was | now if was.get(name, _ABSENT) != now.get(name, _ABSENT)]
    return {
        "before": {name: as_json_value(was[name]) for name in changed if name in was},
        "after": {name: as_json_value(now[name]) for name in changed if name in now},
    }


def as_json_value(value: Any) -> Any:
    """As JSON: sets are sorted, and values without a JSON type become text."""
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json_value(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [as_json_value(item) for item in value]
    return str(value)
