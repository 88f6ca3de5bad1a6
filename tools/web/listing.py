"""One list of rows, for every list of pages: filters, search, sorting, keyset pages, chips of the
active filters, live updates, the empty state, and a CSV file of all that the filters leave.

A list is a subclass of `Listing`; `SomeListing(request).respond()` answers its view. All that it
shows is in its address. `_parts/listing.html` draws it with the partials `row` and `empty` of its
template.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import batched
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from audit.export.export import csv_row
from tools.definitions.callers import Caller
from tools.web.keyset import (
    MOST_COUNTED,
    KeysetOrder,
    KeysetPage,
    KeysetPosition,
    load_page,
    sort_rows,
)
from tools.web.pages import PageRequest, page_or_results

MOST_EXPORTED = 10_000
_EXPORTED_AT_ONCE = 500
_PARTS = "_parts/listing.html"


@dataclass(frozen=True, slots=True)
class Column:
    """A column without a label is in the CSV file alone, one without `value` on the page alone.

    `value` reads a row as the page shows it, `sort` is a field of the queryset's rows that is never
    null, or a function of a sequence's rows.
    """

    name: str
    label: str = ""
    value: Callable[[Any], Any] | None = None
    sort: str | Callable[[Any], Any] | None = None
    css: str = ""
    tooltip: str = ""
    hidden: bool = False  # whether the label is for screen readers alone


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The heading of a column. `state` is its `aria-sort`, empty where it cannot be sorted."""

    column: Column
    state: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class FilterChip:
    """An active filter; its address is the list without it."""

    label: str
    value: str
    address: str


class Filters(forms.Form):
    """The filters of a list. What a field refuses is no filter."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given, auto_id="by-%s", use_required_attribute=False)
        for field in self.fields.values():
            field.required = False
        self.full_clean()
        kept = {name: self.cleaned_data.get(name) for name in self.fields}
        self.values: dict[str, Any] = {name: one for name, one in kept.items() if one}
        self.texts = {name: given[name] for name in self.values}

    @property
    def typed(self) -> list[forms.BoundField]:
        """The fields that are typed into."""
        return [field for field in self.visible_fields() if field.widget_type in {"text", "search"}]

    @property
    def trigger(self) -> str:
        """What makes htmx ask: typing, after a moment, and each choice."""
        typing = (f"input changed delay:250ms from:#{one.id_for_label}" for one in self.typed)
        return ", ".join([*typing, "change", "submit"])

    def value_text(self, name: str) -> str:
        """An active filter in words."""
        text, field = self.texts[name], self.fields[name]
        if isinstance(field, forms.ChoiceField):
            choices: Any = field.choices
            return str(dict(choices).get(text, text))
        return text


def search_field(placeholder: str, label: str = "Search") -> forms.CharField:
    attributes = {"type": "search", "id": "q", "placeholder": placeholder}
    return forms.CharField(label=label, widget=forms.TextInput(attributes))


def text_field(label: str, placeholder: str = "Exact name", **attributes: str) -> forms.CharField:
    """A filter that is typed."""
    attributes |= {"placeholder": placeholder, "spellcheck": "false"}
    return forms.CharField(label=label, widget=forms.TextInput(attributes))


def choice_field(label: str, choices: Any, *, every: str = "All") -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=[("", every), *choices])


def select_field(label: str, choices: Sequence[str] = ()) -> forms.CharField:
    """A filter by one of some values. Of another value there are no rows."""
    field = forms.CharField(label=label, widget=forms.Select)
    offer(field, choices)
    return field


def offer(field: forms.Field, choices: Iterable[str]) -> None:
    """The values that a `select_field` offers."""
    field.widget.choices = [("", "All"), *((one, one) for one in choices)]


class Listing:
    view: str  # the name of its address
    template: str
    columns: Sequence[Column] = ()
    filters: type[Filters] = Filters
    longest_filter = 200  # characters
    order = ""  # the column that it is sorted by at first; `-` is descending; empty: by relevance
    place = "pk"  # the attribute of rows that no two share
    page_size = 25
    counted = True  # rows up to `MOST_COUNTED`
    css = ""  # the table's class
    noun = "row"
    plural = ""
    live: str | None = None  # the topic of its live updates; empty: at intervals
    live_every_s = 10
    exported = True
    results = f"{_PARTS}#results"
    swaps = True  # whether htmx turns its pages
    above = below = False  # whether its template has partials of these names, around the rows

    def __init__(self, request: PageRequest) -> None:
        self.request = request
        given = {
            name: str(text).strip()[: self.longest_filter] for name, text in request.GET.items()
        }
        self.given = given
        self.filter = self.filters(given)
        self.values = self.filter.values
        self.fixed: dict[str, str] = {}  # what its addresses keep that is no filter
        self.build()
        self.sorting = given.get("sort", "")
        if self.sorting == self.usual_order or self.sorting.removeprefix("-") not in self._sorts:
            self.sorting = ""

    @property
    def caller(self) -> Caller:
        return self.request.caller

    # What a list says of itself.

    def build(self) -> None:
        """Where columns depend on the request."""

    def rows(self) -> QuerySet[Any] | Sequence[Any]:
        """All rows that the reader may see and the filters leave."""
        raise NotImplementedError

    def prepare(self, rows: list[Any]) -> list[Any]:
        """The rows of a page as they are shown, in a number of statements that does not grow."""
        return rows

    def mark(self, row: Any) -> str:
        """What of a row changes, for live updates."""
        return str(getattr(row, self.place))

    def context(self) -> dict[str, Any]:
        """What else the page shows."""
        return {}

    @property
    def usual_order(self) -> str:
        return self.order

    # What it answers.

    def respond(self, **more: Any) -> HttpResponseBase:
        """`more` is more context."""
        if self.exported and self.given.get("format") == "csv":
            return self._export()
        if self.request.htmx and "seen" in self.given and self.given["seen"] == self.fingerprint:
            return HttpResponse(status=204)  # nothing changed: the page keeps its scroll position
        context = {"listing": self, **self.context(), **more}
        return page_or_results(
            self.request, self.template, context, here=self.current_address, results=self.results
        )

    @cached_property
    def page(self) -> KeysetPage:
        return load_page(
            self.rows(),
            self._sort_order,
            self.page_size,
            position=self._position,
            number=self._number,
            counted=self.counted,
        )

    @cached_property
    def visible_rows(self) -> list[Any]:
        return self.prepare(self.page.rows)

    @cached_property
    def fingerprint(self) -> str:
        text = " ".join(self.mark(row) for row in self.page.rows)
        return hashlib.sha256(f"{text} {self.page.total}".encode()).hexdigest()[:16]

    @property
    def paged(self) -> bool:
        """Whether it begins beside a row, and not with the first."""
        return self._position is not None

    @property
    def is_live(self) -> bool:
        return self.live is not None and not self._paging

    @property
    def count(self) -> str:
        """How many rows there are, in words."""
        total = self.page.total or 0
        number = f"{total:,}" if total <= MOST_COUNTED else f"more than {MOST_COUNTED:,}"
        return f"{number} {self.noun if total == 1 else self.plural or f'{self.noun}s'}"

    @property
    def heads(self) -> list[ColumnHead]:
        return [self._head(one) for one in self.columns if one.label]

    @property
    def chips(self) -> list[FilterChip]:
        return [
            FilterChip(str(self.filter.fields[name].label), self.filter.value_text(name),
                       self.address(**{name: ""}))
            for name in self.values
        ]  # fmt: skip

    @property
    def hidden_inputs(self) -> list[tuple[str, str]]:
        """Hidden inputs with which the filters keep what else the address holds."""
        hidden = [(name, self.filter.texts[name]) for name in self.values
                  if self.filter.fields[name].widget.is_hidden]  # fmt: skip
        order = [("sort", self.sorting)] if self.sorting else []
        return [*self.fixed.items(), *hidden, *order]

    @property
    def partials(self) -> dict[str, str]:
        return {name: f"{self.template}#{name}" for name in ("row", "empty", "above", "below")}

    def address(self, **changes: str) -> str:
        """The list with these filters and in this order, from its first row."""
        query = {**self.fixed, **self.filter.texts, "sort": self.sorting, **changes}
        query = {name: text for name, text in query.items() if text}
        return self.bare_address + (f"?{urlencode(query)}" if query else "")

    @property
    def bare_address(self) -> str:
        match = self.request.resolver_match
        return reverse(self.view, kwargs=match.kwargs if match else {})

    @property
    def clear(self) -> str:
        """The list without filters."""
        return self.bare_address + (f"?{urlencode(self.fixed)}" if self.fixed else "")

    @property
    def current_address(self) -> str:
        return self.address(**self._paging)

    @property
    def start(self) -> str:
        return self.address()

    @property
    def live_address(self) -> str:
        return self.address(seen=self.fingerprint)

    @property
    def csv_address(self) -> str:
        return self.address(format="csv")

    @property
    def previous(self) -> str:
        if not self.page.precede:
            return ""
        if self._sort_order.field is None:
            number = (self.page.first or 1) // self.page_size + 1
            return self.address(page=str(number - 1) if number > 2 else "")
        return self._position_address(self.page.rows[0], forward=False)

    @property
    def next(self) -> str:
        if not self.page.follow:
            return ""
        if self._sort_order.field is None:
            return self.address(page=str((self.page.first or 1) // self.page_size + 2))
        return self._position_address(self.page.rows[-1], forward=True)

    # How.

    @cached_property
    def _sorts(self) -> dict[str, Any]:
        return {one.name: one.sort for one in self.columns if one.sort}

    @cached_property
    def _sort_order(self) -> KeysetOrder:
        wanted = self.sorting or self.usual_order
        field = self._sorts[wanted.removeprefix("-")] if wanted else None
        return KeysetOrder(field, self.place, wanted.startswith("-"))

    @cached_property
    def _position(self) -> KeysetPosition | None:
        for name in ("before", "after"):
            if place := self.given.get(name):
                return KeysetPosition(place, name == "before", self.given.get("at"))
        return None

    @property
    def _number(self) -> int:
        """The page's number, which addresses by relevance and old ones have."""
        text = self.given.get("page", "")
        return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 7 else 1

    @property
    def _paging(self) -> dict[str, str]:
        names = ("before", "after", "at", "page")
        return {name: self.given[name] for name in names if self.given.get(name)}

    def _position_address(self, row: Any, *, forward: bool) -> str:
        found = self._sort_order.position(row, forward=forward)
        name = "before" if found.below else "after"
        return self.address(**{name: found.place, "at": found.value or ""})

    def _head(self, column: Column) -> ColumnHead:
        if not column.sort:
            return ColumnHead(column)
        now, up, down = self.sorting or self.usual_order, column.name, f"-{column.name}"
        wanted = down if now == up or (now != down and self.order == down) else up
        state = "ascending" if now == up else "descending" if now == down else "none"
        return ColumnHead(
            column, state, self.address(sort="" if wanted == self.usual_order else wanted)
        )

    def _export(self) -> StreamingHttpResponse:
        columns = [one for one in self.columns if one.value]
        name = f"{self.view}-{timezone.now():%Y-%m-%d-%H%M%S}.csv"
        return StreamingHttpResponse(
            self._csv_lines(columns),
            content_type="text/csv; charset=utf-8; header=present",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    def _csv_lines(self, columns: Sequence[Column]) -> Iterator[bytes]:
        yield csv_row(one.name for one in columns)
        for rows in self._exported_rows():
            for row in self.prepare(rows):
                yield csv_row(_cell(one.value(row)) for one in columns if one.value)

    def _exported_rows(self) -> Iterator[list[Any]]:
        """By keyset, so that no statement is long."""
        rows, order, position = self.rows(), self._sort_order, None
        if not isinstance(rows, QuerySet):
            yield from map(list, batched(sort_rows(rows, order)[:MOST_EXPORTED], _EXPORTED_AT_ONCE))
            return
        for _ in range(MOST_EXPORTED // _EXPORTED_AT_ONCE):
            page = load_page(rows, order, _EXPORTED_AT_ONCE, position=position, counted=False)
            if page.rows:
                yield page.rows
            if not page.follow:
                return
            position = order.position(page.rows[-1], forward=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
