"""The form of a tool group; opening windows are one per line, such as `mon-fri 09:00-17:00`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tools.catalog.registry import CatalogGroup
from tools.definitions.values.schedules import DAYS
from tools.errors import Malformed, ToolcribError
from tools.ui.inputs import FormInput, Widget, placed, words

_WINDOW_PATTERN = re.compile(
    r"(?:(?P<days>[a-z][a-z ,-]*?)\s+)?(?P<begin>\d\d:\d\d)\s*(?:-|–|to)\s*(?P<end>\d\d:\d\d)"
)
LONGEST_DESCRIPTION = 1000
_INDEX = re.compile(r"\[(\d+)\]")
_WINDOW_HELP = (
    "One window a line, such as mon-fri 09:00-17:00; without days it is every day. Empty: "
)


def group_inputs(group: CatalogGroup | None, names: Iterable[str]) -> list[FormInput]:
    """The inputs with the group's values; `names` are the possible parents."""
    parents = [("", "none"), *((name, name) for name in names if not group or name != group.name)]
    asked = [
        FormInput("description", "What it is for", Widget.AREA),
        FormInput("parent", "Within", Widget.SELECT, options=tuple(parents),
              help="A tool in this group is also in the one it is within."),
        FormInput("permissions", "Permissions",
                  help="Held by whoever holds the group. With commas."),
        FormInput("schedule", "When it is open", Widget.CODE, f"{_WINDOW_HELP}always."),
        FormInput("max_queue_age_s", "Closed while a call waits longer than, seconds",
              help="Empty: however long."),
        FormInput("max_cpu_percent", "Closed while processors are busier than, %",
              help="Empty: however busy."),
    ]  # fmt: skip
    if group is None:
        return [FormInput("name", "Name", required=True), *asked]
    for one in asked:
        one.value = _input_value(getattr(group, one.key))
    return asked


def fill_inputs(inputs: list[FormInput], data: Mapping[str, str]) -> None:
    for one in inputs:
        one.value = data.get(one.key, "").replace("\r\n", "\n")


def parse_inputs(inputs: list[FormInput]) -> dict[str, Any]:
    """The submitted values. Invalid inputs get an error."""
    told = {one.key: one for one in inputs}
    return {
        "description": _parse_description(told["description"]),
        "parent": told["parent"].value or None,
        "permissions": words(told["permissions"].value),
        "schedule": _parse_windows(told["schedule"]),
        "max_queue_age_s": _parse_number(told["max_queue_age_s"]),
        "max_cpu_percent": _parse_number(told["max_cpu_percent"]),
    }


def set_errors(inputs: list[FormInput], error: ToolcribError) -> list[dict[str, str]]:
    """Set each error at its input; errors that belong to no input are returned."""
    flaws = error.details.get("errors") if isinstance(error, Malformed) else None
    if not flaws:
        return [{"field": "", "message": error.message}]
    read = [{**one, "field": _INDEX.sub(r".\1", one["field"])} for one in flaws]
    return placed(read, inputs)


def window_line(window: Any) -> str:
    days = ",".join(window["days"]) + " " if "days" in window else ""
    return f"{days}{window['from']}-{window['to']}"


def _input_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "\n".join(map(window_line, value))
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parse_description(one: FormInput) -> str:
    text = one.value.strip()
    if len(text) > LONGEST_DESCRIPTION:
        one.errors.append(f"Give at most {LONGEST_DESCRIPTION} characters.")
    return text


def _parse_windows(one: FormInput) -> list[dict[str, Any]]:
    windows = []
    for number, line in enumerate(one.value.splitlines(), start=1):
        if not line.strip():
            continue
        found = _WINDOW_PATTERN.fullmatch(line.strip().lower())
        if found is None:
            one.errors.append(f"Line {number} is no window such as mon-fri 09:00-17:00.")
            continue
        days = {"days": _parse_days(found["days"])} if found["days"] else {}
        windows.append({**days, "from": found["begin"], "to": found["end"]})
    return windows


def _parse_days(text: str) -> list[str]:
    """`mon-fri` is five days; an unknown day stays, and the rules of windows refuse it."""
    days: list[str] = []
    for part in re.split(r"[ ,]+", text.strip(" ,")):
        first, dash, last = part.partition("-")
        if dash and first in DAYS and last in DAYS and DAYS.index(first) <= DAYS.index(last):
            days += DAYS[DAYS.index(first) : DAYS.index(last) + 1]
        else:
            days.append(part[:20])
    return days


def _parse_number(one: FormInput) -> float | None:
    text = one.value.strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", text):
        return float(text)
    one.errors.append("Give a number such as 30.")
    return None
