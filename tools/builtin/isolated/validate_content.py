"""The built-in `validate_content`. Runs inside the sandbox, with three libraries beside the
standard one: a schema and a document from outside may be made to hang, and here they hang alone.
"""

import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import jsonschema_rs
import plain_yaml
import positions
import tables
import xml_documents
from toolcrib import ToolError

MOST_ERRORS = 100
MOST_COUNTED = 100_000
MOST_VALUES = 1_000_000  # of a YAML text, what its aliases stand for included
MOST_SEARCHED = 100_000_000  # characters gone through to find the places of errors

type Flaw = dict[str, object]


class UnreadableContent(Exception):
    """The content is not what its format says; the message says where."""

    def __init__(self, message: str, line: int | None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class Ambiguous(Exception):
    """It could be read as two things; the message says what."""


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """Whether the content fits the schema, and every place where it does not."""
    form = parameters["format"]
    content = parameters["content"].removeprefix("\ufeff")  # a mark of the encoding, no part of it
    found = _CHECKS[form](content, parameters)
    shown = list(itertools.islice(found, MOST_ERRORS))
    more = sum(1 for _ in itertools.islice(found, MOST_COUNTED - len(shown)))
    said = {"valid": not shown, "errors": shown, "error_count": len(shown) + more}
    if parameters.get("give_document") and not shown and form in _READERS:
        said["document"] = _document(content, form)
    return said


def _check_tree(content: str, parameters: dict[str, Any]) -> Iterable[Flaw]:
    """JSON, YAML and TOML are held against a JSON Schema."""
    form = parameters["format"]
    validator = _validator(_one_of(parameters, "json-schema"))
    find, searched = _FINDERS.get(form), 0
    try:
        for error in _errors(validator, _document(content, form)):
            searched += len(content)
            sought = find and searched <= MOST_SEARCHED
            yield _flaw(error, find(content, error.instance_path) if sought else None)
    except UnreadableContent as problem:
        yield _place("/", problem.line, problem.column) | {"message": problem.message}


def _errors(validator: Any, document: Any) -> Iterator[Any]:
    """Raises Unreadable for a document that is nested deeper than the validator goes."""
    try:
        yield from validator.iter_errors(document)
    except (ValueError, RecursionError) as error:
        raise UnreadableContent(
            f"cannot be checked: {str(error).splitlines()[0][:200]}", None
        ) from None


def _check_table(content: str, parameters: dict[str, Any]) -> Iterable[Flaw]:
    yield from tables.Table(_one_of(parameters, "table-schema")).flaws(content)


def _check_xml(content: str, parameters: dict[str, Any]) -> Iterable[Flaw]:
    """Well-formed is enough where no schema is given."""
    text = parameters.get("xsd")
    if parameters.get("schema") is not None:
        raise ToolError("SCHEMA_INVALID", "XML is held against an XML Schema: give it as xsd.")
    yield from xml_documents.flaws(content, None if text is None else xml_documents.schema_of(text))


def _one_of(parameters: dict[str, Any], kind: str) -> Any:
    """The schema itself: named ones were looked up before. Raises ToolError."""
    given = parameters.get("schema")
    if parameters.get("xsd") is not None:
        raise ToolError("SCHEMA_INVALID", f"{parameters['format']} takes no XML Schema.")
    if given is None:
        raise ToolError("SCHEMA_MISSING", f"Give a {kind} as schema, or the name of one.")
    return given


def _validator(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(
            schema,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise ToolError("SCHEMA_INVALID", tables.schema_flaw(error)) from None


def _document(content: str, form: str) -> Any:
    try:
        return _READERS[form](content)
    except json.JSONDecodeError as error:
        raise UnreadableContent(f"not JSON: {error.msg}", error.lineno, error.colno) from None
    except tomllib.TOMLDecodeError as error:
        raise UnreadableContent(f"not TOML: {error}", *_said_place(str(error), content)) from None
    except plain_yaml.BadYaml as error:
        raise UnreadableContent(f"it {error}", error.line, error.column) from None
    except (RecursionError, TypeError, ValueError) as error:
        raise UnreadableContent(f"not {form}: {type(error).__name__}", None) from None


def _said_place(message: str, content: str) -> tuple[int, int]:
    """What TOML's reader says at the end: (at line 1, column 2), or (at end of document)."""
    if found := _PLACE.search(message):
        return int(found[1]), int(found[2])
    return content.count("\n") + 1, len(content) - content.rfind("\n")


def _json(content: str) -> Any:
    """What two readers could take for two things is refused: keys that are there twice, and
    numbers that JSON does not know."""
    try:
        return _plain_json(content)
    except Ambiguous as problem:
        raise UnreadableContent(
            str(problem), *(positions.ambiguity_position(content) or (None, None))
        ) from None


def _yaml(content: str) -> Any:
    """As the catalog reads it. Aliases are counted: a few lines of them can stand for gigabytes."""
    found = plain_yaml.parse(
        content, lambda: lambda *_: None, foreign=True, most_values=MOST_VALUES
    )
    if len(found) > 1:
        raise UnreadableContent("it holds more than one document", None)
    return _plain(found[0]) if found else None


def _toml(content: str) -> Any:
    return _plain(tomllib.loads(content))


def _plain(document: Any) -> Any:
    """As JSON would have it: dates become text."""
    try:
        return _plain_json(json.dumps(document, default=str))
    except Ambiguous as problem:
        raise UnreadableContent(str(problem), None) from None


def _plain_json(text: str) -> Any:
    """Raises Ambiguous."""
    return json.loads(
        text, parse_constant=_unknown, parse_float=_number, object_pairs_hook=_members
    )


def _unknown(word: str) -> NoReturn:
    raise Ambiguous(f"{word[:20]} is no number that JSON knows")


def _number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _unknown(text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise Ambiguous(f"the key {name[:60]!r} is there twice in one object")
        members[name] = value
    return members


def _flaw(error: Any, place: tuple[int, int] | None) -> Flaw:
    line, column = place or (None, None)
    return {
        **_place("/" + "/".join(str(step) for step in error.instance_path), line, column),
        "schema_path": "/" + "/".join(str(step) for step in error.schema_path),
        "message": error.message[:500],
    }


def _place(path: str, line: int | None, column: int | None) -> Flaw:
    return {"path": path, "line": line, "column": column}


_PLACE = re.compile(r"\(at line (\d{1,9}), column (\d{1,9})\)$")
_READERS: dict[str, Callable[[str], Any]] = {"json": _json, "yaml": _yaml, "toml": _toml}
_FINDERS = {
    "json": positions.json_position,
    "yaml": positions.yaml_position,
    "toml": positions.toml_position,
}
_CHECKS = {
    "json": _check_tree,
    "yaml": _check_tree,
    "toml": _check_tree,
    "csv": _check_table,
    "xml": _check_xml,
}
