"""The source of a log for verification: a database, or rows in memory."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol
from uuid import UUID

from audit.log.leaves import COLUMNS
from audit.verification.verification_report import VerificationFinding

# Around the details, in the order of RFC 8785.
HEAD = COLUMNS[: COLUMNS.index("details")]
TAIL = COLUMNS[COLUMNS.index("details") + 1 :]
_QUOTES_IN_HEAD = 4 * len(HEAD) + 2
_QUOTES_IN_TAIL = 4 * len(TAIL)
_NO_EXECUTION = ',"execution_id":null,'
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class RecordRow(NamedTuple):
    """A leaf and its record. Without the record all from `at` on is None.

    `number` is the leaf's index. `at` is the record's time as eight bytes, in microseconds since
    2000; `head`, `details` and `tail` are its body where no field needs escaping.
    """

    number: int
    record_id: bytes
    hash: bytes
    mac: bytes
    at: bytes | None
    record_mac: bytes | None
    head: str | None
    details: str | None
    tail: str | None


RawRow = tuple[
    int, bytes, bytes, bytes, bytes | None, bytes | None, str | None, str | None, str | None
]


@dataclass(frozen=True, slots=True)
class UnsealedRecord:
    """A record without a leaf. `due` says that it should have had one long ago."""

    record_id: bytes
    at: bytes
    record_mac: bytes
    due: bool


@dataclass(frozen=True, slots=True)
class LogRow:
    size: int
    frontier: bytes


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint's row."""

    size: int
    root: bytes
    note: str


@dataclass(frozen=True, slots=True)
class ExportedRanges:
    """Ranges whose records were written to a file, and may have left; and what is wrong with files
    that are gone, or are not what was written."""

    ranges: list[tuple[int, int]]
    spoiled: list[VerificationFinding]


class LogSource(Protocol):
    """One log. `rows` come in the order of their indexes."""

    name: str

    def snapshot(self) -> AbstractContextManager[None]:
        """What is asked within is of one moment, and is asked without a pause."""

    def log(self) -> LogRow | None: ...
    def count(self) -> int:
        """How many leaves there are, at any position."""

    def rows(self, first: int, end: int) -> Sequence[RawRow]: ...
    def surplus_rows(self, end: int) -> Sequence[RawRow]:
        """The first leaves from that position on, a thousand at most."""

    def exact_body(self, record_id: bytes) -> bytes:
        """A record's body, for any content of its fields."""

    def nodes(self) -> dict[tuple[int, int], bytes]: ...
    def checkpoints(self, since: int = 0) -> Iterable[CheckpointRow]:
        """Those of `since` records and more that there were when the source was made."""

    def exported_ranges(self) -> ExportedRanges: ...
    def file_count(self) -> int:
        """How many files of records there are: one that is new lets further records leave."""

    def unsealed_records(self) -> list[UnsealedRecord]: ...
    def missing_payloads(self) -> Sequence[tuple[int | None, str]]:
        """Of records that commit to one, by index, and of which no erasure is on record."""

    def unfinished_calls(self) -> list[tuple[UUID, int | None]]:
        """Records of calls that began long ago and never ended, with their indexes."""


def raw_body(source: LogSource, record_id: bytes, head: str, details: str, tail: str) -> bytes:
    """As `audit.log.leaves.record_body` makes it. Three texts with no more quotation marks than
    necessary, and without a backslash, can have come of no other fields."""
    quotes = _QUOTES_IN_TAIL - 2 if tail.startswith(_NO_EXECUTION) else _QUOTES_IN_TAIL
    plain = head.count('"') == _QUOTES_IN_HEAD and tail.count('"') == quotes
    if plain and "\\" not in head and "\\" not in tail:
        return (head + details + tail).encode()
    return source.exact_body(record_id)


def in_ranges(index: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= index < end for first, end in ranges)


def decode_micros(at: bytes) -> int:
    return int.from_bytes(at, signed=True)


def hashed_leaf(body: bytes, mac: bytes, at: int) -> bytes:
    """What a leaf's hash is the SHA-256 of."""
    second, micros = divmod(at, 1_000_000)
    moment = b"%b%06dZ" % (_format_second(second), micros)
    return b'\x00{"mac":"%b","occurred_at":"%b","record":%b}' % (mac.hex().encode(), moment, body)


def format_time(at: int) -> str:
    return (_format_second(at // 1_000_000)[:-1] or b"beyond all calendars").decode()


@lru_cache(maxsize=4096)
def _format_second(seconds: int) -> bytes:
    """`2026-01-31T12:00:00.`; nothing for a time that no calendar has."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return b""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").encode()
