"""Semantic versions of definitions: the size of a change for callers of the tool."""

import re
from enum import IntEnum
from functools import total_ordering
from typing import Any, NamedTuple

from tools.definitions.vocabulary import Delivery

LARGEST = 999_999_999  # that may be requested; more digits are read, since a bump exceeds it
_NUMBER = r"(0|[1-9]\d{0,11})"
_PART = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_FORM = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PART}(?:\.{_PART})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_ANNOTATIONS = frozenset(
    {"description", "title", "examples", "default", "$comment"}
)  # only annotate
# From what may be repeated freely to what may not be repeated at all.
_DELIVERY_ORDER = (Delivery.PURE, Delivery.IDEMPOTENT, Delivery.TRANSACTIONAL, Delivery.EXTERNAL)


class VersionChange(IntEnum):
    PATCH = 0
    MINOR = 1
    MAJOR = 2


@total_ordering
class Version(NamedTuple):
    major: int
    minor: int
    patch: int
    before: tuple[tuple[int, int, str], ...] = ()  # of a pre-release, as they are compared

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return self._order() < Version(*other)._order()

    def _order(self) -> tuple[Any, ...]:
        return (self.major, self.minor, self.patch, not self.before, self.before)

    def bumped(self, change: VersionChange) -> "Version":
        if self.before:
            return Version(self.major, self.minor, self.patch)
        if change == VersionChange.MAJOR:
            return Version(self.major + 1, 0, 0)
        if change == VersionChange.MINOR:
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1)

    @property
    def label(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(label: str) -> Version | None:
    """None for what is no semantic version (semver.org 2.0.0)."""
    found = _FORM.fullmatch(label)
    if found is None:
        return None
    parts = found[4].split(".") if found[4] else []
    before = tuple((0, int(one), "") if one.isdecimal() else (1, 0, one) for one in parts)
    return Version(int(found[1]), int(found[2]), int(found[3]), before)


def definition_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """The size of the change for callers of the old definition."""
    return max(
        _input_change(old["input_schema"], new["input_schema"]),
        _output_change(old["output_schema"], new["output_schema"]),
        _effects_change(old, new),
        _access_change(old, new),
        _terms_change(old, new),
    )


def _input_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Change of an input schema: earlier inputs must still be accepted."""
    if set(new.get("required") or []) - set(old.get("required") or []):
        return VersionChange.MAJOR
    if _allows_more(old) and not _allows_more(new):
        return VersionChange.MAJOR
    had, has = _properties(old), _properties(new)
    if set(had) - set(has):
        return VersionChange.MAJOR
    kept = max((_value_change(had[name], has[name]) for name in had), default=VersionChange.PATCH)
    grown = set(has) - set(had) or set(old.get("required") or []) - set(new.get("required") or [])
    rest = _other_keyword_change(old, new)
    return max(kept, rest, VersionChange.MINOR if grown else VersionChange.PATCH)


def _value_change(old: Any, new: Any) -> VersionChange:
    """Wider inputs are minor, any other change of constraints is major."""
    before, after = _without_annotations(old), _without_annotations(new)
    if before == after:
        return VersionChange.PATCH
    if isinstance(before, dict) and isinstance(after, dict):
        choices = before.pop("enum", None), after.pop("enum", None)
        if before == after and choices[0] and (not choices[1] or _contains_all(*choices)):
            return VersionChange.MINOR
    return VersionChange.MAJOR


def _output_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Change of an output schema: what callers read must still be returned."""
    if _without_annotations(old) == _without_annotations(new):
        return VersionChange.PATCH
    if not old:
        return VersionChange.MINOR
    had, has = _properties(old), _properties(new)
    same = all(
        name in has and _without_annotations(had[name]) == _without_annotations(has[name])
        for name in had
    )
    promised = set(old.get("required") or []) <= set(new.get("required") or [])
    grown = had and same and promised and _other_keyword_change(old, new) == VersionChange.PATCH
    return VersionChange.MINOR if grown else VersionChange.MAJOR


def _other_keyword_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    compared_apart = {"properties", "required", "additionalProperties"} | _ANNOTATIONS
    rest = [
        {key: _without_annotations(one[key]) for key in one if key not in compared_apart}
        for one in (old, new)
    ]
    return VersionChange.PATCH if rest[0] == rest[1] else VersionChange.MAJOR


def _effects_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    riskier = _DELIVERY_ORDER.index(new["delivery"]) > _DELIVERY_ORDER.index(old["delivery"])
    acts = [one["constraints"]["allow_side_effects"] for one in (old, new)]
    if riskier or acts == [False, True]:
        return VersionChange.MAJOR
    changed = acts[0] != acts[1] or new["delivery"] != old["delivery"]
    return VersionChange.MINOR if changed else VersionChange.PATCH


def _access_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Who can reach the tool, and when: fewer groups or states exclude callers."""
    groups = _access_names(old["group"], "default"), _access_names(new["group"], "default")
    states = (
        _access_names(old["available_in_states"], "*"),
        _access_names(new["available_in_states"], "*"),
    )
    fewer = not groups[0] <= groups[1] or not ("*" in states[1] or states[0] <= states[1])
    asked = set(new["required_permissions"]) - set(old["required_permissions"])
    held = new["requires_confirmation"] and not old["requires_confirmation"]
    if fewer or asked or held or old["state"] != new["state"]:
        return VersionChange.MAJOR
    keys = ("group", "available_in_states", "required_permissions", "requires_confirmation")
    return VersionChange.MINOR if any(old[key] != new[key] for key in keys) else VersionChange.PATCH


def _terms_change(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    keys = ("rate_limit_per_minute", "cost_per_invocation", "cache_ttl", "argument_validation")
    return VersionChange.MINOR if any(old[key] != new[key] for key in keys) else VersionChange.PATCH


def _without_annotations(schema: Any) -> Any:
    """A schema without annotations."""
    if isinstance(schema, list):
        return [_without_annotations(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_annotations(one) for key, one in schema.items() if key not in _ANNOTATIONS
    }
    named = schema.get("properties")  # a property may have the name of such a word
    if isinstance(named, dict):
        kept["properties"] = {key: _without_annotations(one) for key, one in named.items()}
    return kept


def _contains_all(old: list[Any], new: list[Any]) -> bool:
    return all(one in new for one in old)


def _allows_more(schema: dict[str, Any]) -> bool:
    return schema.get("additionalProperties", True) is not False


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _access_names(names: list[str] | None, absent: str) -> set[str]:
    return {absent} if names is None else set(names)
