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

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathNode, JSONPathQuery

from tools.definitions.fields import DefinitionFields
from tools.definitions.schemas.path_work import BadPath, check_path, is_singular
from tools.definitions.texts import templates

TRANSFORM_FIELDS = ("select", "redact", "observation")
LONGEST_PATH = 500
MOST_PATHS = 20
MOST_FOUND = 100_000  # values, of all paths together
REDACTED = "[redacted]"
# Deeper than any allowed output, so that `..` of a path always reaches all data.
_ENVIRONMENT = JSONPathEnvironment(max_recursion_depth=100)


class CannotSelect(ValueError):
    """The path does not fit this output; the message says why."""


@dataclass(frozen=True, slots=True)
class Transform:
    """With all fields empty it changes nothing."""

    path: str = ""
    redacted: tuple[str, ...] = field(default=())
    observation: str = ""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Transform":
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
    own.known(TRANSFORM_FIELDS)
    made: dict[str, Any] = {}
    if own.given("select"):
        made["select"] = _read_path(own, "select", own.text("select", "", longest=LONGEST_PATH))
    if own.given("redact"):
        paths = own.texts("redact", [], flaw_of=_flaw_in_path, most=MOST_PATHS)
        made["redact"] = paths or []
    if own.given("observation"):
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
