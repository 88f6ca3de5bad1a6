"""Transforms of a tool's output before a caller gets it.

    "transform": {"select": "$.items[*].name", "redact": ["$[*].token"], "observation": "…"}

`select` and `redact` are JSONPath (RFC 9535), `observation` is a template over `output`. Authors of
a path are not trusted: its cost is bounded when it is parsed, so that it visits each value at most
a few times.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathNode, JSONPathQuery, _ast

from tools.definitions.fields import DefinitionFields
from tools.definitions.texts import templates

_MOST_SEGMENTS = 20
_MOST_SELECTORS = 20  # of all segments multiplied: each may visit the same once more
_MOST_COMPARED = 20
_COMPARISONS = frozenset(
    {_ast.EQ_EXPR, _ast.NE_EXPR, _ast.LT_EXPR, _ast.LE_EXPR, _ast.GT_EXPR, _ast.GE_EXPR,
     _ast.AND_EXPR, _ast.OR_EXPR, _ast.NOT_EXPR}
)  # fmt: skip
_CONSTANTS = frozenset(
    {_ast.NULL_EXPR, _ast.BOOL_EXPR, _ast.INT_EXPR, _ast.FLOAT_EXPR, _ast.STRING_EXPR}
)
_STEPS = frozenset({_ast.NAME_SELECTOR, _ast.INDEX_SELECTOR})
TRANSFORM_FIELDS = ("select", "redact", "observation")
LONGEST_PATH = 500
MOST_PATHS = 20
MOST_FOUND = 100_000  # values, of all paths together
REDACTED = "[redacted]"
# Deeper than any allowed output, so that `..` of a path always reaches all data.
_ENVIRONMENT = JSONPathEnvironment(max_recursion_depth=100)


class BadPath(ValueError):
    """An invalid path; the message is for its author."""


def check_path(segments: Any) -> None:
    """Raises `BadPath`."""
    if len(segments) > _MOST_SEGMENTS:
        raise BadPath(f"has more than {_MOST_SEGMENTS} steps")
    if sum(kind == _ast.DESCENDANT_SEGMENT for kind, _, _ in segments) > 1:
        raise BadPath("descends with .. more than once")
    visits = 1
    for _, _, selectors in segments:
        visits *= len(selectors)
        for selector in selectors:
            if selector[0] == _ast.FILTER_SELECTOR:
                _check_filter(selector[2])
    if visits > _MOST_SELECTORS:
        raise BadPath(f"multiplies to more than {_MOST_SELECTORS} selectors")


def _check_filter(expression: Any) -> None:
    pending, seen = [expression], 0
    while pending:
        kind, _, *rest = pending.pop()
        seen += 1
        if seen > _MOST_COMPARED:
            raise BadPath(f"compares more than {_MOST_COMPARED} times in a filter")
        if kind in _COMPARISONS:
            pending += rest
        elif kind == _ast.RELATIVE_QUERY_EXPR:
            _check_singular(rest[0])
        elif kind not in _CONSTANTS:
            raise BadPath("may compare in a filter only what stands at @ with constants")


def is_singular(segments: Any) -> bool:
    """Whether it can mean one value at most."""
    return all(
        kind == _ast.CHILD_SEGMENT and len(selectors) == 1 and selectors[0][0] in _STEPS
        for kind, _, selectors in segments
    )


def _check_singular(segments: Any) -> None:
    """A search within a filter multiplies the cost."""
    if not is_singular(segments) or len(segments) > _MOST_SEGMENTS:
        raise BadPath("may name in a filter only single places, such as @.kind")


class CannotSelect(ValueError):
    """The path does not fit this output; the message says why."""


@dataclass(frozen=True, slots=True)
class Transform:
    """With all fields empty it changes nothing."""

    path: str = ""
    redacted: tuple[str, ...] = field(default=())
    observation: str = ""

    @classmethod
    def from_definition(cls, raw: dict[str, Any]) -> "Transform":
        """From a parsed definition."""
        redacted = tuple(raw.get("redact", ()))
        return cls(raw.get("select", ""), redacted, raw.get("observation", ""))

    @property
    def narrows(self) -> bool:
        """Whether it removes parts of an output."""
        return bool(self.path or self.redacted)

    def select(self, output: Any) -> Any:
        """One value where the path is singular, otherwise the list of matches."""
        if not self.path:
            return output
        found = _find_nodes([self.path], output)
        if not is_singular(_compile_path(self.path).segments):
            return [node.value for node in found]
        if not found:
            raise CannotSelect(f"there is nothing at {self.path}")
        return found[0].value

    def redact(self, output: Any) -> Any:
        """With a mark in the place of each value; the output itself is changed."""
        # All matches are found first: a filter may read a value that is redacted.
        for node in _find_nodes(self.redacted, output):
            if not node.location:
                return REDACTED
            _redact_at(output, node.location)
        return output


def read_transform(fields: DefinitionFields) -> dict[str, Any]:
    """The canonical form; it has only the given keys."""
    own = DefinitionFields(
        fields.object("transform", {}), fields.flaws, f"{fields.prefix}transform."
    )
    own.reject_unknown(TRANSFORM_FIELDS)
    made: dict[str, Any] = {}
    if own.has_value("select"):
        made["select"] = _read_path(own, "select", own.text("select", "", longest=LONGEST_PATH))
    if own.has_value("redact"):
        paths = own.texts("redact", [], flaw_of=_flaw_in_path, most=MOST_PATHS)
        made["redact"] = paths or []
    if own.has_value("observation"):
        made["observation"] = _read_template(own)
    return made


def _read_path(own: DefinitionFields, name: str, path: str) -> str:
    if flaw := _flaw_in_path(path):
        own.wrong(name, flaw)
    return path


def _read_template(own: DefinitionFields) -> str:
    text = own.text("observation", "", longest=templates.LONGEST_TEMPLATE)
    try:
        templates.check_template(text, ["output"])
    except templates.BadTemplate as error:
        own.wrong("observation", str(error))
    return text


def _flaw_in_path(path: str) -> str | None:
    if len(path) > LONGEST_PATH:
        return f"is longer than {LONGEST_PATH} characters"
    try:
        check_path(_ENVIRONMENT.compile(path).segments)
    except BadPath as error:
        return str(error)
    except (JSONPathError, RecursionError, ValueError):
        return "is not a JSONPath of RFC 9535, such as $.items[*].name"
    return None


def _find_nodes(paths: Iterable[str], output: Any) -> list[JSONPathNode]:
    every = chain.from_iterable(_compile_path(path).finditer(output) for path in paths)
    found = list(islice(every, MOST_FOUND + 1))
    if len(found) > MOST_FOUND:
        raise CannotSelect(f"its paths find more than {MOST_FOUND} values")
    return found


def _redact_at(output: Any, location: tuple[int | str, ...]) -> None:
    """The container may be gone: another path, or this one further out, has redacted it."""
    at = output
    for step in location[:-1]:
        if not isinstance(at, dict | list):
            return
        at = at[step]  # type: ignore[index] # a location fits the container it was found in
    if isinstance(at, dict | list):
        at[location[-1]] = REDACTED  # type: ignore[index]


@lru_cache(maxsize=500)
def _compile_path(path: str) -> JSONPathQuery:
    return _ENVIRONMENT.compile(path)
