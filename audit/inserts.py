"""Insert rows without building model objects, for the rows that every call writes.

The object-relational mapper spends three times as long on an insert as the database does, and each
statement costs a round trip: the rows of one call are written by one statement.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, cast

from django.db import connection, models
from django.db.backends.utils import CursorWrapper
from psycopg import RawCursor
from psycopg.types.json import Json, Jsonb

_PARAMETER = re.compile(r"%\((\w+)\)s")
_LENGTH = re.compile(r"\(\d+\)")


class SqlValue(NamedTuple):
    """A value that the database works out, such as its own time."""

    expression: str


InsertRow = tuple[type[models.Model], Mapping[str, Any]]


def insert_row(model: type[models.Model], values: Mapping[str, Any]) -> None:
    """Insert one row. Keys are columns; a dict or a JSON list is given as `Jsonb`."""
    insert_rows((model, values))


def insert_rows(*rows: InsertRow) -> None:
    """Insert a row into each of several tables by one statement: each costs a round trip to the
    server."""
    shapes = tuple((model, tuple(values)) for model, values in rows)
    values = [item for _, row in rows for item in row.values()]
    with raw_cursor() as cursor:
        cursor.execute(_statements(shapes), values)


def fetch_one(statement: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The first row that the statement returns. Parameters are named, as in `%(name)s`.

    For long statements of every call: the driver reads others again each time, to find their
    parameters.
    """
    text, names = numbered(statement)
    with raw_cursor() as cursor:
        cursor.execute(text, [values[name] for name in names])
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found


def raw_cursor() -> CursorWrapper:
    """Of Django, over one of the driver for statements whose parameters are numbered."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        cursor = cast(CursorWrapper, RawCursor(connection.connection))
    if connection.queries_logged:
        return connection.make_debug_cursor(cursor)
    return connection.make_cursor(cursor)


@lru_cache(maxsize=256)
def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}"

    text = _PARAMETER.sub(number, statement)
    return text, tuple(names)


def inserts_for_each(
    source: str, rows: Sequence[InsertRow], returning: str = "id"
) -> tuple[str, dict[str, Any]]:
    """Parts of a `WITH` that insert the rows once for each row of `source`, a part before them;
    each ends with a comma. And their parameters, by name.

    The parts are called `row0` and so on; the first returns these columns of its row.
    """
    shapes = tuple(
        (model, tuple((column, _expression(value)) for column, value in values.items()))
        for model, values in rows
    )
    values = {
        f"{number}_{column}": value
        for number, (_, row) in enumerate(rows)
        for column, value in row.items()
        if not isinstance(value, SqlValue)
    }
    return _parts_for_each(source, shapes, returning), values


def _expression(value: Any) -> str:
    """Empty for what is a parameter."""
    return value.expression if isinstance(value, SqlValue) else ""


def json_value(value: Any) -> Jsonb:
    """As Django's own fields are written."""
    return cast(Jsonb, connection.ops.adapt_json_value(value, None))


def json_text(text: bytes) -> Json:
    """For a column of the type `json`, which keeps the exact text."""
    return Json(text, dumps=bytes.decode)


@lru_cache(maxsize=64)
def _statements(shapes: tuple[tuple[type[models.Model], tuple[str, ...]], ...]) -> str:
    places = count(1)
    *before, last = (_statement(*shape, places) for shape in shapes)
    first = ", ".join(f"row{place} AS ({each})" for place, each in enumerate(before))
    return f"WITH {first} {last}" if first else last


def _statement(model: type[models.Model], columns: tuple[str, ...], places: Iterator[int]) -> str:
    marks = ", ".join(f"${next(places)}" for _ in columns)
    return f"{_target(model, columns)} VALUES ({marks})"


def _target(model: type[models.Model], columns: tuple[str, ...]) -> str:
    known = {field.column for field in model._meta.local_concrete_fields}
    if not known.issuperset(columns):
        raise LookupError(f"{model.__name__} has no column {set(columns) - known}")
    names = ", ".join(f'"{column}"' for column in columns)
    return f'INSERT INTO "{model._meta.db_table}" ({names})'


@lru_cache(maxsize=64)
def _parts_for_each(
    source: str,
    shapes: tuple[tuple[type[models.Model], tuple[tuple[str, str], ...]], ...],
    returning: str,
) -> str:
    parts = []
    for number, (model, columns) in enumerate(shapes):
        types = {field.column: field.db_type(connection) for field in model._meta.local_fields}
        # Without its length: a cast to it would cut off what an insert refuses.
        values = ", ".join(
            expression or f"%({number}_{column})s::{_LENGTH.sub('', types[column] or '')}"
            for column, expression in columns
        )
        insert = _target(model, tuple(column for column, _ in columns))
        back = "" if number else f" RETURNING {returning}"
        parts.append(f"row{number} AS ({insert} SELECT {values} FROM {source}{back}), ")  # noqa: S608
    return "".join(parts)
