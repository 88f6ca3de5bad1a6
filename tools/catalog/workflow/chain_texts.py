"""Chains as editable text: parsed with the line of every error, and serialized again."""

import re
from dataclasses import dataclass, field
from typing import Any

from tools.catalog.actions import read
from tools.catalog.imports.catalog_export import OnOneLine, as_yaml
from tools.catalog.workflow.chains import check_chain, doubts_about
from tools.definitions.chains import expressions
from tools.definitions.chains.chain_document import chain_definition, chain_document, chain_field
from tools.definitions.dialects import import_documents
from tools.definitions.dialects.import_documents import Lines
from tools.definitions.tool import Definition, ordered_definition
from tools.errors import InvalidDefinition, Malformed, TooLarge
from tools.models import Organization

_STEP = (
    "id", "tool_name", "when", "for_each", "parallel", "parameters", "retries", "timeout",
    "on_error", "compensate_with",
)  # fmt: skip
_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong, or may be; `line` is None where it is about the whole."""

    line: int | None
    place: str
    message: str


@dataclass
class ChainText:
    """`definition` is None where the text is no chain that can be kept."""

    raw: dict[str, Any] = field(default_factory=dict)
    definition: Definition | None = None
    flaws: list[Remark] = field(default_factory=list)
    doubts: list[Remark] = field(default_factory=list)


def read_text(organization: Organization, text: str) -> ChainText:
    """YAML or JSON. Every error is reported; nothing is raised, and nothing stored."""
    found, lines = ChainText(), Lines()
    try:
        value, lines = _one_document(text)
        found.raw = chain_definition(value)
        canonical = read(found.raw, builtin=False)
        check_chain(organization, canonical)
        found.definition = canonical
        doubts = doubts_about(organization, canonical)
        found.doubts = [_remark(one.place, one.message, lines) for one in doubts]
    except (Malformed, TooLarge, InvalidDefinition) as error:
        found.flaws = remarks_of(error, lines)
    return found


def remarks_of(error: Malformed | TooLarge | InvalidDefinition, lines: Lines) -> list[Remark]:
    errors = error.details.get("errors")
    if not errors:
        return [Remark(None, "", error.message)]
    return [_flaw_remark(one, lines) for one in errors]


def text_of(definition: Definition) -> str:
    """The shortest text that reads as a stored definition: defaults are left out."""
    written = chain_document(ordered_definition(definition))
    written["parameters"] = [
        OnOneLine({key: value for key, value in one.items() if value is not None})
        for one in written["parameters"]
    ]
    for key in list(written["constraints"]):
        shorter = written | {"constraints": _without(key, written["constraints"])}
        written = shorter if _reads_as(shorter, definition) else written
    for key in list(written):
        shorter = _without(key, written)
        written = shorter if _reads_as(shorter, definition) else written
    written["steps"] = [_step_in_order(step) for step in written["steps"]]
    last = {key: written.pop(key) for key in ("steps", "output") if key in written}
    return as_yaml(_compact(written | last))


def _step_in_order(step: dict[str, Any]) -> dict[str, Any]:
    """A database keeps no order of keys."""
    return {key: step[key] for key in _STEP if key in step}


def _compact(value: Any) -> Any:
    """A value expression is written on one line, with its marking key first."""
    if isinstance(value, dict) and (mark := expressions.reference_key(value)) is not None:
        return OnOneLine({mark: value[mark]} | value)
    if isinstance(value, dict):
        return type(value)({key: _compact(one) for key, one in value.items()})
    return [_compact(one) for one in value] if isinstance(value, list) else value


def _without(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != key}


def _reads_as(written: dict[str, Any], definition: Definition) -> bool:
    try:
        return read(chain_definition(written), builtin=False) == definition
    except InvalidDefinition:
        return False


def _one_document(text: str) -> tuple[Any, Lines]:
    found = import_documents.parse_documents(text)
    if len(found) != 1:
        raise import_documents.unreadable_document("must be one chain, and not several")
    return found[0].value, found[0].lines


def _flaw_remark(flaw: dict[str, Any], lines: Lines) -> Remark:
    if "line" in flaw:  # of a text that could not be parsed
        return Remark(flaw["line"], "", f"The text {flaw['message']}.")
    return _remark(chain_field(flaw["field"]), flaw["message"], lines)


def _remark(place: str, message: str, lines: Lines) -> Remark:
    parts = _INDEX.sub(r".\1", place).split(".")
    steps = [int(one) if one.isdecimal() and len(one) < 6 else one for one in parts]
    return Remark(lines.find_line(tuple(steps)) if place else None, place, message)
