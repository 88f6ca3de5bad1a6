"""What a form asks, as a template draws it: label, widget, value, and what is wrong with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.http import QueryDict

from tools.definitions.values import strict_json

DEFAULT, THESE, NONE = "default", "these", "none"
GROUPS = ((DEFAULT, "default"), (THESE, "these:"), (NONE, "none: only through *"))


class Widget(StrEnum):
    TEXT = "text"
    HIDDEN = "hidden"
    AREA = "area"
    CODE = "code"
    SELECT = "select"
    CHECK = "check"


@dataclass
class Input:
    """One question of a form. `place` is the field of a definition that its answer becomes."""

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


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def listed(kind: str, text: str) -> list[str] | None:
    """Absent, empty and given are three things (ruling 2)."""
    if kind == NONE:
        return []
    return words(text) if kind == THESE else None


def json_of(one: Input, default: Any) -> Any:
    """What an answer in JSON says, and the default for none. An unreadable one has its reason."""
    if not one.value.strip():
        return default
    try:
        return strict_json.parse_exact(one.value)
    except strict_json.BadJson as error:
        one.errors.append(f"This is not JSON that can be used: {error}.")
        return default


def plain(data: QueryDict) -> dict[str, str]:
    """What a database cannot hold becomes visible instead of an error of ours."""
    return {key: str(data[key]) for key in data}


def placed(flaws: list[dict[str, str]], inputs: Iterable[Input]) -> list[dict[str, str]]:
    """Put each flaw at the question whose answer it is about; the rest comes back.

    A flaw of a part (`implementation.source`) stands at its own question where there is one, else
    at the nearest question around it.
    """
    by_place = {one.answers: one for one in inputs}
    left = []
    for flaw in flaws:
        owner = next((by_place[one] for one in _around(flaw["field"]) if one in by_place), None)
        if owner is None:
            left.append(flaw)
        else:
            inside = flaw["field"].removeprefix(owner.answers).lstrip(".")
            owner.errors.append(f"{inside} {flaw['message']}".lstrip())
    return left


def _around(place: str) -> Iterable[str]:
    while place:
        yield place
        place = place.rpartition(".")[0]
