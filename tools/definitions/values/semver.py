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
_WORDS = frozenset({"description", "title", "examples", "default", "$comment"})  # only annotate
# From what may be repeated freely to what may not be repeated at all.
_CAREFUL = (Delivery.PURE, Delivery.IDEMPOTENT, Delivery.TRANSACTIONAL, Delivery.EXTERNAL)


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


def parse(label: str) -> Version | None:
    """None for what is no semantic version (semver.org 2.0.0)."""
    found = _FORM.fullmatch(label)
    if found is None:
        return None
    parts = found[4].split(".") if found[4] else []
    before = tuple((0, int(one), "") if one.isdecimal() else (1, 0, one) for one in parts)
    return Version(int(found[1]), int(found[2]), int(found[3]), before)


def change_between(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """The size of the change for callers of the old definition."""
    return max(
        _of_input(old["input_schema"], new["input_schema"]),
        _of_output(old["output_schema"], new["output_schema"]),
        _of_effects(old, new),
        _of_doors(old, new),
        _of_terms(old, new),
    )


def _of_input(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Change of an input schema: earlier inputs must still be accepted."""
    if set(new.get("required") or []) - set(old.get("required") or []):
        return VersionChange.MAJOR
    if _open(old) and not _open(new):
        return VersionChange.MAJOR
    had, has = _properties(old), _properties(new)
    if set(had) - set(has):
        return VersionChange.MAJOR
    kept = max((_of_value(had[name], has[name]) for name in had), default=VersionChange.PATCH)
    grown = set(has) - set(had) or set(old.get("required") or []) - set(new.get("required") or [])
    rest = _of_rest(old, new)
    return max(kept, rest, VersionChange.MINOR if grown else VersionChange.PATCH)


def _of_value(old: Any, new: Any) -> VersionChange:
    """Wider inputs are minor, any other change of constraints is major."""
    before, after = _binding(old), _binding(new)
    if before == after:
        return VersionChange.PATCH
    if isinstance(before, dict) and isinstance(after, dict):
        choices = before.pop("enum", None), after.pop("enum", None)
        if before == after and choices[0] and (not choices[1] or _within(*choices)):
            return VersionChange.MINOR
    return VersionChange.MAJOR


def _of_output(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Change of an output schema: what callers read must still be returned."""
    if _binding(old) == _binding(new):
        return VersionChange.PATCH
    if not old:
        return VersionChange.MINOR
    had, has = _properties(old), _properties(new)
    same = all(name in has and _binding(had[name]) == _binding(has[name]) for name in had)
    promised = set(old.get("required") or []) <= set(new.get("required") or [])
    grown = had and same and promised and _of_rest(old, new) == VersionChange.PATCH
    return VersionChange.MINOR if grown else VersionChange.MAJOR


def _of_rest(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    told = {"properties", "required", "additionalProperties"} | _WORDS
    rest = [{key: _binding(one[key]) for key in one if key not in told} for one in (old, new)]
    return VersionChange.PATCH if rest[0] == rest[1] else VersionChange.MAJOR


def _of_effects(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    riskier = _CAREFUL.index(new["delivery"]) > _CAREFUL.index(old["delivery"])
    acts = [one["constraints"]["allow_side_effects"] for one in (old, new)]
    if riskier or acts == [False, True]:
        return VersionChange.MAJOR
    changed = acts[0] != acts[1] or new["delivery"] != old["delivery"]
    return VersionChange.MINOR if changed else VersionChange.PATCH


def _of_doors(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    """Who can reach the tool, and when: fewer groups or states exclude callers."""
    groups = _doors(old["group"], "default"), _doors(new["group"], "default")
    states = _doors(old["available_in_states"], "*"), _doors(new["available_in_states"], "*")
    fewer = not groups[0] <= groups[1] or not ("*" in states[1] or states[0] <= states[1])
    asked = set(new["required_permissions"]) - set(old["required_permissions"])
    held = new["requires_confirmation"] and not old["requires_confirmation"]
    if fewer or asked or held or old["state"] != new["state"]:
        return VersionChange.MAJOR
    keys = ("group", "available_in_states", "required_permissions", "requires_confirmation")
    return VersionChange.MINOR if any(old[key] != new[key] for key in keys) else VersionChange.PATCH


def _of_terms(old: dict[str, Any], new: dict[str, Any]) -> VersionChange:
    keys = ("rate_limit_per_minute", "cost_per_invocation", "cache_ttl", "argument_validation")
    return VersionChange.MINOR if any(old[key] != new[key] for key in keys) else VersionChange.PATCH


def _binding(schema: Any) -> Any:
    """A schema without annotations."""
    if isinstance(schema, list):
        return [_binding(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _binding(one) for key, one in schema.items() if key not in _WORDS}
    named = schema.get("properties")  # a property may have the name of such a word
    if isinstance(named, dict):
        kept["properties"] = {key: _binding(one) for key, one in named.items()}
    return kept


def _within(old: list[Any], new: list[Any]) -> bool:
    return all(one in new for one in old)


def _open(schema: dict[str, Any]) -> bool:
    return schema.get("additionalProperties", True) is not False


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _doors(names: list[str] | None, absent: str) -> set[str]:
    return {absent} if names is None else set(names)
