"""Reads a definition field by field: every wrong field is named, none stops the reading."""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tools.definitions.texts import names
from tools.definitions.values import durations

DECIMAL = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")


class DefinitionFields:
    """One object of a definition. `flaws` collects `{"field", "message"}` for all of them."""

    def __init__(self, raw: dict[str, Any], flaws: list[dict[str, str]], prefix: str = "") -> None:
        self.raw = raw
        self.flaws = flaws
        self.prefix = prefix

    def wrong(self, name: str, message: str) -> None:
        """Record an error of a field; the first one is kept."""
        field = f"{self.prefix}{name}"
        if all(flaw["field"] != field for flaw in self.flaws):
            self.flaws.append({"field": field, "message": message})

    def reject_unknown(self, allowed: Iterable[str]) -> None:
        """An unknown key is an error: ignoring one could make a tool visible everywhere."""
        for key in sorted(set(self.raw) - set(allowed)):
            self.wrong(key, f"is not a field of a definition{names.suggestion(key, allowed)}")

    def has_value(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def parameter_names(self) -> frozenset[str]:
        """The parameters of the definition's tool, if it declares any."""
        given, schema = self.raw.get("parameters"), self.raw.get("input_schema")
        named = given if isinstance(given, list) else []
        names = {
            one["name"]
            for one in named
            if isinstance(one, dict) and isinstance(one.get("name"), str)
        }
        properties = schema.get("properties") if isinstance(schema, dict) else None
        return frozenset(names | (set(properties) if isinstance(properties, dict) else set()))

    def need_parameter(self, *names: str) -> None:
        """Checks that a definition with parameters has one of these."""
        taken = self.parameter_names()
        if taken and taken.isdisjoint(names):
            self.wrong("parameters", f"must have one with the name {' or '.join(names)}")

    def text(self, name: str, default: str | None = None, *, longest: int = 200) -> str:
        value = self.raw.get(name)
        if value is None:
            if default is None:
                self.wrong(name, "is required")
            return default or ""
        if not isinstance(value, str):
            self.wrong(name, "must be a text")
            return ""
        if default is None and not value.strip():
            self.wrong(name, "must not be empty")
        if flaw := names.flaw_in_text(value, longest=longest):
            self.wrong(name, flaw)
        return value

    def choice(self, name: str, kinds: type[StrEnum], default: str | None = None) -> str:
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in set(kinds):
            self.wrong(name, "must be one of " + ", ".join(kinds))
            return default or next(iter(kinds))
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
            return default
        return value

    def integer(self, name: str, default: int | None, *, least: int, most: int) -> int | None:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.wrong(name, f"must be a whole number from {least} to {most}")
            return default
        return value

    def duration(self, name: str, default: str | None, *, longest_s: float) -> str | None:
        value = self.raw.get(name)
        if value is None:
            return default
        try:
            return durations.normalize_duration(value, longest_s)
        except ValueError as error:
            self.wrong(name, str(error))
            return default

    def money(self, name: str) -> str:
        """A text of digits and a point, or a number: `Decimal` itself accepts much else."""
        value = self.raw.get(name, "0")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        decimal = number or (isinstance(value, str) and DECIMAL.fullmatch(value))
        amount = Decimal(str(value)) if decimal else Decimal("NaN")
        if not amount.is_finite() or not 0 <= amount <= 1_000_000:
            self.wrong(name, 'must be a decimal number from 0 to 1000000, such as "0.002"')
            return "0"
        if -int(amount.normalize().as_tuple().exponent) > 6:
            self.wrong(name, "must have at most six decimal places")
        return format(amount.normalize(), "f")

    def object(self, name: str, default: dict[str, Any] | None) -> dict[str, Any]:
        value = self.raw.get(name)
        if value is None:
            if default is None:
                self.wrong(name, "is required")
            return dict(default or {})
        if not isinstance(value, dict):
            self.wrong(name, "must be an object")
            return {}
        return value

    def texts(
        self,
        name: str,
        default: list[str] | None,
        *,
        flaw_of: Callable[[str], str | None],
        most: int = 100,
    ) -> list[str] | None:
        """A list of distinct texts. Absent or null is `default`; [] stays [] (ruling 2)."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(name, "must be a list of texts")
            return default
        if len(value) > most:
            self.wrong(name, f"must have at most {most} entries")
        if len(set(value)) != len(value):
            self.wrong(name, "names something twice")
        for item in value:
            if flaw := flaw_of(item):
                self.wrong(name, f"the entry {item[:60]!r} {flaw}")
        return value
