"""Fields of forms for what the product's forms ask for: names, lines, JSON, secrets, opening hours.

Each has `text(value)`: the value as text, as it is compared with what another person wrote
meanwhile, and shown beside it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac

from tools.definitions.values import strict_json
from tools.definitions.values.schedules import DAYS

MOST_NAMES, LONGEST_NAME = 200, 100
LONGEST_TEXT = 20_000
KEPT_SECRET, NO_SECRET = "••• (set)", ""
TYPE_AGAIN = "It is not kept in the page: type it again."
SPARE_ROWS = 3  # empty ones at the end of a form's rows
MARKED_ROWS = "See the marked rows."
DEFAULT_NAMES, THESE_NAMES, NO_NAMES = "default", "these", "none"
GROUP_CHOICES = (
    (DEFAULT_NAMES, "default"),
    (THESE_NAMES, "these:"),
    (NO_NAMES, "none: only through *"),
)
STATE_CHOICES = ((DEFAULT_NAMES, "every state"), (THESE_NAMES, "these:"), (NO_NAMES, "never"))
_DIGEST_SALT = "tools.web.form_fields"
_UNITS = (("seconds", 1), ("minutes", 60), ("hours", 3600))
_WINDOW = re.compile(
    r"(?:(?P<days>[a-z][a-z ,-]*?)\s+)?(?P<begin>\d\d:\d\d)\s*(?:-|–|to)\s*(?P<end>\d\d:\d\d)"
)


class NamesField(forms.CharField):
    """Names with commas between them. None for an empty field where `none_if_empty`."""

    def __init__(
        self,
        *,
        most: int = MOST_NAMES,
        longest: int = LONGEST_NAME,
        none_if_empty: bool = False,
        **options: Any,
    ) -> None:
        options.setdefault("required", False)
        super().__init__(max_length=LONGEST_TEXT, **options)
        self.most, self.longest, self.none_if_empty = most, longest, none_if_empty

    def prepare_value(self, value: Any) -> Any:
        return value if value is None or isinstance(value, str) else ", ".join(value)

    def to_python(self, value: Any) -> Any:
        names = [name.strip() for name in str(value or "").replace("\n", ",").split(",")]
        return [name for name in names if name]

    def clean(self, value: Any) -> Any:
        names = super().clean(value)
        return None if self.none_if_empty and not names else names

    def run_validators(self, value: Any) -> None:
        if len(value) > self.most or any(len(name) > self.longest for name in value):
            raise ValidationError(f"At most {self.most} names of {self.longest} characters.")


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


class HostsField(LinesField):
    """One host per line; a host with more than a name is written as JSON."""

    def __init__(self, **options: Any) -> None:
        options.setdefault(
            "help_text",
            'One a line: a host, *.suffix, * for every public one, or {"host": "api.example", '
            '"ports": [443], "methods": ["GET"], "paths": ["/v1"], "credential": "name"}.',
        )
        super().__init__(**options)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in value)

    def to_python(self, value: Any) -> Any:
        lines = [line.strip() for line in super().to_python(value)]
        return [_parse_host(line) for line in lines if line]


class JsonField(forms.CharField):
    """JSON as our parser reads it: no key twice, no number that changes."""

    widget = forms.Textarea

    def __init__(self, *, empty: Any = None, **options: Any) -> None:
        options.setdefault("required", False)
        super().__init__(strip=False, **options)
        self.empty = empty
        self.widget.attrs = {"spellcheck": "false", "class": "mono"} | self.widget.attrs
        if isinstance(self.widget, forms.Textarea):
            self.widget.attrs = {"rows": 8} | self.widget.attrs

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


class Checkboxes(forms.CheckboxSelectMultiple):
    template_name = "_parts/checkboxes.html"


class OpenChoiceField(forms.ChoiceField):
    """A choice; any other text is refused by the action, which names the choices."""

    def valid_value(self, value: str) -> bool:
        return True


class NumberField(forms.CharField):
    """A number as it was typed where it cannot be one, which the action then refuses by name."""

    def prepare_value(self, value: Any) -> Any:
        return text_of(self, value) if isinstance(value, float | Decimal) else value

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


class WholeField(forms.IntegerField):
    """A whole number in ASCII digits."""

    widget = forms.TextInput

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.widget.attrs = {"inputmode": "numeric"} | self.widget.attrs

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and not value.isascii():
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


class DurationWidget(forms.MultiWidget):
    template_name = "_parts/duration.html"
    use_fieldset = False  # its label names the number

    def __init__(self) -> None:
        units = forms.Select({"aria-label": "Unit of time"}, choices=choices(dict(_UNITS)))
        super().__init__({"": forms.TextInput({"inputmode": "numeric"}), "unit": units})

    def decompress(self, value: int | None) -> list[Any]:
        """The largest unit of which the seconds are a whole number."""
        if not value:
            return [None, "minutes"]
        unit, seconds = next(one for one in reversed(_UNITS) if value % one[1] == 0)
        return [value // seconds, unit]

    def id_for_label(self, id_: str) -> str:
        return f"{id_}_0"


class DurationField(forms.MultiValueField):
    """A number and a unit; its value is seconds."""

    widget = DurationWidget

    def __init__(self, *, most_s: int, **options: Any) -> None:
        unknown = {"invalid_choice": "Choose seconds, minutes or hours."}
        units = forms.ChoiceField(choices=choices(dict(_UNITS)), error_messages=unknown)
        super().__init__((WholeField(min_value=1), units), **options)
        self.most_s = most_s

    def compress(self, data_list: list[Any]) -> int | None:
        if not data_list:
            return None
        number, unit = data_list
        seconds = int(number * dict(_UNITS)[unit])
        if seconds > self.most_s:
            raise ValidationError(f"At most {duration_words(self.most_s)}.")
        return seconds


def duration_words(seconds: int) -> str:
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % unit_s == 0:
            return f"{seconds // unit_s}\N{NO-BREAK SPACE}{unit}"
    return f"{seconds}\N{NO-BREAK SPACE}s"


class OpeningHoursField(LinesField):
    """Opening windows, one a line: `mon-fri 09:00-17:00`; without days it is every day."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.widget.attrs["class"] = "mono"

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return "\n".join(window_line(one) if isinstance(one, dict) else str(one) for one in value)

    def to_python(self, value: Any) -> Any:
        windows, errors = [], []
        for number, line in enumerate(str(value or "").splitlines(), start=1):
            found = _WINDOW.fullmatch(line.strip().lower())
            if found is not None:
                days = {"days": _days(found["days"])} if found["days"] else {}
                windows.append({**days, "from": found["begin"], "to": found["end"]})
            elif line.strip():
                errors.append(f"Line {number} is no window such as mon-fri 09:00-17:00.")
        if errors:
            raise ValidationError(errors)
        return windows


def window_line(window: Any) -> str:
    days = ",".join(window["days"]) + " " if "days" in window else ""
    return f"{days}{window['from']}-{window['to']}"


def _days(text: str) -> list[str]:
    """`mon-fri` is five days; an unknown day stays, and the rules of windows refuse it."""
    days: list[str] = []
    for part in re.split(r"[ ,]+", text.strip(" ,")):
        first, dash, last = part.partition("-")
        if dash and first in DAYS and last in DAYS and DAYS.index(first) <= DAYS.index(last):
            days += DAYS[DAYS.index(first) : DAYS.index(last) + 1]
        else:
            days.append(part[:20])
    return days


class RowsWidget(forms.Widget):
    """Rows of texts, named `<field>-<row>-<column>`, with some empty ones at the end."""

    use_fieldset = True

    def __init__(self, template: str, columns: tuple[str, ...], needs: tuple[str, ...], most: int):
        super().__init__()
        self.template_name, self.columns, self.needs, self.most = template, columns, needs, most
        self.errors: Mapping[str, str] = {}  # by `RowsField.key`
        self.show: Callable[[int, dict[str, str]], dict[str, Any]]

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        """The rows with a text in one of the columns that a row needs."""
        rows = [
            {column: str(data.get(f"{name}-{at}-{column}", "")).strip() for column in self.columns}
            for at in range(self.most)
        ]
        return [row for row in rows if any(row[column] for column in self.needs)]

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context = super().get_context(name, None, attrs)
        rows = list(value or ())
        spare = max(0, min(SPARE_ROWS, self.most - len(rows)))
        rows += [dict.fromkeys(self.columns, "") for _ in range(spare)]
        context["widget"]["rows"] = [
            row | self.show(at, row) | {"key": f"{name}-{at}"} for at, row in enumerate(rows)
        ]
        return context


class RowsField(forms.Field):
    """Rows of a table. `read` makes the value of them; its errors are shown at the rows."""

    widget: RowsWidget

    def __init__(self, widget: RowsWidget, **options: Any) -> None:
        super().__init__(widget=widget, required=False, **options)

    def __deepcopy__(self, memo: Any) -> "RowsField":
        copied: RowsField = super().__deepcopy__(memo)
        copied.widget.show = copied.show
        return copied

    def key(self, at: int, row: Mapping[str, str]) -> str:
        return str(at)

    def show(self, at: int, row: dict[str, str]) -> dict[str, Any]:
        """What the template reads beside the texts of the row."""
        return {"error": self.widget.errors.get(self.key(at, row), "")}

    def mark(self, key: str, error: str) -> None:
        self.widget.errors = {**self.widget.errors, key: error}

    def marks(self, rows: Sequence[dict[str, str]], inside: str, error: str) -> bool:
        """Whether the error of a refusal was set at the row that it is about."""
        if found := inside in (self.key(at, row) for at, row in enumerate(rows)):
            self.mark(inside, error)
        return found

    def to_python(self, value: Any) -> Any:
        read = self.read(list(value or ()))
        if self.widget.errors:
            raise ValidationError(MARKED_ROWS)
        return read

    def read(self, rows: list[dict[str, str]]) -> Any:
        raise NotImplementedError

    def text(self, value: Any) -> str:
        """The rows as text, to be compared and to be shown."""
        raise NotImplementedError

    def conflict_texts(self, before: str, theirs: str, yours: str) -> list[str]:
        """What a reader sees of three texts."""
        return [before, theirs, yours]


def digest_of(secret: str) -> str:
    return salted_hmac(_DIGEST_SALT, secret, algorithm="sha256").hexdigest()


def name_choice(names: Sequence[str] | None) -> tuple[str, list[str]]:
    """A list of groups as a choice and names: absent, empty and given lists differ (ruling 2)."""
    choice = DEFAULT_NAMES if names is None else THESE_NAMES if names else NO_NAMES
    return choice, [*(names or ())]


def chosen_names(choice: str, names: list[str]) -> list[str] | None:
    return {NO_NAMES: [], THESE_NAMES: names}.get(choice)


def text_of(field: forms.Field, value: Any) -> str:
    """A value of the field as text; of a secret, a keyed digest."""
    if isinstance(field, SecretField):
        return digest_of(str(value)) if value else NO_SECRET
    if isinstance(field, RowsField):
        return field.text(value)
    if isinstance(field, forms.BooleanField):
        return "yes" if value else "no"
    if isinstance(field, forms.ModelChoiceField):
        value = field.prepare_value(value)
        return "\n".join(sorted(map(str, value))) if isinstance(value, list) else str(value or "")
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
    if isinstance(field, DurationField):
        return duration_words(int(text)) if text else ""
    if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
        return ", ".join(map(str, field.queryset.filter(pk__in=text.split())))
    if isinstance(field, forms.ChoiceField):
        return str(dict(_flat(field.choices)).get(text, text))
    return text


def choices(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


def _flat(pairs: Any) -> Iterable[tuple[str, Any]]:
    for value, label in pairs:
        yield from _flat(label) if isinstance(label, list | tuple) else [(str(value), label)]


def _parse_host(line: str) -> Any:
    if not line.startswith("{"):
        return line
    try:
        return strict_json.parse(line)
    except strict_json.BadJson as error:
        raise ValidationError(f"The line {line[:60]!r} is {error}.") from None
