"""Serializer fields that take a value of their own type or refuse it; nothing is coerced."""

from typing import Any

from rest_framework import serializers

from tools.definitions import durations


class Text(serializers.CharField):
    """Text as it was sent: not trimmed, never made from a number."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


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

    def to_internal_value(self, data: Any) -> float:  # type: ignore[override]
        text = super().to_internal_value(data)
        try:
            length_s = durations.seconds(text)
        except ValueError as error:
            raise serializers.ValidationError(f"This is {error}.") from None
        if length_s <= 0:
            raise serializers.ValidationError("This must be longer than nothing.")
        return length_s


def texts(**options: Any) -> serializers.ListField:
    """A list of texts of at most 100 characters; absent, null and [] stay three things."""
    return serializers.ListField(child=Text(max_length=100), max_length=200, **options)


class Strict(serializers.Serializer[Any]):
    """A request body; a key it does not know is an error, not ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = set(data) - set(self.fields)
            if unknown:
                raise serializers.ValidationError(
                    {str(key)[:60]: ["This field is not known here."] for key in sorted(unknown)}
                )
        return super().to_internal_value(data)
