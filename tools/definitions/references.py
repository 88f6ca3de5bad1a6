"""References in parameters to the output of another execution (Tool system, "$result").

    {"$result": "<execution id>", "path": "/output/items/0"}

A path is a JSON Pointer (RFC 6901) into that execution; only its output may be pointed at.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tools.definitions.values.json_pointers import (
    INVALID_ESCAPE,
    NothingAtPointer,
    format_pointer,
    resolve_pointer,
)

MARK, PATH = "$result", "path"
ROOT = "/output"
LONGEST_PATH = 1_000
ParameterPlace = tuple[str | int, ...]


class BadReference(ValueError):
    """The reference cannot be resolved; the message says why."""


@dataclass(frozen=True, slots=True)
class OutputReference:
    execution_id: UUID
    path: str
    place: ParameterPlace  # in the parameters

    @property
    def where(self) -> str:
        return format_pointer(self.place)


def find_references(parameters: Any) -> Iterator[tuple[ParameterPlace, dict[str, Any]]]:
    """Every object with the form of a reference, and its place; none within another."""
    pending: list[tuple[ParameterPlace, Any]] = [((), parameters)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, dict):
            if MARK in value:
                yield place, value
            else:
                pending += [((*place, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [((*place, at), item) for at, item in enumerate(value)]


def parse_reference(place: ParameterPlace, raw: dict[str, Any]) -> OutputReference:
    """Raises `BadReference`."""
    if not place:
        raise BadReference("the parameters as a whole cannot be a reference")
    if not set(raw) <= {MARK, PATH}:
        raise BadReference(f"beside {MARK} only {PATH} may stand")
    identifier, path = raw[MARK], raw.get(PATH, ROOT)
    if not isinstance(identifier, str) or not isinstance(path, str):
        raise BadReference(f"{MARK} and {PATH} must be texts; a reference holds no other")
    if len(path) > LONGEST_PATH or not (path == ROOT or path.startswith(f"{ROOT}/")):
        raise BadReference(f"{PATH} must begin with {ROOT}, of at most {LONGEST_PATH} characters")
    if INVALID_ESCAPE.search(path):
        raise BadReference(f"in {PATH}, ~ stands only before 0 or 1 (RFC 6901)")
    try:
        return OutputReference(UUID(identifier), path, place)
    except ValueError:
        raise BadReference(f"{MARK} must be the identifier of an execution") from None


def output_at_path(output: Any, path: str) -> Any:
    """The value at a parsed path. Raises `BadReference`."""
    try:
        return resolve_pointer(output, path.removeprefix(ROOT))
    except NothingAtPointer:
        raise BadReference("there is nothing at this path") from None


def replace_at(parameters: Any, place: ParameterPlace, value: Any) -> Any:
    """A copy of the parameters with the value in its place; only its containers are copied."""
    if not place:
        return value
    step, *rest = place
    copy = parameters.copy()
    copy[step] = replace_at(parameters[step], tuple(rest), value)
    return copy
