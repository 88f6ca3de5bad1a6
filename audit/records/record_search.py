"""Search of records. Every search stays in one organization.

The newest of what fits is looked for first among the newest two thousand records, in their order:
that answers whatever is common. What is not common enough is found by intersecting the lists of the
inverted index (migrations 0007 and 0013), and sorted. Pages follow a position, so a late one costs
what the first does.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from audit.models import AuditRecord
from audit.records import payloads

SEARCH_FIELDS = ("agent", "actor", "tool", "execution", "outcome", "reason", "request", "code",
                 "since", "until", "q")  # fmt: skip
MOST_SCANNED = 2_000
_LONGEST = 200
_MOST_WORDS = 10
_WORD = re.compile(r"[^\W_]+")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_TERMS = (
    "audit_terms(r.organization, r.code, r.outcome, r.reason, r.actor, r.subject, r.request_id,"
    " r.details)"
)
_INDEXED = _TERMS.replace("audit_terms", "audit_indexed")
_COLUMNS = (
    "r.id, r.occurred_at, r.organization, r.actor, r.subject, r.execution_id, r.code, r.outcome,"
    " r.reason, r.request_id"
)
_TEXT = "lower(concat_ws(' ', r.code, r.actor, r.subject, r.reason, r.details))"
_WORDS = "array_remove(audit_words(%s), '')"


class BadPosition(Exception):
    """An invalid cursor."""


@dataclass(frozen=True, slots=True)
class Position:
    """Beside a record; `upward` is towards the newer ones."""

    at: datetime
    id: UUID
    upward: bool = False

    @classmethod
    def from_record(cls, record: AuditRecord, *, upward: bool = False) -> Self:
        return cls(record.occurred_at, record.pk, upward)

    @property
    def cursor(self) -> str:
        text = f"{'up' if self.upward else 'down'} {self.at.isoformat()} {self.id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def read(cls, cursor: str) -> Self:
        """Raises `BadPosition`."""
        try:
            text = base64.urlsafe_b64decode(cursor.encode()).decode()
            way, at, identifier = text.split(" ")
            moment = datetime.fromisoformat(at)
            if way not in {"up", "down"} or moment.tzinfo is None:
                raise BadPosition
            return cls(moment.astimezone(UTC), UUID(identifier), way == "up")
        except (binascii.Error, ValueError, OverflowError):
            raise BadPosition from None


# Below every record.
OLDEST = Position(datetime.min.replace(tzinfo=UTC), UUID(int=0), upward=True)


@dataclass(frozen=True)
class SqlClause:
    """A condition over `r`, and its parameters."""

    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RecordSearch:
    """The filters of a search. `text` has words of a record or, where `opened`, of its input and
    output."""

    organization: str
    code: str = ""
    actor: str = ""
    tool: str = ""
    execution: UUID | None = None
    outcome: str = ""
    reason: str = ""
    request: str = ""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    opened: bool = False
    flaws: dict[str, str] = field(default_factory=dict)

    @cached_property
    def indexed_clauses(self) -> list[SqlClause]:
        """What an index holds in the order of time."""
        named = [
            ("r.organization = %s", self.organization),
            ("r.actor = %s", self.actor),
            ("r.subject = %s", self.tool),
            ("r.execution_id = %s", self.execution),
            ("r.occurred_at >= %s", self.since),
            ("r.occurred_at < %s", self.until),
        ]
        return [SqlClause(sql, (value,)) for sql, value in named if value]

    @cached_property
    def column_clauses(self) -> list[SqlClause]:
        named = [
            ("r.code LIKE %s", _family_pattern(self.code)),
            ("r.code = %s", "" if _family_pattern(self.code) else self.code),
            ("r.outcome = %s", self.outcome),
            ("r.reason = %s", self.reason),
            ("r.request_id = %s", self.request),
        ]
        return [SqlClause(sql, (value,)) for sql, value in named if value]

    @cached_property
    def word_clauses(self) -> list[SqlClause]:
        return [_words_clause(self)] if self.text else []

    @property
    def terms(self) -> list[str]:
        """What one entry of the inverted index each stands for, beside words."""
        named = [("outcome", self.outcome), ("request", self.request)]
        return [f"{name}:{value}" for name, value in named if value]

    @property
    def words(self) -> str:
        """A text with all words that what fits has in its columns and details."""
        return " ".join((self.code, self.reason, self.actor, self.tool, self.text))

    @cached_property
    def marks(self) -> list[bytes]:
        words = _WORD.findall(self.text.lower())
        return [payloads.word_mark(self.organization, word) for word in words]

    @property
    def filters(self) -> dict[str, str]:
        """The filters, by the names that a query has for them."""
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        kept = {name: value for name, value in shown.items() if value and name not in _NO_FILTERS}
        return {
            _QUERY_NAMES.get(name, name): value.isoformat()
            if isinstance(value, datetime)
            else str(value)
            for name, value in kept.items()
        }


_QUERY_NAMES = {"text": "q"}
_NO_FILTERS = frozenset({"organization", "opened", "flaws"})


def organization_records(organization: str) -> QuerySet[AuditRecord]:
    return AuditRecord.objects.filter(organization=organization)


def read_search(organization: str, query: Mapping[str, str], *, opened: bool = False,
         zone: Any = None) -> RecordSearch:  # fmt: skip
    """What a query asks for; `flaws` says of each field what cannot be read, and leaves it out.

    `zone` is that of a time without one; without it such a time is a flaw.
    """
    flaws: dict[str, str] = {}
    texts = {name: _read_text(name, query.get(name, ""), flaws) for name in SEARCH_FIELDS}
    return RecordSearch(
        organization,
        code=texts["code"],
        actor=texts["actor"] or texts["agent"],
        tool=texts["tool"],
        execution=_read_identifier(texts["execution"], flaws),
        outcome=texts["outcome"],
        reason=texts["reason"],
        request=texts["request"],
        since=_read_time("since", texts["since"], zone, flaws),
        until=_read_time("until", texts["until"], zone, flaws),
        text=_read_words(texts["q"], flaws),
        opened=opened,
        flaws=flaws,
    )


def search_page(
    search: RecordSearch, size: int, position: Position | None = None
) -> list[AuditRecord]:
    """At most `size` records, the newest first: those after the position, or before it where it
    looks upward."""
    found = _search_by_time(search, size, position)
    if len(found) < size and (search.column_clauses or search.text) and _has_more(search, position):
        found = _search_by_index(search, size, position)
    rows = AuditRecord.objects.filter(pk__in=found)
    return sorted(rows, key=lambda row: (row.occurred_at, row.pk), reverse=True)


def ascending_ids(
    search: RecordSearch, size: int, after: tuple[datetime, UUID] | None
) -> SqlClause:
    """The statement of the next `size` ids and times from the oldest on."""
    position = Position(*after, upward=True) if after else None
    clauses = [
        *search.indexed_clauses,
        *search.column_clauses,
        *search.word_clauses,
        *_position_clause(position),
    ]
    where, values = _conjunction(clauses)
    sql = (
        f"SELECT r.occurred_at, r.id FROM audit_auditrecord r WHERE {where}"  # noqa: S608
        " ORDER BY r.occurred_at, r.id LIMIT %s"
    )
    return SqlClause(sql, (*values, size))


def tally_newest(search: RecordSearch) -> list[tuple[str, str, str]]:
    """Code, outcome and actor of what fits among the newest by time: what is cheap to count.
    Words are not looked for; each would cost as much again."""
    near, near_values = _conjunction(search.indexed_clauses)
    where, values = _conjunction(search.column_clauses)
    sql = (
        "SELECT r.code, r.outcome, r.actor FROM (SELECT r.* FROM audit_auditrecord r"  # noqa: S608
        f" WHERE {near} ORDER BY {_order_sql(None)} LIMIT %s) r WHERE {where}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, (*near_values, MOST_SCANNED, *values))
        return list(cursor.fetchall())


def replace_filters(search: RecordSearch, **changes: Any) -> RecordSearch:
    return replace(search, **changes)


def _search_by_time(search: RecordSearch, size: int, position: Position | None) -> list[UUID]:
    """Among the next two thousand by time, which is where anything common is found."""
    near, near_values = _conjunction([*search.indexed_clauses, *_position_clause(position)])
    where, values = _conjunction([*search.column_clauses, *search.word_clauses])
    order = _order_sql(position)
    sql = (
        "SELECT r.id FROM (SELECT r.* FROM audit_auditrecord r"  # noqa: S608
        f" WHERE {near} ORDER BY {order} LIMIT %s) r WHERE {where} ORDER BY {order} LIMIT %s"
    )
    return _read_ids(SqlClause(sql, (*near_values, MOST_SCANNED, *values, size)))


def _has_more(search: RecordSearch, position: Position | None) -> bool:
    """Whether there are others by time than those already looked through."""
    near, values = _conjunction([*search.indexed_clauses, *_position_clause(position)])
    sql = (
        f"SELECT r.id FROM audit_auditrecord r WHERE {near}"  # noqa: S608
        f" ORDER BY {_order_sql(position)} OFFSET %s LIMIT 1"
    )
    return bool(_read_ids(SqlClause(sql, (*values, MOST_SCANNED))))


def _search_by_index(search: RecordSearch, size: int, position: Position | None) -> list[UUID]:
    """All that fits by the inverted indexes, sorted.

    Each index is texts by itself, or PostgreSQL would walk along time and compute for every record
    what the index holds already.
    """
    terms = f"{_INDEXED} @> audit_hashes(%s, %s::text[] || {_WORDS})"
    values: list[Any] = [search.organization, search.terms, search.words]
    found = f"SELECT {_COLUMNS} FROM audit_auditrecord r WHERE {terms}"  # noqa: S608
    where, near = _conjunction(
        [*search.indexed_clauses, *search.column_clauses, *_position_clause(position)]
    )
    named, kept = "", ""
    if search.text and search.opened:
        more = _payload_clause(search, position)
        named = (
            ", p AS MATERIALIZED"
            " (SELECT record_id FROM audit_auditpayload"
            " WHERE words @> %s::bytea[] AND words <> '{}')"
        )
        kept = f" UNION {more.sql}"
        values, near = [*values, search.marks], (*near, *more.values)
    sql = (
        f"WITH r AS MATERIALIZED ({found}){named}"  # noqa: S608
        f" SELECT id FROM (SELECT r.id, r.occurred_at FROM r WHERE {where}{kept}) r"
        f" ORDER BY {_order_sql(position)} LIMIT %s"
    )
    return _read_ids(SqlClause(sql, (*values, *near, size)))


def _payload_clause(search: RecordSearch, position: Position | None) -> SqlClause:
    """By what went in or came out, which `p` holds."""
    where, values = _conjunction(
        [*search.indexed_clauses, *search.column_clauses, *_position_clause(position)]
    )
    sql = (
        "SELECT r.id, r.occurred_at FROM p"  # noqa: S608
        f" JOIN audit_auditrecord r ON r.id = p.record_id WHERE {where}"
    )
    return SqlClause(sql, values)


def _words_clause(search: RecordSearch) -> SqlClause:
    """The words in the record; a search for parts first, for it costs a tenth."""
    parts = [word.lower() for word in _ASCII_WORD.findall(search.text)]
    cheap = "".join(f"strpos({_TEXT}, %s) > 0 AND " for _ in parts)
    sql, values = f"({cheap}{_TERMS} @> {_WORDS})", (*parts, search.text)
    if not search.opened:
        return SqlClause(sql, values)
    kept = (
        "EXISTS (SELECT FROM audit_auditpayload p"
        " WHERE p.record_id = r.id AND p.words @> %s::bytea[])"
    )
    return SqlClause(f"({sql} OR {kept})", (*values, search.marks))


def _position_clause(position: Position | None) -> list[SqlClause]:
    if position is None:
        return []
    sign = ">" if position.upward else "<"
    return [SqlClause(f"(r.occurred_at, r.id) {sign} (%s, %s)", (position.at, position.id))]


def _order_sql(position: Position | None) -> str:
    way = "" if position and position.upward else " DESC"
    return f"r.occurred_at{way}, r.id{way}"


def _conjunction(clauses: list[SqlClause]) -> tuple[str, tuple[Any, ...]]:
    values = tuple(value for clause in clauses for value in clause.values)
    return " AND ".join(clause.sql for clause in clauses) or "true", values


def _read_ids(statement: SqlClause) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, statement.values)
        return [row[0] for row in cursor.fetchall()]


def _family_pattern(code: str) -> str:
    """A code that ends in a dot matches all that begin so."""
    if not code.endswith("."):
        return ""
    escaped = code.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{escaped}%"


def _read_text(name: str, text: str, flaws: dict[str, str]) -> str:
    text = text.strip()
    if "\x00" in text or len(text) > _LONGEST:
        flaws[name] = f"must be text of at most {_LONGEST} characters, without NUL"
        return ""
    return text


def _read_identifier(text: str, flaws: dict[str, str]) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        flaws["execution"] = "is not an identifier; copy it from the execution"
        return None


def _read_time(name: str, text: str, zone: Any, flaws: dict[str, str]) -> datetime | None:
    if not text:
        return None
    try:
        moment = parse_datetime(text)
        if moment is not None and moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    flaws[name] = "must be a time such as 2026-01-31T12:00:00Z"
    return None


def _read_words(text: str, flaws: dict[str, str]) -> str:
    words = _WORD.findall(text)
    if text and not 1 <= len(words) <= _MOST_WORDS:
        flaws["q"] = f"must hold from 1 to {_MOST_WORDS} words"
        return ""
    return text
