"""The parameters of a tool as a form: the fields of its JSON Schema.

The form refuses only values that cannot be sent, such as broken JSON. The execution pipeline
validates the parameters, as it does for an agent.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from tools.definitions.values import strict_json
from tools.ui.display import pretty
from tools.web.forms import Renderer

PREFIX = "p."
REST = "rest"
LEFT_OUT = object()  # the value of an empty field
_LONG_NAMES = re.compile(r"content|body|text|source|query|message|prompt", re.IGNORECASE)
_CONTROLS = {"integer": "number", "number": "number", "boolean": "select", "string": "text"}
_INTEGER = re.compile(r"[+-]?\d{1,17}")
_REQUIRED = re.compile(r'^"(.+)" is a required property')
_CONSTRAINTS = {
    "minimum": "at least {}", "maximum": "at most {}", "minLength": "{} characters or more",
    "maxLength": "at most {} characters", "pattern": "matches {}", "format": "{}",
}  # fmt: skip


class ParameterField(forms.Field):
    """One parameter by a control: `text`, `area`, `number`, `select` or `json`."""

    def __init__(self, name: str, schema: Any, needed: bool) -> None:
        schema = schema if isinstance(schema, dict) else {}
        self.name, self.kind, self.needed = name, _json_type(schema), needed
        self.control = _choose_control(name, self.kind, schema)
        self.options = _select_options(self.kind, schema, needed)
        self.constraint = ", ".join(
            text.format(schema[key]) for key, text in _CONSTRAINTS.items() if key in schema
        )
        default = schema.get("default")
        super().__init__(
            required=False,
            widget=self._widget(),
            help_text=str(schema.get("description") or ""),
            initial="" if default is None else self.text_of(default),
            template_name="_parts/parameter_field.html",
        )

    def to_python(self, value: Any) -> Any:
        text = str(value or "")
        empty = not text.strip() if self.control == "json" else not text
        if empty and not (self.needed and self.kind == "string"):
            return LEFT_OUT
        if self.control == "number":
            return _parse_number(text.strip(), whole=self.kind == "integer")
        return _parse_json(text) if self.control in {"json", "select"} else text

    def text_of(self, value: Any) -> str:
        """A value as a browser keeps it: an input has one line, a select only its options."""
        if self.control in {"text", "area"}:
            fits = isinstance(value, str) and "\r" not in value
            return value if fits and (self.control == "area" or "\n" not in value) else ""
        if self.control == "json":
            return pretty(value)
        written = json.dumps(value)
        return written if self.control == "number" or written in dict(self.options) else ""

    def _widget(self) -> forms.Widget:
        attributes = {"autocomplete": "off", "spellcheck": "false"}
        if self.needed:
            attributes["aria-required"] = "true"
        if self.control == "select":
            return forms.Select(choices=self.options)
        if self.control in {"text", "number"}:
            decimal = {"inputmode": "decimal"} if self.control == "number" else {}
            return forms.TextInput(attributes | decimal)
        code = {"class": "mono", "placeholder": "[ ]" if self.kind == "array" else "{ }"}
        json_area = self.control == "json"
        rows = {"rows": "3" if json_area else "4"}
        return forms.Textarea(attributes | rows | (code if json_area else {}))


class ParameterForm(forms.Form):
    """It is always filled: with the defaults, with what was typed, or with the arguments of a call.
    The field `rest` has the properties that the schema allows without naming them."""

    default_renderer = Renderer

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(auto_id="i-%s", label_suffix="")
        schema = definition["input_schema"]
        closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
        rest = {"type": "object", "description": "Further parameters, as one JSON object."}
        self.named = {PREFIX + field.name: field for field in parameter_fields(definition)}
        further = {} if closed else {PREFIX + REST: ParameterField(REST, rest, needed=False)}
        self.fields = {**self.named, **further}
        self.fill({key: field.initial for key, field in self.fields.items()})

    def fill(self, data: Mapping[str, str]) -> None:
        # A browser sends the line ends of RFC 2046; the tool gets them as typed.
        self.data = {key: data.get(key, "").replace("\r\n", "\n") for key in self.fields}
        self.is_bound, self._errors = True, None

    def clean(self) -> dict[str, Any]:
        rest = self.cleaned_data.get(PREFIX + REST, LEFT_OUT)
        if rest is not LEFT_OUT and not isinstance(rest, dict):
            self.add_error(PREFIX + REST, "Give a JSON object such as {}.")
        return self.cleaned_data

    def parameters(self) -> dict[str, Any]:
        """The values; those of invalid fields are left out."""
        self.full_clean()
        given = {key: one for key, one in self.cleaned_data.items() if one is not LEFT_OUT}
        named = {field.name: given.pop(key) for key, field in self.named.items() if key in given}
        return dict(*given.values()) | named

    def load(self, parameters: Mapping[str, Any]) -> bool:
        """Fill in the arguments of a call; returns whether the fields can represent all of them."""
        left = dict(parameters)
        texts = {
            key: field.text_of(left.pop(field.name))
            for key, field in self.named.items()
            if field.name in left
        }
        self.fill(texts | ({PREFIX + REST: pretty(left)} if left else {}))
        held = json.dumps(self.parameters(), sort_keys=True)
        return not self.errors and held == json.dumps(dict(parameters), sort_keys=True)

    def place(self, flaws: list[dict[str, str]]) -> list[dict[str, str]]:
        """Set each error at its field; errors that belong to no field are returned."""
        left = []
        for flaw in flaws:
            if (key := PREFIX + _error_parameter(flaw)) in self.named:
                self.add_error(key, _error_text(flaw))
            else:
                left.append(flaw)
        return left


def parameter_fields(definition: dict[str, Any]) -> list[ParameterField]:
    """In the order of the definition's parameters, since PostgreSQL's JSON has no order."""
    schema = definition["input_schema"]
    required, properties = set(schema.get("required") or []), schema.get("properties") or {}
    order = [item["name"] for item in definition["parameters"]] or list(properties)
    return [ParameterField(name, properties[name], name in required) for name in order]


def _json_type(schema: dict[str, Any]) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), None)
    return kinds if isinstance(kinds, str) else "any"


def _choose_control(name: str, kind: str, schema: dict[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return "select"
    length = schema.get("maxLength")
    long = kind == "string" and (
        _LONG_NAMES.search(name) or (isinstance(length, int) and length > 5000)
    )
    return "area" if long else _CONTROLS.get(kind, "json")


def _select_options(kind: str, schema: dict[str, Any], needed: bool) -> list[tuple[str, str]]:
    values = schema.get("enum")
    if not isinstance(values, list):
        values = [True, False] if kind == "boolean" else None
    if values is None:
        return []
    blank = [] if needed and "default" not in schema else [("", "– leave out –")]
    labels = ((json.dumps(one), one if isinstance(one, str) else json.dumps(one)) for one in values)
    return [*blank, *labels]


def _parse_number(text: str, *, whole: bool) -> int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    if whole:
        raise ValidationError("Give a whole number.")
    try:
        return float(text)
    except ValueError:
        raise ValidationError("Give a number such as 1.5.") from None


def _parse_json(text: str) -> Any:
    try:
        return strict_json.parse(text)
    except strict_json.BadJson as error:
        reason = str(error)
        said = f"This is {reason}." if reason.startswith("not") else f"{reason}."
        raise ValidationError(said) from None


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
