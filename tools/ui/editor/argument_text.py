"""The arguments as YAML or JSON beside their table, and synchronization of the two.

The form contains fingerprints of its table and text, so that the server knows without scripts
which of the two the author has changed since; that one counts.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.catalog.imports.catalog_export import as_yaml
from tools.definitions.dialects import import_documents
from tools.definitions.schemas import json_schemas
from tools.definitions.vocabulary import ParameterType
from tools.errors import ToolcribError
from tools.ui.display import json_line, pretty
from tools.ui.editor.argument_table import CELLS, PARAMETER_TYPES, ArgumentForm, rows_of

KEY = "arguments-text"
TABLE, TEXT = "table", "text"
BOTH_CHANGED = (
    "The table of arguments and their text were both changed, and say different things. Choose"
    " which of the two counts."
)


@dataclass(frozen=True)
class ArgumentsText:
    """The text beside the table, and fingerprints of the two when they last agreed."""

    text: str = ""
    noted_table: str = ""
    noted_text: str = ""
    torn: bool = False  # table and text were both changed, and the author must choose
    error: str = ""  # of a text that cannot be parsed


def write_text(rows: list[ArgumentForm], before: ArgumentsText | None = None) -> ArgumentsText:
    """The text of the table in the language of the one before, which stays where a cell is
    invalid."""
    before = before or ArgumentsText()
    if any(row.unread for row in rows):
        return before
    text = text_of_parameters([row.parameter for row in rows], like=before.text)
    return ArgumentsText(text, _table_fingerprint(rows), _fingerprint(text))


def synchronize(
    rows: list[ArgumentForm], data: Mapping[str, str], counts: str = ""
) -> tuple[list[ArgumentForm], ArgumentsText]:
    """Copies the changed one to the other; `counts` is the author's choice where both changed."""
    text = data.get(KEY, "").replace("\r\n", "\n")
    sent = ArgumentsText(text, data.get("table-noted", "")[:64], data.get("text-noted", "")[:64])
    text_changed = KEY in data and sent.noted_text != _fingerprint(text)
    if counts not in {TABLE, TEXT}:
        both = text_changed and sent.noted_table != _table_fingerprint(rows)
        if both and not _text_matches_table(text, rows):
            return rows, replace(sent, torn=True)
        counts = TEXT if text_changed else TABLE
    if counts == TABLE:
        return rows, write_text(rows, sent)
    try:
        rows = _parse_rows(text)
    except (_UnreadableArguments, ToolcribError) as error:
        # It still counts as changed, so that the table does not overwrite it.
        return rows, replace(sent, error=getattr(error, "message", str(error)))
    return rows, ArgumentsText(text, _table_fingerprint(rows), _fingerprint(text))


def text_of_parameters(parameters: list[dict[str, Any]], *, like: str = "") -> str:
    shorter = [_shortened(one) for one in parameters]
    as_json = like.lstrip().startswith(("[", "{"))
    return pretty(shorter) if as_json else as_yaml(shorter).rstrip() if shorter else ""


def _table_fingerprint(rows: list[ArgumentForm]) -> str:
    return _fingerprint(json_line([row.values for row in rows]))


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


class _UnreadableArguments(Exception):
    """A text that cannot be parsed as arguments."""


def _text_matches_table(text: str, rows: list[ArgumentForm]) -> bool:
    try:
        return [row.values for row in _parse_rows(text)] == [row.values for row in rows]
    except (_UnreadableArguments, ToolcribError):
        return False


def _parse_rows(text: str) -> list[ArgumentForm]:
    """Raises `_UnreadableArguments`, `ToolcribError`."""
    if not text.strip():
        return []
    found = import_documents.parse_documents(text)
    if len(found) != 1 or not isinstance(found[0].value, list):
        raise _UnreadableArguments(
            "Write one list: each argument begins with a dash, or stands in [ ]."
        )
    if len(found[0].value) > json_schemas.MAX_PROPERTIES:
        raise _UnreadableArguments(f"A tool takes at most {json_schemas.MAX_PROPERTIES} arguments.")
    return rows_of([_parameter(at, one) for at, one in enumerate(found[0].value, start=1)])


def _parameter(number: int, one: Any) -> dict[str, Any]:
    """The fields that a row can represent; any other is refused, so that nothing is lost."""
    if not isinstance(one, dict):
        raise _UnreadableArguments(
            f"Argument {number} must be an object with a name, type and description."
        )
    for key in one:
        if key not in CELLS:
            raise _UnreadableArguments(
                f"Argument {number} has the unknown field {str(key)[:60]!r}."
            )
    for key in ("name", "type", "description"):
        if not isinstance(one.get(key, ""), str):
            raise _UnreadableArguments(f"The {key} of argument {number} must be a text.")
    if not isinstance(one.get("required", False), bool):
        raise _UnreadableArguments(
            f"The field 'required' of argument {number} must be true or false."
        )
    kind = PARAMETER_TYPES.get((one.get("type") or ParameterType.STRING).lower())
    if kind is None:
        raise _UnreadableArguments(
            f"The type of argument {number} must be one of {', '.join(ParameterType)}."
        )
    return {key: one.get(key) for key in CELLS} | {"type": kind}


def _shortened(parameter: dict[str, Any]) -> dict[str, Any]:
    """Without empty fields. A default of false or 0 stays."""
    said = {key: value for key, value in parameter.items() if value is not None}
    if not parameter["required"]:
        said.pop("required", None)
    return {key: said[key] for key in CELLS if key in said}
