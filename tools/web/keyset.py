"""Keyset pagination: a page begins beside a row, so that rows which come or go lose and double
none. The API's cursors and the lists of pages share it.

Rows are a queryset or a sequence. They are in the order of a field, which is never null, and where
rows share its value, of a second one that no two share: the row's place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

MOST_COUNTED = 1_000  # rows that are counted; of more, a page says that there are more
_MOST_OFFSET = 10_000


@dataclass(frozen=True, slots=True)
class KeysetPosition:
    """The rows below (or above) a row, by its place and its value of the field as texts. Without
    the value, which an old address has not, the row must be there."""

    place: str
    below: bool
    value: str | None = None


@dataclass(frozen=True, slots=True)
class KeysetOrder:
    """`field` is a name; of a sequence's rows a function. None: the sequence is in order."""

    field: str | Callable[[Any], Any] | None
    place: str
    descending: bool = False

    def position(self, row: Any, *, forward: bool) -> KeysetPosition:
        value = None if self.field == self.place else _text(self.value_of(row))
        return KeysetPosition(str(_attribute(row, self.place)), self.descending == forward, value)

    def value_of(self, row: Any) -> Any:
        return self.field(row) if callable(self.field) else _attribute(row, str(self.field))


@dataclass(frozen=True, slots=True)
class KeysetPage:
    """Some rows, and whether others precede and follow them. `first` is the number of the first
    row, and `total` the number of all: None where they were not counted."""

    rows: list[Any]
    precede: bool
    follow: bool
    first: int | None = None
    total: int | None = None

    @property
    def last(self) -> int | None:
        return None if self.first is None else self.first + len(self.rows) - 1


def read_value(field: Any, text: str) -> Any:
    """A value of the model's field, from a text. Raises `ValueError`."""
    if "\0" in text:
        raise ValueError("A NUL is no value.")
    try:
        value = field.to_python(text)
    except (ValidationError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("A time needs its zone.")
    return value


def load_page(
    rows: QuerySet[Any] | Sequence[Any],
    order: KeysetOrder,
    size: int,
    *,
    position: KeysetPosition | None = None,
    number: int = 1,
    counted: bool = True,
) -> KeysetPage:
    """The rows beside the position; without one those of a numbered page, as old addresses have."""
    if not isinstance(rows, QuerySet):
        return _sequence_page(sort_rows(rows, order), order, size, position, number)
    total = rows.order_by().values("pk")[: MOST_COUNTED + 1].count() if counted else None
    if position is None:
        return _numbered_page(_ordered(rows, order), size, number, total)
    forward = position.below == order.descending
    beyond = _filter_side(rows, order, position)
    found = list(_ordered(beyond, order, backwards=not forward)[: size + 1])
    more = len(found) > size
    if not forward and not more:
        return load_page(rows, order, size, counted=counted)
    first = None
    if total is not None and total <= MOST_COUNTED:
        there = beyond.order_by().values("pk")[: MOST_COUNTED + 1].count()
        first = (total - there if forward else there - size) + 1
    shown = found[:size] if forward else found[:size][::-1]
    # Backwards, `more` precede, and the row that the position names follows.
    return KeysetPage(shown, True, more or not forward, first, total)


def count_at_most(rows: QuerySet[Any], most: int = 99) -> int | str:
    """How many there are, or that there are more than `most`: "99+"."""
    count = rows.order_by().values("pk")[: most + 1].count()
    return count if count <= most else f"{most}+"


def sort_rows(rows: Sequence[Any], order: KeysetOrder) -> Sequence[Any]:
    """A sequence that is in order may make its rows when they are read."""
    if order.field is None:
        return rows
    return sorted(rows, key=lambda row: _key(row, order), reverse=order.descending)


def _numbered_page(rows: QuerySet[Any], size: int, number: int, total: int | None) -> KeysetPage:
    start = min((number - 1) * size, _MOST_OFFSET)
    found = list(rows[start : start + size + 1])
    if not found and start:
        return _numbered_page(rows, size, 1, total)
    first = None if total is None else start + 1
    return KeysetPage(found[:size], start > 0, len(found) > size, first, total)


def _sequence_page(
    rows: Sequence[Any], order: KeysetOrder, size: int, position: KeysetPosition | None, number: int
) -> KeysetPage:
    start = min(number - 1, max(0, len(rows) - 1) // size) * size
    if position is not None and order.field is not None:
        start = _start_beside(rows, order, size, position)
    shown = list(rows[start : start + size])
    return KeysetPage(shown, start > 0, start + size < len(rows), start + 1, len(rows))


def _start_beside(
    rows: Sequence[Any], order: KeysetOrder, size: int, position: KeysetPosition
) -> int:
    """The index of the page's first row; 0 for a position that cannot be read."""
    upwards = rows[::-1] if order.descending else rows
    keys = [_key(row, order) for row in upwards]
    try:
        wanted = _read_key(position, order, upwards)
    except ValueError:
        return 0
    below, above = bisect_left(keys, wanted), len(keys) - bisect_right(keys, wanted)
    there = below if position.below else above
    forward = position.below == order.descending
    return len(rows) - there if forward else max(0, there - size)


def _read_key(position: KeysetPosition, order: KeysetOrder, rows: Sequence[Any]) -> tuple[Any, str]:
    """Raises `ValueError`."""
    if position.value is None:
        same = [row for row in rows if str(_attribute(row, order.place)) == position.place]
        if order.field != order.place and not same:
            raise ValueError("The row is gone.")
        value = order.value_of(same[0]) if same else position.place
    else:
        kind = type(order.value_of(rows[0])) if rows else str
        value = datetime.fromisoformat(position.value) if kind is datetime else kind(position.value)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError("A time needs its zone.")
    return value, position.place


def _key(row: Any, order: KeysetOrder) -> tuple[Any, str]:
    return order.value_of(row), str(_attribute(row, order.place))


def _ordered(rows: QuerySet[Any], order: KeysetOrder, *, backwards: bool = False) -> QuerySet[Any]:
    sign = "-" if order.descending != backwards else ""
    return rows.order_by(*(sign + name for name in dict.fromkeys([str(order.field), order.place])))


def _filter_side(
    rows: QuerySet[Any], order: KeysetOrder, position: KeysetPosition
) -> QuerySet[Any]:
    """The rows below or above the position; none where it cannot be read."""
    side, field = "lt" if position.below else "gt", str(order.field)
    try:
        place = read_value(_field_of(rows, order.place), position.place)
        if field == order.place:
            return rows.filter(**{f"{field}__{side}": place})
        if position.value is None:
            value = rows.filter(**{order.place: place}).values_list(field, flat=True).first()
        else:
            value = read_value(_field_of(rows, field), position.value)
    except ValueError:
        return rows.none()
    if value is None:
        return rows.none()
    same = Q(**{field: value, f"{order.place}__{side}": place})
    # The second condition is the one that an index begins with.
    return rows.filter(Q(**{f"{field}__{side}": value}) | same, **{f"{field}__{side}e": value})


def _field_of(rows: QuerySet[Any], path: str) -> Any:
    if path in rows.query.annotations:
        return rows.query.annotations[path].output_field
    field, model = None, rows.model
    for name in path.split("__"):
        meta: Any = model._meta
        field = meta.pk if name == "pk" else meta.get_field(name)
        model = field.related_model
    return field


def _attribute(row: Any, path: str) -> Any:
    return reduce(getattr, path.split("__"), row)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
