"""The arguments as YAML or JSON beside their table, and synchronization of the two.

The form contains fingerprints of its table and text, so that the server knows without scripts
which of the two the author has changed since; that one counts.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from tools.catalog.imports.catalog_export import as_yaml
from tools.definitions.dialects import import_documents
from tools.definitions.schemas import json_schemas
from tools.definitions.vocabulary import ParameterType
from tools.errors import ToolcribError
from tools.ui.display import json_line, pretty
from tools.ui.editor.argument_table import CELLS, ArgumentRow, rows_of
from tools.ui.editor.tool_drafts import ARGUMENTS_TEXT as KEY
from tools.ui.editor.tool_drafts import ArgumentFingerprints, ToolDraft

TABLE, TEXT = "table", "text"
_KINDS = {kind.lower(): str(kind) for kind in ParameterType}
_BOTH_CHANGED = (
    "The table of arguments and their text were both changed, and say different things. Choose"
    " which of the two counts."
)


def write_text(draft: ToolDraft) -> None:
    """Write the text from the table."""
    if _text_from_table(draft):
        _store_fingerprints(draft)


def synchronize(draft: ToolDraft, data: Mapping[str, str], counts: str = "") -> None:
    """Copy the changed one to the other; `counts` is the author's choice where both changed."""
    draft.noted = ArgumentFingerprints(
        data.get("table-noted", "")[:64], data.get("text-noted", "")[:64]
    )
    text_changed = KEY in data and draft.noted.text != _fingerprint(draft.text.value)
    if counts not in {TABLE, TEXT}:
        both = text_changed and draft.noted.table != _table_fingerprint(draft)
        if both and not _text_matches_table(draft):
            draft.torn = True
            draft.flaws.append({"field": "", "message": _BOTH_CHANGED})
            return
        counts = TEXT if text_changed else TABLE
    carried = _table_from_text(draft) if counts == TEXT else _text_from_table(draft)
    if carried:  # else it still counts as changed, so that the other does not overwrite it
        _store_fingerprints(draft)


def write_as(draft: ToolDraft, language: str) -> None:
    draft.text.value = "[]" if language == "json" else ""
    write_text(draft)


def _store_fingerprints(draft: ToolDraft) -> None:
    draft.noted = ArgumentFingerprints(_table_fingerprint(draft), _fingerprint(draft.text.value))


def _text_from_table(draft: ToolDraft) -> bool:
    """Write the text from the table, unless a cell is invalid."""
    parameters = [row.parameter for row in draft.rows]
    unread = any(row.flaws for row in draft.rows)
    for row in draft.rows:
        row.forget_flaws()  # reading the definition reports them
    if not unread:
        draft.text.value = _rows_text(parameters, like=draft.text.value)
    return not unread


def _table_from_text(draft: ToolDraft) -> bool:
    """Write the table from the text; an invalid text gets an error and leaves the table."""
    try:
        draft.rows = _parse_rows(draft.text.value)
    except (_UnreadableArguments, ToolcribError) as error:
        draft.text.errors.append(getattr(error, "message", str(error)))
        return False
    return True


def _rows_text(parameters: list[dict[str, Any]], *, like: str) -> str:
    """The arguments in the language of the previous text."""
    shorter = [_shortened(one) for one in parameters]
    as_json = like.lstrip().startswith(("[", "{"))
    return pretty(shorter) if as_json else as_yaml(shorter).rstrip() if shorter else ""


def _table_fingerprint(draft: ToolDraft) -> str:
    return _fingerprint(json_line([row.values for row in draft.rows]))


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


class _UnreadableArguments(Exception):
    """A text that cannot be parsed as arguments."""


def _text_matches_table(draft: ToolDraft) -> bool:
    try:
        return [row.values for row in _parse_rows(draft.text.value)] == [
            row.values for row in draft.rows
        ]
    except (_UnreadableArguments, ToolcribError):
        return False


def _parse_rows(text: str) -> list[ArgumentRow]:
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
    return {key: one.get(key) for key in CELLS} | {"type": _kind(number, one)}


def _kind(number: int, one: dict[str, Any]) -> str:
    kind = _KINDS.get((one.get("type") or ParameterType.STRING).lower())
    if kind is None:
        raise _UnreadableArguments(
            f"The type of argument {number} must be one of {', '.join(ParameterType)}."
        )
    return kind


def _shortened(parameter: dict[str, Any]) -> dict[str, Any]:
    """Without empty fields. A default of false or 0 stays."""
    said = {key: value for key, value in parameter.items() if value is not None}
    if not parameter["required"]:
        said.pop("required", None)
    return {key: said[key] for key in CELLS if key in said}
