"""The arguments of a tool as a table of a form, in the order in which models get them; also made of
a JSON Schema, where the table can represent all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.definitions.schemas import json_schemas
from tools.definitions.tool_parameters import parameters_schema
from tools.definitions.vocabulary import ParameterType
from tools.ui.display import json_line, pretty
from tools.ui.inputs import FormInput, Widget, choices, parse_json_input

CELLS = ("name", "type", "description", "required", "default", "enum", "schema")
MOVES = frozenset({"add", "remove", "up", "down"})
_KINDS = {kind.lower(): str(kind) for kind in ParameterType}
_TOP = frozenset({"type", "properties", "required", "additionalProperties"})


@dataclass
class ArgumentRow:
    """One argument; the names of its inputs contain its position."""

    at: int
    inputs: dict[str, FormInput]
    focus: str = ""  # the cell or button that gets the keyboard focus

    @classmethod
    def from_values(cls, at: int, values: Mapping[str, str]) -> "ArgumentRow":
        asked = {name: _cell_input(at, name) for name in CELLS}
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
        cells = self.inputs
        return {
            "name": cells["name"].value.strip(),
            "type": str(cells["type"].value),
            "description": cells["description"].value,
            "required": bool(cells["required"].value),
        } | {key: parse_json_input(cells[key], None) for key in ("default", "enum", "schema")}

    def forget_flaws(self) -> None:
        for one in self.inputs.values():
            one.errors = []

    def forgive_empty(self) -> None:
        """Remove the errors of empty required cells while the author is still typing."""
        for one in self.inputs.values():
            if one.required and not one.value.strip():
                one.errors = []


class NotAsTable(Exception):
    """The message says what the table cannot represent."""


def rows_of(parameters: list[dict[str, Any]]) -> list[ArgumentRow]:
    return [ArgumentRow.from_values(at, _cell_values(one)) for at, one in enumerate(parameters)]


def read_rows(data: Mapping[str, str]) -> list[ArgumentRow]:
    return [ArgumentRow.from_values(at, _read_cells(data, at)) for at in range(_count_rows(data))]


def arrange_rows(rows: list[ArgumentRow], what: str, at: int) -> list[ArgumentRow]:
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
    moved = [ArgumentRow.from_values(number, one) for number, one in enumerate(values)]
    _set_focus(moved, what, at)
    return moved


def rows_from_schema(schema: Any) -> list[ArgumentRow]:
    """Raises `NotAsTable`. The only loss: unlisted properties, which a schema without
    `additionalProperties` allows by default, are no longer allowed."""
    properties = _properties(schema)
    required = schema.get("required") or []
    parameters = [_parameter(name, one, name in required) for name, one in properties.items()]
    if not _same_schema(parameters_schema(parameters), schema | {"additionalProperties": False}):
        raise NotAsTable("It requires what its properties do not list.")
    return rows_of(parameters)


def _set_focus(rows: list[ArgumentRow], what: str, at: int) -> None:
    """Set the focus on the moved row, on a button that is still enabled."""
    last = len(rows) - 1
    where = {"add": last, "up": at - 1, "down": at + 1, "remove": min(at, last)}[what]
    if not 0 <= where <= last:
        return
    ends = {"up": (0, "down"), "down": (last, "up")}
    button = ends[what][1] if what in ends and where == ends[what][0] else what
    rows[where].focus = "name" if what == "add" else button


def _cell_input(at: int, name: str) -> FormInput:
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


def _cell_values(parameter: dict[str, Any]) -> dict[str, str]:
    values = {key: str(parameter[key] or "") for key in ("name", "type", "description")}
    values["required"] = "yes" if parameter["required"] else ""
    for key in ("default", "enum", "schema"):
        values[key] = "" if parameter[key] is None else _cell_text(key, parameter[key])
    return values


def _cell_text(key: str, value: Any) -> str:
    """A cell's value on one line; a schema has its own text area."""
    return pretty(value) if key == "schema" else json_line(value)


def _count_rows(data: Mapping[str, str]) -> int:
    text = data.get("arguments", "0")
    return min(int(text), json_schemas.MAX_PROPERTIES) if text.isdecimal() and len(text) < 6 else 0


def _read_cells(data: Mapping[str, str], at: int) -> dict[str, str]:
    return {name: data.get(f"argument-{at}-{name}", "").replace("\r\n", "\n") for name in CELLS}


def _properties(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise NotAsTable("It has no properties that could become arguments.")
    more = sorted(str(key) for key in schema.keys() - _TOP)
    if more:
        raise NotAsTable(f"Outside its properties it says {', '.join(more)[:200]}.")
    if schema.get("additionalProperties", False) is not False:
        raise NotAsTable("It admits members that it does not list.")
    if not isinstance(schema.get("required", []), list):
        raise NotAsTable("Its field required is no list.")
    return dict(schema["properties"])


def _parameter(name: str, schema: Any, required: bool) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise NotAsTable(f"Its property {name[:64]} has no single type.")
    left = {key: value for key, value in schema.items() if key != "type"}
    if not isinstance(left.get("description", ""), str):
        raise NotAsTable(f"The description of its property {name[:64]} is no text.")
    if left.get("default", 0) is None or left.get("enum", 0) is None:
        raise NotAsTable(f"Its property {name[:64]} says null where a table says nothing.")
    return {
        "name": name,
        "type": _KINDS[kind],
        "description": left.pop("description", ""),
        "required": required,
        "default": left.pop("default", None),
        "enum": left.pop("enum", None),
        "schema": left or None,
    }


def _same_schema(made: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether both are equal, except missing descriptions and the order of `required`."""

    def normalize_schema(schema: dict[str, Any]) -> Any:
        properties = {name: {"description": ""} | one for name, one in schema["properties"].items()}
        named = sorted(map(str, schema.get("required") or []))
        return schema | {"type": "object", "properties": properties, "required": named}

    return bool(normalize_schema(made) == normalize_schema(given))
