"""The arguments of a tool as rows of a form's table, in the order in which models get them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.definitions.schemas import json_schemas
from tools.definitions.vocabulary import ParameterType
from tools.ui.inputs import FormInput, Widget, choices, json_of
from tools.ui.shown import on_one_line, pretty

CELLS = ("name", "type", "description", "required", "default", "enum", "schema")
MOVES = frozenset({"add", "remove", "up", "down"})


@dataclass
class ArgumentRow:
    """One argument; the names of its inputs contain its position."""

    at: int
    inputs: dict[str, FormInput]
    focus: str = ""  # the cell or button that gets the keyboard focus

    @classmethod
    def of(cls, at: int, values: Mapping[str, str]) -> "ArgumentRow":
        asked = {name: _cell(at, name) for name in CELLS}
        for name, one in asked.items():
            one.value = values.get(name, one.value)
        return cls(at, asked)

    @property
    def values(self) -> dict[str, str]:
        return {name: one.value for name, one in self.inputs.items()}

    @property
    def label(self) -> str:
        return self.inputs["name"].value or f"argument {self.at + 1}"

    @property
    def flaws(self) -> list[tuple[FormInput, str]]:
        return [(one, error) for one in self.inputs.values() for error in one.errors]

    @property
    def wrong(self) -> str:
        """The cells with errors, for the script that marks them."""
        return " ".join(name for name, one in self.inputs.items() if one.errors)

    @property
    def detailed(self) -> bool:
        """Whether it has values or errors beyond the columns of the table."""
        more = self.inputs["schema"]
        return bool(more.value or more.errors)

    @property
    def parameter(self) -> dict[str, Any]:
        """The argument in the format of a definition. Invalid cells get an error."""
        told = self.inputs
        return {
            "name": told["name"].value.strip(),
            "type": str(told["type"].value),
            "description": told["description"].value,
            "required": bool(told["required"].value),
        } | {key: json_of(told[key], None) for key in ("default", "enum", "schema")}

    def forget_flaws(self) -> None:
        for one in self.inputs.values():
            one.errors = []

    def forgive_empty(self) -> None:
        """Remove the errors of empty required cells while the author is still typing."""
        for one in self.inputs.values():
            if one.required and not one.value.strip():
                one.errors = []


def rows_of(parameters: list[dict[str, Any]]) -> list[ArgumentRow]:
    return [ArgumentRow.of(at, _values_of(one)) for at, one in enumerate(parameters)]


def rows_sent(data: Mapping[str, str]) -> list[ArgumentRow]:
    return [ArgumentRow.of(at, _sent(data, at)) for at in range(_count(data))]


def arranged(rows: list[ArgumentRow], what: str, at: int) -> list[ArgumentRow]:
    """The rows after a row is added at the end, removed, or moved up or down."""
    values = [row.values for row in rows]
    if what == "add" and len(values) < json_schemas.MAX_PROPERTIES:
        values.append({})
    elif what == "remove" and at < len(values):
        values.pop(at)
    elif what == "up" and 0 < at < len(values):
        values[at - 1], values[at] = values[at], values[at - 1]
    elif what == "down" and at < len(values) - 1:
        values[at + 1], values[at] = values[at], values[at + 1]
    moved = [ArgumentRow.of(number, one) for number, one in enumerate(values)]
    _focus(moved, what, at)
    return moved


def _focus(rows: list[ArgumentRow], what: str, at: int) -> None:
    """Set the focus on the moved row, on a button that is still enabled."""
    last = len(rows) - 1
    where = {"add": last, "up": at - 1, "down": at + 1, "remove": min(at, last)}[what]
    if not 0 <= where <= last:
        return
    ends = {"up": (0, "down"), "down": (last, "up")}
    button = ends[what][1] if what in ends and where == ends[what][0] else what
    rows[where].focus = "name" if what == "add" else button


def _cell(at: int, name: str) -> FormInput:
    key, place = f"argument-{at}-{name}", f"parameters[{at}].{name}"
    kinds = choices(ParameterType)
    made = {
        "name": FormInput(key, "Name", place=place, required=True),
        "type": FormInput(key, "Type", Widget.SELECT, "", place, False, kinds,
                          ParameterType.STRING),
        "description": FormInput(key, "Description", Widget.AREA, place=place, required=True),
        "required": FormInput(key, "Required", Widget.CHECK, place=place),
        "default": FormInput(key, "Default", place=place),
        "enum": FormInput(key, "One of", place=place),
        "schema": FormInput(key, "Schema", Widget.CODE, "A JSON Schema that says more: bounds, "
                        "patterns, what lists and objects hold.", place),
    }  # fmt: skip
    return made[name]


def _values_of(parameter: dict[str, Any]) -> dict[str, str]:
    values = {key: str(parameter[key] or "") for key in ("name", "type", "description")}
    values["required"] = "yes" if parameter["required"] else ""
    for key in ("default", "enum", "schema"):
        values[key] = "" if parameter[key] is None else _written(key, parameter[key])
    return values


def _written(key: str, value: Any) -> str:
    """A cell's value on one line; a schema has its own text area."""
    return pretty(value) if key == "schema" else on_one_line(value)


def _count(data: Mapping[str, str]) -> int:
    text = data.get("arguments", "0")
    return min(int(text), json_schemas.MAX_PROPERTIES) if text.isdecimal() and len(text) < 6 else 0


def _sent(data: Mapping[str, str], at: int) -> dict[str, str]:
    return {name: data.get(f"argument-{at}-{name}", "").replace("\r\n", "\n") for name in CELLS}
