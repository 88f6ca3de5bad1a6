"""The form of a tool: the values of a definition as fields, and the definition of what was typed.

The form refuses only values that cannot be parsed, such as broken JSON. `read_definition` validates
the definition, as it does for every caller.
"""

import re
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError

from tools.accounts.callers import actor_of
from tools.catalog.actions import register_tool, update_tool
from tools.definitions.tool import (
    Definition,
    ordered_definition,
    passes_arguments,
    read_definition,
)
from tools.definitions.tool_parameters import parameters_schema
from tools.definitions.vocabulary import (
    ArgumentValidation,
    Category,
    Delivery,
    Isolation,
    ToolType,
)
from tools.errors import InvalidDefinition, ToolcribError
from tools.models import Tool
from tools.ui.editor.argument_table import (
    CELLS,
    MOVES,
    ArgumentForm,
    NotAsTable,
    arrange_rows,
    read_rows,
    rows_from_schema,
    rows_of,
    unchecked,
)
from tools.ui.editor.argument_text import (
    BOTH_CHANGED,
    ArgumentsText,
    synchronize,
    text_of_parameters,
    write_text,
)
from tools.web.form_fields import (
    DEFAULT_NAMES,
    GROUP_CHOICES,
    MARKED_ROWS,
    STATE_CHOICES,
    JsonField,
    NamesField,
    NumberField,
    RowsField,
    RowsWidget,
    choices,
    chosen_names,
    name_choice,
)
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest

# Actions that change the form and save nothing, beside `MOVES`.
STEPS = MOVES | {"unfold", "write", "take"}
_CODE_FIELDS = ("language", "entry_point", "source")
_CONSTRAINTS = (
    "max_execution_time", "max_output_size", "required_isolation", "sandbox_profile",
    "allow_side_effects",
)  # fmt: skip
_PLACES = {name: f"implementation.{name}" for name in _CODE_FIELDS} | {
    name: f"constraints.{name}" for name in _CONSTRAINTS
}
_NAME_CHOICES = ("group", "available_in_states")
_WITHOUT_INPUT = ("metadata", "cost_per_cache_hit", "transform")
_LEFT_OUT_IF_EMPTY = frozenset({"sandbox_profile", "input_schema"})
_IF_EMPTY: dict[str, Any] = {"cost_per_invocation": "0", "output_schema": {}, "implementation": {}}
_AREA = forms.Textarea({"rows": 3})
_CELL = re.compile(r"\[(\d+)\]\.(\w+)(.*)")


class ArgumentsField(RowsField):
    """The arguments, whose rows are forms."""

    rows: list[ArgumentForm] = []

    def __init__(self) -> None:
        super().__init__(RowsWidget("", CELLS, (), 0), label="Arguments")

    def marks(self, rows: Any, inside: str, error: str) -> bool:
        found = _CELL.fullmatch(inside)
        if not found or found[2] not in CELLS or int(found[1]) >= len(self.rows):
            return False
        self.rows[int(found[1])].place_error(found[2], f"{found[3]} {error}".lstrip())
        return True

    def to_python(self, value: Any) -> list[dict[str, Any]]:
        if any(row.errors for row in self.rows):
            raise ValidationError(MARKED_ROWS)
        return [row.parameter for row in self.rows]

    def text(self, value: Any) -> str:
        return text_of_parameters(value or [])


class ToolForm(ActionForm):
    """A tool of one type; the arguments are a table, and the same as text."""

    row: Tool | None
    error_fields = {place: name for name, place in _PLACES.items()}
    sections: ClassVar = (
        ("What it is", ("name", "title", "category", "description")),
        ("What runs", (*_CODE_FIELDS, "implementation")),
        (
            "Who may call it, and when",
            (
                "group_kind", "group", "available_in_states_kind", "available_in_states", "state",
                "required_permissions", "requires_confirmation",
            ),
        ),
        (
            "How it runs",
            (
                "delivery", "argument_validation", "max_execution_time", "max_output_size",
                "required_isolation", "sandbox_profile", "rate_limit_per_minute",
                "cost_per_invocation", "cache_ttl", "capabilities", "allow_side_effects",
            ),
        ),
        ("Schemas", ("input_schema", "output_schema")),
    )  # fmt: skip
    name = forms.CharField(label="Name", help_text="Letters, digits, '_', '.' and '-'.")
    title = forms.CharField(label="Title", required=False, help_text="As people read it.")
    category = forms.ChoiceField(label="Category", choices=choices(Category), initial="System")
    description = forms.CharField(
        label="Description",
        strip=False,
        widget=_AREA,
        help_text="What models read before they choose it.",
    )
    parameters = ArgumentsField()
    language = forms.ChoiceField(
        label="Language", choices=(("python", "Python"), ("javascript", "JavaScript"))
    )
    entry_point = forms.CharField(label="Function", required=False, initial="main")
    source = forms.CharField(
        label="Source",
        strip=False,
        initial="def main(parameters):\n    return None\n",
        widget=forms.Textarea({"rows": 8, "class": "mono", "spellcheck": "false"}),
    )
    implementation = JsonField(
        label="Implementation",
        empty={},
        initial="{}",
        help_text="What it is made of, as JSON; see the type's section in the tool authors' guide.",
    )
    group_kind = forms.ChoiceField(label="Groups", choices=GROUP_CHOICES, initial=DEFAULT_NAMES)
    group = NamesField(label="Names of groups", help_text="Separated by commas.")
    available_in_states_kind = forms.ChoiceField(
        label="States", choices=STATE_CHOICES, initial=DEFAULT_NAMES
    )
    available_in_states = NamesField(label="Names of states", help_text="Separated by commas.")
    state = forms.CharField(
        label="State after success", required=False, help_text="Empty: the state stays."
    )
    required_permissions = NamesField(label="Permissions", help_text="Separated by commas.")
    requires_confirmation = forms.BooleanField(
        label="A person must confirm each call", required=False
    )
    delivery = forms.ChoiceField(
        label="Delivery",
        choices=choices(Delivery),
        initial=Delivery.EXTERNAL,
        help_text="external: at most once. pure: no effect at all.",
    )
    argument_validation = forms.ChoiceField(
        label="Arguments that do not fit",
        choices=(
            (ArgumentValidation.ENFORCE, "are refused"),
            (ArgumentValidation.WARN, "pass with a warning"),
            (ArgumentValidation.OFF, "pass unchanged"),
        ),
        initial=ArgumentValidation.ENFORCE,
    )
    max_execution_time = forms.CharField(
        label="Time at most",
        required=False,
        initial="PT30S",
        help_text="ISO 8601, such as PT30S or PT5M.",
    )
    max_output_size = NumberField(label="Output at most, bytes", required=False, initial="10485760")
    required_isolation = forms.ChoiceField(
        label="Isolation",
        choices=choices(one for one in Isolation if one != Isolation.NONE),
        initial="Standard",
    )
    sandbox_profile = forms.CharField(label="Sandbox profile", required=False)
    rate_limit_per_minute = NumberField(
        label="Calls a minute", required=False, help_text="Empty: no limit."
    )
    cost_per_invocation = forms.CharField(label="Cost per call", required=False, initial="0")
    cache_ttl = forms.CharField(
        label="Answers may be kept for", required=False, help_text="Of pure tools only: PT5M."
    )
    capabilities = NamesField(label="Capabilities", help_text="Separated by commas.")
    allow_side_effects = forms.BooleanField(
        label="It may have side effects", required=False, initial=True
    )
    input_schema = JsonField(
        label="Input schema instead of arguments",
        help_text="A JSON Schema, for inputs that a list of arguments cannot tell. Else empty.",
    )
    output_schema = JsonField(
        label="Output schema", empty={}, help_text="What it must return. Empty: anything."
    )

    def __init__(self, request: PageRequest, row: Tool | None, kind: str) -> None:
        self.kind = kind
        super().__init__(request, row)
        self.do, _, self.at = request.POST.get("do", "save").partition(" ")
        if self.is_bound:
            counts = self.at if self.do == "take" else ""
            self._show_rows(*synchronize(read_rows(self.data), self.data, counts))
        else:
            self._show_parameters()

    def build(self) -> None:
        for name in ["implementation"] if self.kind == ToolType.CODE else _CODE_FIELDS:
            del self.fields[name]

    def stored_values(self) -> dict[str, Any]:
        """`input_schema` is empty where the list of arguments produces the same."""
        definition = self.stored_definition
        values = {name: _value_at(_PLACES.get(name, name), definition) for name in self.fields
                  if not name.endswith("_kind")}  # fmt: skip
        for name in _NAME_CHOICES:
            values[f"{name}_kind"], values[name] = name_choice(definition[name])
        closed = not passes_arguments(definition)
        derived = parameters_schema(definition["parameters"], closed=closed)
        if definition["parameters"] or definition["input_schema"] == derived:
            values["input_schema"] = None
        return values

    @property
    def stored_definition(self) -> Definition:
        assert self.row is not None and self.row.version is not None
        return ordered_definition(self.row.version.definition)

    def definition(self) -> dict[str, Any]:
        """The typed values, with the stored fields that have no input; also of a form with errors,
        without what cannot be read."""
        kept = {} if self.row is None else self.stored_definition
        raw: dict[str, Any] = {name: kept[name] for name in _WITHOUT_INPUT if name in kept}
        said = self.cleaned_data
        for name in self.fields.keys() - {"group_kind", "available_in_states_kind"}:
            value: Any = said.get(name)
            if isinstance(value, str):
                value = value.replace("\r\n", "\n")
            if value in (None, ""):
                value = _IF_EMPTY.get(name)
            if name in _NAME_CHOICES:
                value = chosen_names(said.get(f"{name}_kind", ""), value or [])
            inside, _, key = _PLACES.get(name, name).rpartition(".")
            if value is not None or name not in _LEFT_OUT_IF_EMPTY:
                (raw.setdefault(inside, {}) if inside else raw)[key] = value
        return raw | {"type": self.kind, "parameters": [row.parameter for row in self.rows]}

    def clean(self) -> dict[str, Any]:
        if self.text.torn:
            raise ValidationError(BOTH_CHANGED)
        if self.text.error:
            self.add_error("parameters", self.text.error)
        try:
            self.canonical = read_definition(self.definition())
        except InvalidDefinition as error:
            said = {*self.errors} - {"parameters"}  # whose cells are compared one by one
            flaws = [
                one for one in error.field_errors() if self._field_of(one["field"])[0] not in said
            ]
            if flaws:
                self.place_refusal(InvalidDefinition(error.message, errors=flaws))
        return self.cleaned_data

    def act(self, changes: dict[str, Any]) -> Tool | None:
        by, definition = actor_of(self.request.caller), self.definition()
        if self.row is None:
            organization = self.request.user.organization
            return register_tool(organization=organization, definition=definition, by=by)
        before = self.row.version_id
        saved = update_tool(tool=self.row, definition=definition, by=by)
        return saved if saved.version_id != before else None

    def refuse(self, refusal: ToolcribError) -> None:
        super().refuse(refusal)
        if self.conflicts:
            self._show_parameters()

    def take_step(self) -> None:
        """What one of `STEPS` does to the form, which is shown without errors of other fields."""
        at = int(self.at) if self.at.isdecimal() and len(self.at) < 5 else 0
        rows, text, flaw = self.rows, self.text, ""
        schema = self["input_schema"].data
        if self.do in MOVES:
            rows = arrange_rows(rows, self.do, at)
        elif self.do == "write":
            text = ArgumentsText("[]" if self.at == "json" else "")
        elif self.do == "unfold":
            try:
                rows = rows_from_schema(self.fields["input_schema"].clean(schema))
                schema = ""
            except ValidationError as error:
                flaw = error.messages[0]
            except NotAsTable as error:
                flaw = f"A table cannot hold this schema. {error}"
        self.initial = {name: self[name].data for name in self.fields} | {"input_schema": schema}
        self.is_bound = False
        self._show_rows(unchecked(rows, self.do, at), write_text(rows, text))
        if flaw:
            self.errors["input_schema"] = self.error_class([flaw], renderer=self.renderer)
            self._refuse(400)

    def check_while_typing(self) -> None:
        """The errors of the arguments; what is still empty is none."""
        self.is_valid()
        for row in self.rows:
            row.forgive_empty()

    @property
    def rows_wrong(self) -> int:
        return sum(bool(row.errors) for row in self.rows)

    @property
    def arguments_flaws(self) -> list[str]:
        """Of the arguments as a whole."""
        errors = map(str, self.errors.get("parameters", ()))
        return [error for error in errors if error != MARKED_ROWS]

    def _show_parameters(self) -> None:
        rows = rows_of(self.initial.get("parameters") or [])
        self._show_rows(rows, write_text(rows))

    def _show_rows(self, rows: list[ArgumentForm], text: ArgumentsText) -> None:
        self.rows, self.text = rows, text
        field = self.fields["parameters"]
        assert isinstance(field, ArgumentsField)
        field.rows = rows


def _value_at(place: str, definition: dict[str, Any]) -> Any:
    value: Any = definition
    for part in place.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
