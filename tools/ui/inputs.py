"""Inputs of forms for templates: label, widget, value and errors."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.http import QueryDict

from tools.definitions.values import strict_json
from tools.web.form_fields import chosen_names


class Widget(StrEnum):
    TEXT = "text"
    HIDDEN = "hidden"
    AREA = "area"
    CODE = "code"
    SELECT = "select"
    CHECK = "check"


@dataclass
class FormInput:
    """One input of a form. `place` is the field of a definition that it sets."""

    key: str
    label: str
    widget: Widget = Widget.TEXT
    help: str = ""
    place: str = ""
    required: bool = False
    options: tuple[tuple[str, str], ...] = ()
    value: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def checked(self) -> bool:
        return self.widget == Widget.CHECK and bool(self.value)

    @property
    def answers(self) -> str:
        return self.place or self.key


def choices(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


def split_names(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_name_choice(kind: str, text: str) -> list[str] | None:
    return chosen_names(kind, split_names(text))


def parse_json_input(one: FormInput, default: Any) -> Any:
    """The value of a JSON input; the default for an empty one. Invalid JSON sets its error."""
    if not one.value.strip():
        return default
    try:
        return strict_json.parse_exact(one.value)
    except strict_json.BadJson as error:
        one.errors.append(f"This is not JSON that can be used: {error}.")
        return default


def form_values(data: QueryDict) -> dict[str, str]:
    """The last value of each field of a form."""
    return {key: str(data[key]) for key in data}


def place_errors(flaws: list[dict[str, str]], inputs: Iterable[FormInput]) -> list[dict[str, str]]:
    """Set each error at the input that it is about; the other errors are returned.

    The error of a nested field (`implementation.source`) is set at its own input where there is
    one, else at the input of the nearest field around it.
    """
    by_place = {one.answers: one for one in inputs}
    left = []
    for flaw in flaws:
        owner = next(
            (by_place[one] for one in _enclosing_fields(flaw["field"]) if one in by_place), None
        )
        if owner is None:
            left.append(flaw)
        else:
            inside = flaw["field"].removeprefix(owner.answers).lstrip(".")
            owner.errors.append(f"{inside} {flaw['message']}".lstrip())
    return left


def _enclosing_fields(place: str) -> Iterable[str]:
    while place:
        yield place
        place = place.rpartition(".")[0]
