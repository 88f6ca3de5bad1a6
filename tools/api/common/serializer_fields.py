"""Serializer fields that take a value of their own type or refuse it; nothing is coerced."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from sandbox.spec import IsolationLevel
from tools.definitions.results import Status
from tools.definitions.values import durations
from tools.definitions.vocabulary import (
    ToolType,
)
from tools.policy.questions import DEFAULT_STATE

LEVELS = [str(level) for level in IsolationLevel]
STATUSES = [str(status) for status in Status]
TYPES = [str(kind) for kind in ToolType]
MOST_FLAWS = 20  # of one answer


class Text(serializers.CharField):
    """Text as it was sent: not trimmed, never made from a number."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class State(Text):
    """The name of a state; the empty text is the state of a request that names none (S1, 2.2)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            required=False, allow_null=True, allow_blank=True, default=None, max_length=100,
            **options,
        )  # fmt: skip

    def run_validation(self, data: Any = serializers.empty) -> Any:
        found = super().run_validation(data)
        return DEFAULT_STATE if found == "" else found


class Flag(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Whole(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Seconds(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if not isinstance(data, int | float) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Duration(Text):
    """An ISO 8601 duration such as PT30S, as seconds."""

    def __init__(
        self, *, least_s: float | None = None, longest_s: float | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.least_s, self.longest_s = least_s, longest_s

    def to_internal_value(self, data: Any) -> float:  # type: ignore[override]
        text = super().to_internal_value(data)
        try:
            length_s = durations.parse_duration(text)
        except ValueError as error:
            raise serializers.ValidationError(f"This is {error}.") from None
        if length_s <= 0 and self.least_s is None:
            raise serializers.ValidationError("This must be longer than nothing.")
        if self.longest_s is not None and length_s > self.longest_s:
            most = durations.format_duration(self.longest_s)
            raise serializers.ValidationError(f"This must be {most} at most.")
        return length_s


class Items(serializers.ListField):
    """A list whose length is checked before its items; only the first errors are reported."""

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            message = self.error_messages["max_length"].format(max_length=self.max_length)
            raise serializers.ValidationError(message, code="max_length")
        return super().to_internal_value(data)

    def run_child_validation(self, data: list[Any]) -> list[Any]:
        result, flaws = [], dict[Any, Any]()
        for at, item in enumerate(data):
            try:
                result.append(self.child.run_validation(item))
            except serializers.ValidationError as error:
                flaws[at] = error.detail
                if len(flaws) == MOST_FLAWS:
                    break
        if flaws:
            raise serializers.ValidationError(flaws)
        return result


class Strict(serializers.Serializer[Any]):
    """A request body; a key it does not know is an error, not ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            check_known_fields(data, self.fields)
        return super().to_internal_value(data)


def choice_field(kind: Iterable[str], **options: Any) -> serializers.ChoiceField:
    """A member of a closed set."""
    return serializers.ChoiceField(choices=[str(one) for one in kind], **options)


def text_list(**options: Any) -> Items:
    """A list of texts of at most 100 characters; absent, null and [] stay three things."""
    return Items(child=Text(max_length=100), max_length=200, **options)


def check_known_fields(given: dict[Any, Any], known: Iterable[str]) -> None:
    """Raises DRF's ValidationError that names the fields beside these."""
    unknown = sorted(map(str, given.keys() - set(known)))
    if not unknown:
        return
    named = {key[:60]: ["This field is not known here."] for key in unknown[:MOST_FLAWS]}
    if len(unknown) > len(named):
        named[""] = [f"{len(unknown)} fields are not known here."]
    raise serializers.ValidationError(named)
