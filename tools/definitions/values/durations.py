"""ISO 8601 durations as definitions write them: `PT30S`, `PT1M30S`, `P1D`."""

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(
    r"P(?:(?P<days>\d{1,4})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,5})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,7}(?:\.\d{1,6})?)S)?)?"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_duration(text: str) -> float:
    """The length of an ISO 8601 duration in seconds. Raises ValueError."""
    match = _FORM.fullmatch(text)
    parts = {name: value for name, value in (match.groupdict() if match else {}).items() if value}
    if not parts:
        raise ValueError("not an ISO 8601 duration such as PT30S")
    return float(sum(Decimal(value) * _SECONDS[name] for name, value in parts.items()))


def format_duration(length_s: float) -> str:
    """The shortest writing of a length: 30 is PT30S, 90 is PT1M30S, 86400 is P1D."""
    left = Decimal(str(length_s))
    days, left = divmod(left, 86_400)
    hours, left = divmod(left, 3_600)
    minutes, left = divmod(left, 60)
    clock = "".join(
        f"{_plain_number(amount)}{unit}"
        for amount, unit in ((hours, "H"), (minutes, "M"), (left, "S"))
        if amount
    )
    date = f"{_plain_number(days)}D" if days else ""
    return f"P{date}T{clock}" if clock else f"P{date}" if date else "PT0S"


def normalize_duration(value: Any, longest_s: float) -> str:
    """As `format_duration` writes it. Raises ValueError, which says what the value must be."""
    try:
        length_s = parse_duration(value) if isinstance(value, str) else -1.0
    except ValueError:
        length_s = -1.0
    if not 0 < length_s <= longest_s:
        limit = format_duration(longest_s)
        raise ValueError(f"must be an ISO 8601 duration such as PT30S, at most {limit}")
    return format_duration(length_s)


def _plain_number(amount: Decimal) -> str:
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
