"""Converts a definition to the inputs of a form, and submitted inputs back to a definition.

The form refuses only values that cannot be parsed, such as broken JSON. `read_definition` validates
the definition, as it does for every caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.implementations.tool_types import READERS
from tools.definitions.tool import passes_arguments
from tools.definitions.tool_parameters import parameters_schema
from tools.definitions.vocabulary import (
    ArgumentValidation,
    Category,
    Delivery,
    Isolation,
    ToolType,
)
from tools.ui.display import pretty
from tools.ui.editor.argument_table import ArgumentRow, read_rows, rows_of
from tools.ui.inputs import (
    FormInput,
    Widget,
    choices,
    parse_json_input,
    parse_name_choice,
    place_errors,
    split_names,
)
from tools.web.form_fields import DEFAULT_NAMES, GROUP_CHOICES, STATE_CHOICES, name_choice

_LANGUAGES = (("python", "Python"), ("javascript", "JavaScript"))
_FIELDS_WITHOUT_INPUT = ("metadata", "cost_per_cache_hit", "transform")
ARGUMENTS_TEXT = "arguments-text"


@dataclass
class DraftSection:
    title: str
    inputs: list[FormInput]
    help: str = ""

    @property
    def unfolds(self) -> bool:
        """Whether it has a schema that may be converted to arguments."""
        return any(one.key == "input_schema" and one.value.strip() for one in self.inputs)


def _arguments_text() -> FormInput:
    help_text = "A list, in YAML or JSON. It follows the table, and the table follows it."
    return FormInput(ARGUMENTS_TEXT, "The same as text", Widget.CODE, help_text)


@dataclass(frozen=True)
class ArgumentFingerprints:
    """Fingerprints of the table and the text when the two last agreed."""

    table: str = ""
    text: str = ""


@dataclass
class ToolDraft:
    sections: list[DraftSection]
    rows: list[ArgumentRow]
    kind: str
    kept: dict[str, Any] = field(default_factory=dict)  # fields without an input
    flaws: list[dict[str, str]] = field(default_factory=list)  # errors that belong to no input
    digest: str = ""  # of the version that is edited
    text: FormInput = field(default_factory=_arguments_text)  # the rows, as YAML or JSON
    noted: ArgumentFingerprints = ArgumentFingerprints()
    torn: bool = False  # rows and text were both changed, and the author must choose

    @property
    def inputs(self) -> list[FormInput]:
        return [one for section in self.sections for one in section.inputs]

    @property
    def all_inputs(self) -> list[FormInput]:
        cells = [one for row in self.rows for one in row.inputs.values()]
        return [*self.inputs, *cells, self.text]

    @property
    def cells_wrong(self) -> int:
        return sum(bool(row.flaws) for row in self.rows)

    @property
    def flawed(self) -> bool:
        return bool(self.flaws) or any(one.errors for one in self.all_inputs)

    def place(self, flaws: list[dict[str, str]]) -> None:
        self.flaws += place_errors(flaws, self.all_inputs)


def new_draft(kind: str) -> ToolDraft:
    return _empty_draft(kind, {})


def draft_of(definition: dict[str, Any], digest: str) -> ToolDraft:
    """The form with the values of a definition."""
    draft = _empty_draft(definition["type"], definition)
    draft.digest = digest
    for one in draft.inputs:
        one.value = _input_value(one, definition)
    draft.rows = rows_of(definition["parameters"])
    return draft


def draft_from(data: Mapping[str, str], definition: dict[str, Any] | None) -> ToolDraft:
    """The submitted form; `definition` is the definition that is edited."""
    kind = definition["type"] if definition else data.get("type", "")
    draft = _empty_draft(kind if kind in READERS else ToolType.CODE, definition or {})
    draft.digest = data.get("digest", "")[:100]
    for one in draft.inputs:
        one.value = data.get(one.key, "").replace("\r\n", "\n")
    draft.rows = read_rows(data)
    draft.text.value = data.get(ARGUMENTS_TEXT, "").replace("\r\n", "\n")
    return draft


def definition_from(draft: ToolDraft) -> dict[str, Any]:
    """The submitted values, with the fields without an input. Invalid inputs get an error."""
    inputs = {one.key: one for one in draft.inputs}
    raw: dict[str, Any] = {
        key: inputs[key].value.strip() or None for key in ("title", "state", "cache_ttl")
    }
    raw |= {key: inputs[key].value for key in ("name", "description", "category", "delivery")}
    raw |= {key: split_names(inputs[key].value) for key in ("required_permissions", "capabilities")}
    raw["type"] = draft.kind
    raw["argument_validation"] = inputs["argument_validation"].value
    raw["requires_confirmation"] = bool(inputs["requires_confirmation"].value)
    raw["group"] = parse_name_choice(inputs["group_kind"].value, inputs["group"].value)
    raw["available_in_states"] = parse_name_choice(
        inputs["available_in_states_kind"].value, inputs["available_in_states"].value
    )
    raw["rate_limit_per_minute"] = _parse_number(inputs["rate_limit_per_minute"])
    raw["cost_per_invocation"] = inputs["cost_per_invocation"].value.strip() or "0"
    raw["output_schema"] = parse_json_input(inputs["output_schema"], {})
    raw["constraints"] = _read_constraints(inputs)
    raw["implementation"] = _read_implementation(inputs)
    raw |= _read_interface(draft, inputs)
    return draft.kept | raw


def _empty_draft(kind: str, definition: dict[str, Any]) -> ToolDraft:
    kept: dict[str, Any] = {
        key: definition[key] for key in _FIELDS_WITHOUT_INPUT if key in definition
    }
    sections = [
        _identity_section(),
        _implementation_section(kind),
        _access_section(),
        _constraints_section(),
        _schemas_section(),
    ]
    return ToolDraft(sections, [], kind, kept)


def _identity_section() -> DraftSection:
    return DraftSection(
        "What it is",
        [
            FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'."),
            FormInput("title", "Title", help="As people read it."),
            FormInput(
                "category", "Category", Widget.SELECT, options=choices(Category), value="System"
            ),
            FormInput(
                "description",
                "Description",
                Widget.AREA,
                required=True,
                help="What models read before they choose it.",
            ),
        ],
    )


def _implementation_section(kind: str) -> DraftSection:
    if kind == ToolType.CODE:
        at = "implementation."
        return DraftSection(
            "What runs",
            [
                FormInput("language", "Language", Widget.SELECT, place=f"{at}language",
                      options=_LANGUAGES),
                FormInput("entry_point", "Function", place=f"{at}entry_point", value="main"),
                FormInput("source", "Source", Widget.CODE, place=f"{at}source", required=True,
                      value="def main(parameters):\n    return None\n"),
            ],
        )  # fmt: skip
    asked = "What it is made of, as JSON; see the type's section in the tool authors' guide."
    return DraftSection("What runs", [
        FormInput("implementation", "Implementation", Widget.CODE, asked, value="{}")
    ])  # fmt: skip


def _access_section() -> DraftSection:
    states = "available_in_states"
    return DraftSection(
        "Who may call it, and when",
        [
            FormInput(
                "group_kind", "Groups", Widget.SELECT, options=GROUP_CHOICES, value=DEFAULT_NAMES
            ),
            FormInput("group", "Names of groups", help="Separated by commas."),
            FormInput(
                f"{states}_kind",
                "States",
                Widget.SELECT,
                options=STATE_CHOICES,
                value=DEFAULT_NAMES,
            ),
            FormInput(states, "Names of states", help="Separated by commas."),
            FormInput("state", "State after success", help="Empty: the state stays."),
            FormInput("required_permissions", "Permissions", help="Separated by commas."),
            FormInput("requires_confirmation", "A person must confirm each call", Widget.CHECK),
        ],
    )


def _constraints_section() -> DraftSection:
    at = "constraints."
    return DraftSection(
        "How it runs",
        [
            FormInput("delivery", "Delivery", Widget.SELECT, options=choices(Delivery),
                  value=Delivery.EXTERNAL, help="external: at most once. pure: no effect at all."),
            FormInput("argument_validation", "Arguments that do not fit", Widget.SELECT, "", "",
                      False,
                  _VALIDATION, ArgumentValidation.ENFORCE),
            FormInput("max_execution_time", "Time at most", place=f"{at}max_execution_time",
                  value="PT30S", help="ISO 8601, such as PT30S or PT5M."),
            FormInput("max_output_size", "Output at most, bytes", place=f"{at}max_output_size",
                  value="10485760"),
            FormInput("required_isolation", "Isolation", Widget.SELECT, "",
                      f"{at}required_isolation",
                  False, choices(one for one in Isolation if one != Isolation.NONE), "Standard"),
            FormInput("sandbox_profile", "Sandbox profile", place=f"{at}sandbox_profile"),
            FormInput("rate_limit_per_minute", "Calls a minute", help="Empty: no limit."),
            FormInput("cost_per_invocation", "Cost per call", value="0"),
            FormInput("cache_ttl", "Answers may be kept for", help="Of pure tools only: PT5M."),
            FormInput("capabilities", "Capabilities", help="Separated by commas."),
            FormInput("allow_side_effects", "It may have side effects", Widget.CHECK,
                  place=f"{at}allow_side_effects", value="yes"),
        ],
    )  # fmt: skip


_VALIDATION = (
    (ArgumentValidation.ENFORCE, "are refused"),
    (ArgumentValidation.WARN, "pass with a warning"),
    (ArgumentValidation.OFF, "pass unchanged"),
)


def _schemas_section() -> DraftSection:
    return DraftSection(
        "Schemas",
        [
            FormInput("input_schema", "Input schema instead of arguments", Widget.CODE,
                  "A JSON Schema, for inputs that a list of arguments cannot tell. Else empty."),
            FormInput("output_schema", "Output schema", Widget.CODE,
                  "What it must return. Empty: anything."),
        ],
    )  # fmt: skip


def _input_value(one: FormInput, definition: dict[str, Any]) -> str:
    """The value of an input, from a definition."""
    key = one.key
    if key.endswith("_kind"):
        names = definition[key.removesuffix("_kind")]
        return name_choice(names)[0]
    if key == "input_schema":
        return _schema_text(definition)
    value = _field_value(one.answers, definition)
    if isinstance(value, bool):
        return "yes" if value else ""
    if one.widget == Widget.CODE and not isinstance(value, str):
        return _json_text(value)
    return ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)


def _schema_text(definition: dict[str, Any]) -> str:
    """The input schema; empty where the list of arguments produces the same."""
    derived = parameters_schema(definition["parameters"], closed=not passes_arguments(definition))
    listed_ones = definition["parameters"] or definition["input_schema"] == derived
    return "" if listed_ones else pretty(definition["input_schema"])


def _field_value(place: str, definition: dict[str, Any]) -> Any:
    value: Any = definition
    for part in place.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _json_text(value: Any) -> str:
    return pretty(value) if value else ""


def _read_interface(draft: ToolDraft, inputs: dict[str, FormInput]) -> dict[str, Any]:
    parameters = [row.parameter for row in draft.rows]
    if inputs["input_schema"].value.strip():
        return {
            "parameters": parameters,
            "input_schema": parse_json_input(inputs["input_schema"], {}),
        }
    return {"parameters": parameters}


def _read_constraints(inputs: dict[str, FormInput]) -> dict[str, Any]:
    profile = inputs["sandbox_profile"].value.strip()
    return {
        "max_execution_time": inputs["max_execution_time"].value.strip() or None,
        "max_output_size": _parse_number(inputs["max_output_size"]),
        "required_isolation": inputs["required_isolation"].value,
        "allow_side_effects": bool(inputs["allow_side_effects"].value),
    } | ({"sandbox_profile": profile} if profile else {})


def _read_implementation(inputs: dict[str, FormInput]) -> Any:
    if "implementation" in inputs:
        return parse_json_input(inputs["implementation"], {})
    return {key: inputs[key].value for key in ("language", "entry_point", "source")}


def _parse_number(one: FormInput) -> int | None:
    text = one.value.strip().replace(",", "")
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    one.errors.append("Give a whole number.")
    return None
