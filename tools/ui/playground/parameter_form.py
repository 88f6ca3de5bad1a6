"""The parameters of a tool as a form: the fields of its JSON Schema.

The form refuses only values that cannot be sent, such as broken JSON. The execution pipeline
validates the parameters, as it does for an agent.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.values import strict_json
from tools.ui.display import pretty

PREFIX = "p."
REST = "rest"
_LONG_NAMES = re.compile(r"content|body|text|source|query|message|prompt", re.IGNORECASE)
_WIDGETS = {"integer": "number", "number": "number", "boolean": "select", "string": "text"}
_INTEGER = re.compile(r"[+-]?\d{1,17}")
_REQUIRED = re.compile(r'^"(.+)" is a required property')


@dataclass
class ParameterField:
    """One parameter as a widget: `text`, `area`, `number`, `select` or `json`."""

    name: str
    kind: str
    widget: str
    required: bool
    description: str
    constraint: str = ""
    value: str = ""
    options: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return PREFIX + self.name


@dataclass
class ParameterForm:
    """`rest` has the properties that the schema allows without naming them."""

    fields: list[ParameterField]
    rest: ParameterField | None

    @property
    def all_fields(self) -> list[ParameterField]:
        return self.fields + ([self.rest] if self.rest else [])

    @property
    def flawed(self) -> bool:
        return any(item.errors for item in self.all_fields)

    def fill(self, data: Mapping[str, str]) -> None:
        for item in self.all_fields:
            # A browser sends the line ends of RFC 2046; the tool gets them as typed.
            item.value = data.get(item.key, "").replace("\r\n", "\n")

    def parameters(self) -> dict[str, Any]:
        """The submitted values. An invalid field has its error in `errors`."""
        wanted: dict[str, Any] = {}
        for item in self.fields:
            if item.value != "" or (item.required and item.kind == "string"):
                wanted[item.name] = _parse_value(item)
        if self.rest and self.rest.value.strip():
            more = _parse_json(self.rest)
            if isinstance(more, dict):
                return more | wanted
            self.rest.errors = self.rest.errors or ["Give a JSON object such as {}."]
        return wanted

    def load(self, parameters: Mapping[str, Any]) -> bool:
        """Fill in the arguments of a call; returns whether the fields can represent all of them."""
        left = dict(parameters)
        for item in self.fields:
            item.value = _format_value(item, left.pop(item.name)) if item.name in left else ""
        if self.rest:
            self.rest.value = pretty(left) if left else ""
        held = self.parameters()
        self.clear_errors()
        return json.dumps(held, sort_keys=True) == json.dumps(dict(parameters), sort_keys=True)

    def clear_errors(self) -> None:
        for item in self.all_fields:
            item.errors = []

    def place(self, flaws: list[dict[str, str]]) -> list[dict[str, str]]:
        """Set each error at its field; errors that belong to no field are returned."""
        named = {item.name: item for item in self.fields}
        left = []
        for flaw in flaws:
            owner = named.get(_error_parameter(flaw))
            if owner is None:
                left.append(flaw)
            else:
                owner.errors.append(_error_text(flaw))
        return left


def parameter_form(definition: dict[str, Any]) -> ParameterForm:
    """Fields in the order of the definition's parameters, since PostgreSQL's JSON has no order."""
    schema = definition["input_schema"]
    required = set(schema.get("required") or [])
    properties = schema.get("properties") or {}
    order = [item["name"] for item in definition["parameters"]] or list(properties)
    fields = [_parameter_field(name, properties[name], name in required) for name in order]
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    rest = ParameterField(REST, "object", "json", False, "Further parameters, as one JSON object.")
    return ParameterForm(fields, None if closed else rest)


def _parameter_field(name: str, schema: Any, required: bool) -> ParameterField:
    schema = schema if isinstance(schema, dict) else {}
    kind, default = _json_type(schema), schema.get("default")
    made = ParameterField(
        name=name,
        kind=kind,
        widget=_choose_widget(name, kind, schema),
        required=required,
        description=str(schema.get("description") or ""),
        constraint=_constraint_text(schema),
        options=_select_options(kind, schema, required),
    )
    if default is not None:
        plain = isinstance(default, str) and made.widget in {"text", "area"}
        made.value = default if plain else _option_value(default, made.widget)
    return made


def _json_type(schema: dict[str, Any]) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), None)
    return kinds if isinstance(kinds, str) else "any"


def _choose_widget(name: str, kind: str, schema: dict[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return "select"
    length = schema.get("maxLength")
    long = kind == "string" and (
        _LONG_NAMES.search(name) or (isinstance(length, int) and length > 5000)
    )
    return "area" if long else _WIDGETS.get(kind, "json")


def _select_options(kind: str, schema: dict[str, Any], required: bool) -> list[tuple[str, str]]:
    values = schema.get("enum")
    if not isinstance(values, list):
        values = [True, False] if kind == "boolean" else None
    if values is None:
        return []
    blank = [] if required and "default" not in schema else [("", "– leave out –")]
    return blank + [(json.dumps(item), _option_label(item)) for item in values]


def _format_value(item: ParameterField, value: Any) -> str:
    """A value as a browser keeps it: an input has one line, a select only its options."""
    if item.widget in {"text", "area"}:
        fits = isinstance(value, str) and "\r" not in value
        return value if fits and (item.widget == "area" or "\n" not in value) else ""
    written = _option_value(value, item.widget)
    offered = item.widget != "select" or written in dict(item.options)
    return written if offered else ""


def _option_label(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


def _option_value(value: Any, widget: str) -> str:
    return json.dumps(value) if widget in {"select", "number"} else pretty(value)


def _constraint_text(schema: dict[str, Any]) -> str:
    words = {
        "minimum": "at least {}", "maximum": "at most {}", "minLength": "{} characters or more",
        "maxLength": "at most {} characters", "pattern": "matches {}", "format": "{}",
    }  # fmt: skip
    return ", ".join(text.format(schema[key]) for key, text in words.items() if key in schema)


def _parse_value(item: ParameterField) -> Any:
    if item.kind == "integer" and item.widget == "number":
        return _parse_number(item, whole=True)
    if item.widget == "number":
        return _parse_number(item, whole=False)
    return _parse_json(item) if item.widget in {"json", "select"} else item.value


def _parse_number(item: ParameterField, *, whole: bool) -> int | float | None:
    text = item.value.strip()
    try:
        return int(text) if _INTEGER.fullmatch(text) else _fraction(text, whole)
    except ValueError:
        item.errors.append("Give a whole number." if whole else "Give a number such as 1.5.")
        return None


def _fraction(text: str, whole: bool) -> float:
    if whole:
        raise ValueError(text)
    return float(text)


def _parse_json(item: ParameterField) -> Any:
    try:
        return strict_json.parse(item.value)
    except strict_json.BadJson as error:
        reason = str(error)
        item.errors.append(f"This is {reason}." if reason.startswith("not") else f"{reason}.")
        return None


def _error_parameter(flaw: dict[str, str]) -> str:
    missing = _REQUIRED.match(flaw["message"]) if flaw["place"] == "/" else None
    if missing:
        return missing[1]
    return flaw["place"].split("/")[1].replace("~1", "/").replace("~0", "~")


def _error_text(flaw: dict[str, str]) -> str:
    if _REQUIRED.match(flaw["message"]) and flaw["place"] == "/":
        return "This is required."
    inside = flaw["place"].count("/") > 1
    return f"{flaw['place']}: {flaw['message']}" if inside else flaw["message"]
