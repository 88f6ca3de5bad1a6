"""Rows of a CSV text held against a table schema. Runs inside the sandbox.

The schema is Frictionless' Table Schema: `fields` with name, type and constraints, `primaryKey`,
`missingValues`; beside them `delimiter` and `additionalFields`.
"""

import csv
import datetime
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import patterns
import table_schema
from toolcrib import ToolError

LONGEST_CELL = 1024 * 1024
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "0"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(
    r"[+-]?([0-9]{1,4000}(\.[0-9]{0,4000})?|\.[0-9]{1,4000})([eE][+-]?[0-9]{1,4})?"
)
type Flaw = dict[str, object]


class TableField:
    """One column: from the text of a cell to what is wrong with it."""

    def __init__(self, given: dict[str, Any]) -> None:
        rules = given.get("constraints", {})
        self.name = given["name"]
        self.required = rules.get("required", False)
        self.seen: set[str] | None = set() if rules.get("unique") else None
        self._kind = given.get("type", "string")
        self._read = _READERS[self._kind]
        self._least = self._bound(rules.get("minimum"))
        self._most = self._bound(rules.get("maximum"))
        self._choices = {self._meant(choice): _text(choice) for choice in rules.get("enum", [])}
        words = {
            name: rules[name] for name in ("pattern", "minLength", "maxLength") if name in rules
        }
        self._words = jsonschema_rs.validator_for(
            _match_whole_cell(words), pattern_options=jsonschema_rs.RegexOptions()
        )

    def problem(self, cell: str) -> str | None:
        try:
            value = self._read(cell)
        except ValueError:
            return f"{_quote_cell(cell)} is no {self._kind}"
        if self._choices and value not in self._choices:
            return f"{_quote_cell(cell)} is none of {', '.join(self._choices.values())[:200]}"
        if self._least is not None and value < self._least:
            return f"{_quote_cell(cell)} is less than {self._least}"
        if self._most is not None and value > self._most:
            return f"{_quote_cell(cell)} is more than {self._most}"
        for error in self._words.iter_errors(cell):
            return str(error.message)[:500]
        return None

    def _bound(self, given: Any) -> Any:
        if given is None:
            return None
        if self._kind in {"string", "boolean", "any"}:
            raise ToolError(
                "SCHEMA_INVALID", f"{self.name}: a {self._kind} has no minimum, maximum."
            )
        return self._meant(given)

    def _meant(self, given: Any) -> Any:
        """The value of a column that the schema names. Raises ToolError."""
        try:
            return self._read(_text(given))
        except ValueError:
            raise ToolError(
                "SCHEMA_INVALID", f"{self.name}: {given!r} is no {self._kind}."
            ) from None


class Table:
    """A schema that was understood. Raises ToolError."""

    def __init__(self, schema: dict[str, Any]) -> None:
        validator = jsonschema_rs.validator_for(table_schema.SCHEMA)
        for error in validator.iter_errors(schema):
            place = "/".join(str(step) for step in error.instance_path)
            raise ToolError("SCHEMA_INVALID", f"/{place}: {error.message[:300]}")
        names = [given["name"] for given in schema["fields"]]
        if len(set(names)) < len(names):
            raise ToolError("SCHEMA_INVALID", "Two fields have the same name.")
        key = schema.get("primaryKey", [])
        self._key = [key] if isinstance(key, str) else key
        if unknown := set(self._key) - set(names):
            raise ToolError("SCHEMA_INVALID", f"primaryKey: {min(unknown)!r} is no field.")
        self._given = {given["name"]: given for given in schema["fields"]}
        self._missing = frozenset(schema.get("missingValues", [""]))
        self._delimiter = schema.get("delimiter", ",")
        self._open = schema.get("additionalFields", False)
        self._keys: set[tuple[str, ...]] = set()
        try:
            self._columns = {name: TableField(given) for name, given in self._given.items()}
        except ValueError as error:
            raise ToolError("SCHEMA_INVALID", schema_flaw(error)) from None

    def flaws(self, text: str) -> Iterator[Flaw]:
        """Of every row, in their order; `line` is where the row begins."""
        csv.field_size_limit(LONGEST_CELL)
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True)
        line, header = 1, None
        try:
            for row in rows:
                if header is None:
                    header = row
                    yield from self._wrong_header(header)
                elif row:
                    yield from self._wrong_row(header, row, line)
                line = rows.line_num + 1
        except csv.Error as error:
            yield _flaw("/", line, None, f"not CSV: {error}")
        if header is None:
            yield _flaw("/", 1, None, "there is no header")

    def _wrong_header(self, header: list[str]) -> Iterator[Flaw]:
        for name in self._given:
            if name not in header:
                yield _flaw("/", 1, None, f"the field {name!r} is missing in the header")
        for number, name in enumerate(header, 1):
            if name in header[: number - 1]:
                yield _flaw("/", 1, number, f"the field {name[:100]!r} is there twice")
            elif name not in self._given and not self._open:
                yield _flaw("/", 1, number, f"the schema knows no field {name[:100]!r}")

    def _wrong_row(self, header: list[str], row: list[str], line: int) -> Iterator[Flaw]:
        if len(row) != len(header):
            message = f"{len(row)} cells under a header of {len(header)}"
            yield _flaw(f"/{line}", line, None, message)
            return
        cells = dict(zip(header, row, strict=True))
        for number, name in enumerate(header, 1):
            if (column := self._columns.get(name)) is None:
                continue
            if (message := self._wrong_cell(column, row[number - 1])) is not None:
                yield _flaw(f"/{line}/{name}", line, number, message)
        if (message := self._wrong_key(cells)) is not None:
            yield _flaw(f"/{line}", line, None, message)

    def _wrong_cell(self, column: TableField, cell: str) -> str | None:
        if cell in self._missing:
            return "a value is required" if column.required else None
        if column.seen is not None:
            if cell in column.seen:
                return f"{_quote_cell(cell)} was there before and is to be unique"
            column.seen.add(cell)
        return column.problem(cell)

    def _wrong_key(self, cells: dict[str, str]) -> str | None:
        if not self._key:
            return None
        key = tuple(cells.get(name, "") for name in self._key)
        if key in self._keys:
            return f"the key {', '.join(key)[:200]!r} was there before"
        self._keys.add(key)
        return None


def schema_flaw(error: ValueError) -> str:
    """What is wrong with a schema; of a pattern what is not supported in it."""
    pattern = getattr(error, "instance", None)
    reason = patterns.unsupported_feature(pattern) if isinstance(pattern, str) else None
    return f"{pattern[:100]!r} {reason}" if reason else str(error).splitlines()[0][:400]


def _flaw(path: str, line: int, column: int | None, message: str) -> Flaw:
    return {"path": path, "line": line, "column": column, "message": message}


def _quote_cell(cell: str) -> str:
    return repr(cell if len(cell) <= 80 else f"{cell[:80]}…")


def _text(given: Any) -> str:
    """As a cell would have it."""
    return given if isinstance(given, str) else json.dumps(given)


def _match_whole_cell(words: dict[str, Any]) -> dict[str, Any]:
    """Table schemas mean the whole cell by a pattern, JSON Schema any part of it."""
    if "pattern" in words:
        words["pattern"] = f"^(?:{words['pattern']})$"
    return words


def _integer(cell: str) -> int:
    if not _INTEGER.fullmatch(cell):
        raise ValueError(cell)
    return int(cell)


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise ValueError(cell)
    return float(cell)


def _boolean(cell: str) -> bool:
    if cell not in _BOOLEANS:
        raise ValueError(cell)
    return _BOOLEANS[cell]


def _datetime(cell: str) -> datetime.datetime:
    """Without a zone it is meant in UTC."""
    found = datetime.datetime.fromisoformat(cell)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _time(cell: str) -> datetime.time:
    found = datetime.time.fromisoformat(cell)
    if found.tzinfo:
        raise ValueError(cell)  # times of different zones have no order
    return found


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "any": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": datetime.date.fromisoformat,
    "datetime": _datetime,
    "time": _time,
    "year": _integer,
}
