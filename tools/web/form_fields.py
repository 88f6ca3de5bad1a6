"""Fields of forms for what the product's forms ask for: names, lines, JSON, secrets, opening hours.

Each has `text(value)`: the value as text, as it is compared with what another person wrote
meanwhile, and shown beside it.
"""

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac

from tools.definitions.values import strict_json

MOST_NAMES, LONGEST_NAME = 200, 100
LONGEST_TEXT = 20_000
KEPT_SECRET, NO_SECRET = "••• (set)", ""
_DIGEST_SALT = "tools.web.form_fields"


class NamesField(forms.CharField):
    """Names with commas between them. None for an empty field where `none_if_empty`."""

    def __init__(self, *, most: int = MOST_NAMES, none_if_empty: bool = False, **options: Any):
        options.setdefault("required", False)
        super().__init__(max_length=LONGEST_TEXT, **options)
        self.most, self.none_if_empty = most, none_if_empty

    def prepare_value(self, value: Any) -> Any:
        return value if value is None or isinstance(value, str) else ", ".join(value)

    def to_python(self, value: Any) -> Any:
        names = [name.strip() for name in str(value or "").replace("\n", ",").split(",")]
        return [name for name in names if name]

    def clean(self, value: Any) -> Any:
        names = super().clean(value)
        return None if self.none_if_empty and not names else names

    def run_validators(self, value: Any) -> None:
        if len(value) > self.most or any(len(name) > LONGEST_NAME for name in value):
            raise ValidationError(f"At most {self.most} names of {LONGEST_NAME} characters.")


class LinesField(forms.CharField):
    """A list of texts, one per line. Names match exactly, so nothing is trimmed."""

    widget = forms.Textarea

    def __init__(self, **options: Any) -> None:
        options.setdefault("required", False)
        super().__init__(strip=False, **options)
        self.widget.attrs.update({"rows": 4, "spellcheck": "false", "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        return [line for line in str(value or "").splitlines() if line]


class JsonField(forms.CharField):
    """JSON as our parser reads it: no key twice, no number that changes."""

    widget = forms.Textarea

    def __init__(self, *, empty: Any = None, **options: Any) -> None:
        options.setdefault("required", False)
        super().__init__(strip=False, **options)
        self.empty = empty
        self.widget.attrs.update({"rows": 8, "spellcheck": "false", "class": "mono"})

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return "" if value == self.empty else json.dumps(value, ensure_ascii=False, indent=2)

    def to_python(self, value: Any) -> Any:
        if not str(value or "").strip():
            return self.empty
        try:
            return strict_json.parse_exact(str(value))
        except strict_json.BadJson as error:
            raise ValidationError(f"This is not JSON that can be used: {error}.") from None


class SecretField(forms.CharField):
    """A secret is never shown. Left empty, the stored one is kept: `changes` do not name it.

    Its initial value is the stored secret, of which the page carries a keyed digest alone.
    """

    widget = forms.PasswordInput

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, **options)
        self.widget.attrs.update({"autocomplete": "new-password", "spellcheck": "false"})


class NumberField(forms.CharField):
    """A number as it was typed where it cannot be one, which the action then refuses by name."""

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        if text.isascii() and text.isdecimal() and len(text) < 16:
            return int(text)
        digits = text.replace(".", "", 1)
        if digits.isascii() and digits.isdecimal() and len(digits) < 16:
            return float(text)
        return text[:40]

    def run_validators(self, value: Any) -> None:
        """The action does."""


def text_of(field: forms.Field, value: Any) -> str:
    """A value of the field as text; of a secret, a keyed digest."""
    if isinstance(field, SecretField):
        digest = salted_hmac(_DIGEST_SALT, str(value), algorithm="sha256")
        return digest.hexdigest() if value else NO_SECRET
    if isinstance(field, forms.BooleanField):
        return "yes" if value else "no"
    if value is None or value == "":
        return ""
    if isinstance(value, float | Decimal):
        return f"{Decimal(str(value)).normalize():f}"
    if isinstance(value, Sequence | dict) and not isinstance(value, str):
        prepared = field.prepare_value(value)
        return prepared if isinstance(prepared, str) else json.dumps(value, sort_keys=True)
    return str(value).replace("\r\n", "\n")


def shown_text(field: forms.Field, text: str) -> str:
    """What a reader sees of `text_of`."""
    if isinstance(field, SecretField):
        return KEPT_SECRET if text else ""
    if isinstance(field, forms.ChoiceField):
        return str(dict(_flat(field.choices)).get(text, text))
    return text


def choices(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


def _flat(pairs: Any) -> Iterable[tuple[str, Any]]:
    for value, label in pairs:
        yield from _flat(label) if isinstance(label, list | tuple) else [(str(value), label)]
