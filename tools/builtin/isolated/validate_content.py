"""The built-in `validate_content`. Runs inside the sandbox, with three libraries beside the
standard one: a schema and a document from outside may be made to hang, and here they hang alone.
"""

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jsonschema_rs
import positions
import tables
import xml_documents
import yaml
from toolcrib import ToolError

MOST_ERRORS = 100
MOST_COUNTED = 100_000
MOST_ALIASES = 100
MOST_SEARCHED = 100_000_000  # characters gone through to find the places of errors

type Flaw = dict[str, object]


class Unreadable(Exception):
    """The content is not what its format says; the message says where."""

    def __init__(self, message: str, line: int | None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """Whether the content fits the schema, and every place where it does not."""
    form = parameters["format"]
    found = _CHECKS[form](parameters["content"], parameters)
    shown = list(itertools.islice(found, MOST_ERRORS))
    more = sum(1 for _ in itertools.islice(found, MOST_COUNTED - len(shown)))
    said = {"valid": not shown, "errors": shown, "error_count": len(shown) + more}
    if parameters.get("give_document") and not shown and form in _READERS:
        said["document"] = _plain(_document(parameters["content"], form))
    return said


def _plain(document: Any) -> Any:
    """As JSON can hold it: dates and times of TOML are texts."""
    return json.loads(json.dumps(document, default=str))


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
    except Unreadable as problem:
        yield _place("/", problem.line, problem.column) | {"message": problem.message}


def _errors(validator: Any, document: Any) -> Iterator[Any]:
    """Raises Unreadable for a document that is nested deeper than the validator goes."""
    try:
        yield from validator.iter_errors(document)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"cannot be checked: {str(error).splitlines()[0][:200]}", None) from None


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
        raise ToolError("SCHEMA_INVALID", str(error).splitlines()[0][:400]) from None


def _document(content: str, form: str) -> Any:
    try:
        return _READERS[form](content)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg}", error.lineno, error.colno) from None
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"not TOML: {error}", *_said_place(str(error))) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise Unreadable(f"not YAML: {error.problem or error.context}", *place) from None
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise Unreadable(f"not {form}: {type(error).__name__}", None) from None


def _said_place(message: str) -> tuple[int | None, int | None]:
    """What TOML's reader says at the end: (at line 1, column 2)."""
    found = _PLACE.search(message)
    return (int(found[1]), int(found[2])) if found else (None, None)


def _yaml(content: str) -> Any:
    """Plain data only. Aliases are counted: a few lines of them can stand for gigabytes."""
    aliases = sum(
        isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, yaml.SafeLoader)
    )
    if aliases > MOST_ALIASES:
        raise Unreadable(f"more than {MOST_ALIASES} aliases", None)
    return _plain(yaml.safe_load(content))


def _toml(content: str) -> Any:
    return _plain(tomllib.loads(content))


def _plain(document: Any) -> Any:
    """As JSON would have it: dates become text."""
    return json.loads(json.dumps(document, default=str))


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
_READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": _yaml, "toml": _toml}
# Nothing says where TOML's values stand: the path does.
_FINDERS = {"json": positions.in_json, "yaml": positions.in_yaml}
_CHECKS = {
    "json": _check_tree,
    "yaml": _check_tree,
    "toml": _check_tree,
    "csv": _check_table,
    "xml": _check_xml,
}
