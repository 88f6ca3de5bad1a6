"""The arguments of a tool as a table of a form, in the order in which models get them; also made of
a JSON Schema, where the table can represent all of it.
"""

from collections.abc import Mapping
from typing import Any

from django import forms

from tools.definitions.schemas import json_schemas
from tools.definitions.tool_parameters import parameters_schema
from tools.definitions.vocabulary import ParameterType
from tools.ui.display import json_line, pretty
from tools.web.form_fields import JsonField, choices
from tools.web.forms import Renderer

CELLS = ("name", "type", "description", "required", "default", "enum", "schema")
JSON_CELLS = ("default", "enum", "schema")
MOVES = frozenset({"add", "remove", "up", "down"})
PARAMETER_TYPES = {kind.lower(): str(kind) for kind in ParameterType}
_TOP = frozenset({"type", "properties", "required", "additionalProperties"})
_CELL_LABELS = {"default": "Default as JSON", "enum": "One of, as a JSON list"}


class ArgumentForm(forms.Form):
    """One argument, a row of the table; `values` are the texts of its cells."""

    default_renderer = Renderer
    focused = ""  # the cell or button that gets the keyboard focus
    name = forms.CharField(
        label="Name",
        widget=forms.TextInput({"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    type = forms.ChoiceField(label="Type", choices=choices(ParameterType))
    description = forms.CharField(
        label="Description", strip=False, widget=forms.Textarea({"rows": 2})
    )
    required = forms.BooleanField(label="Required", required=False)
    default = JsonField(label="Default", widget=forms.TextInput({"autocomplete": "off"}))
    enum = JsonField(label="One of", widget=forms.TextInput({"autocomplete": "off"}))
    schema = JsonField(
        label="Schema that says more",
        widget=forms.Textarea({"rows": 5}),
        help_text="A JSON Schema that says more: bounds, patterns, what lists and objects hold.",
    )

    def __init__(self, at: int, values: Mapping[str, str], *, checked: bool = True) -> None:
        self.at, self.values = at, {name: values.get(name, "") for name in CELLS}
        self.values["required"] = "yes" if self.values["required"] else ""
        key = f"argument-{at}"
        sent = {f"{key}-{name}": value for name, value in self.values.items()}
        typed = self.values | {"required": bool(self.values["required"])}
        super().__init__(sent if checked else None, initial=typed, prefix=key, auto_id="i-%s")
        for name, field in self.fields.items():
            field.widget.attrs["aria-describedby"] = f"{key}-says"
            if name != "schema":
                said = _CELL_LABELS.get(name, field.label)
                field.widget.attrs["aria-label"] = f"{said}, argument {at + 1}"

    @property
    def label(self) -> str:
        return self.values["name"] or f"argument {self.at + 1}"

    @property
    def flaws(self) -> list[tuple[forms.BoundField, str]]:
        return [(self[name], str(error)) for name in CELLS for error in self[name].errors]

    @property
    def wrong(self) -> str:
        """The cells with errors, for the script that marks them."""
        return " ".join(name for name in CELLS if name in self.errors)

    @property
    def unread(self) -> bool:
        return any(name in self.errors for name in JSON_CELLS)

    @property
    def parameter(self) -> dict[str, Any]:
        """The argument in the format of a definition, without what cannot be read."""
        self.is_valid()
        read = self.cleaned_data
        return {
            "name": self.values["name"].strip(),
            "type": self.values["type"],
            "description": self.values["description"],
            "required": bool(self.values["required"]),
        } | {name: read.get(name) for name in JSON_CELLS}

    def place_error(self, cell: str, error: str) -> None:
        if cell not in self.errors:
            self.add_error(cell, error)

    def forgive_empty(self) -> None:
        """Remove the errors of empty required cells while the author is still typing."""
        for name in ("name", "description"):
            if not self.values[name].strip():
                self.errors.pop(name, None)

    def focus(self, place: str) -> None:
        """Give the keyboard focus to a cell or button."""
        self.focused = place
        if place in self.fields:
            self.fields[place].widget.attrs["autofocus"] = True


class NotAsTable(Exception):
    """The message says what the table cannot represent."""


def rows_of(parameters: list[dict[str, Any]]) -> list[ArgumentForm]:
    return [ArgumentForm(at, _cell_values(one)) for at, one in enumerate(parameters)]


def read_rows(data: Mapping[str, str]) -> list[ArgumentForm]:
    return [ArgumentForm(at, _read_cells(data, at)) for at in range(_count_rows(data))]


def unchecked(rows: list[ArgumentForm], what: str = "", at: int = 0) -> list[ArgumentForm]:
    """The same rows without their errors, with the focus where an argument was moved to."""
    shown = [ArgumentForm(row.at, row.values, checked=False) for row in rows]
    if what in MOVES:
        _set_focus(shown, what, at)
    return shown


def arrange_rows(rows: list[ArgumentForm], what: str, at: int) -> list[ArgumentForm]:
    """The rows after a row is added at the end, removed, or moved up or down."""
    values = [row.values for row in rows]
    if what == "add" and len(values) < json_schemas.MAX_PROPERTIES:
        values.append({"type": str(ParameterType.STRING)})
    elif what == "remove" and at < len(values):
        values.pop(at)
    elif what == "up" and 0 < at < len(values):
        values[at - 1], values[at] = values[at], values[at - 1]
    elif what == "down" and at < len(values) - 1:
        values[at + 1], values[at] = values[at], values[at + 1]
    return [ArgumentForm(number, one) for number, one in enumerate(values)]


def rows_from_schema(schema: Any) -> list[ArgumentForm]:
    """Raises `NotAsTable`. The only loss: unlisted properties, which a schema without
    `additionalProperties` allows by default, are no longer allowed."""
    properties = _properties(schema)
    required = schema.get("required") or []
    parameters = [_parameter(name, one, name in required) for name, one in properties.items()]
    if not _same_schema(parameters_schema(parameters), schema | {"additionalProperties": False}):
        raise NotAsTable("It requires what its properties do not list.")
    return rows_of(parameters)


def _set_focus(rows: list[ArgumentForm], what: str, at: int) -> None:
    """On the moved row, on a button that is still enabled."""
    last = len(rows) - 1
    where = {"add": last, "up": at - 1, "down": at + 1, "remove": min(at, last)}[what]
    if not 0 <= where <= last:
        return
    ends = {"up": (0, "down"), "down": (last, "up")}
    button = ends[what][1] if what in ends and where == ends[what][0] else what
    rows[where].focus("name" if what == "add" else button)


def _cell_values(parameter: dict[str, Any]) -> dict[str, str]:
    values = {key: str(parameter[key] or "") for key in ("name", "type", "description")}
    values["required"] = "yes" if parameter["required"] else ""
    for key in JSON_CELLS:
        value, text = parameter[key], pretty if key == "schema" else json_line
        values[key] = "" if value is None else text(value)
    return values


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
    if not isinstance(kind, str) or kind not in PARAMETER_TYPES:
        raise NotAsTable(f"Its property {name[:64]} has no single type.")
    left = {key: value for key, value in schema.items() if key != "type"}
    if not isinstance(left.get("description", ""), str):
        raise NotAsTable(f"The description of its property {name[:64]} is no text.")
    if left.get("default", 0) is None or left.get("enum", 0) is None:
        raise NotAsTable(f"Its property {name[:64]} says null where a table says nothing.")
    return {
        "name": name,
        "type": PARAMETER_TYPES[kind],
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
