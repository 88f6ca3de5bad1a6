"""Verify checkpoints and anchors: their signatures, and that the log matches them.

Trusted keys are never taken from the database, nor from the notes: an attacker can add a signature
below one. The caller gives every key, including former ones. A log may have millions of both, so
they are read in batches, and what they say is kept in a temporary file.
"""

import base64
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import batched

from audit.log import checkpoints
from audit.log.checkpoint_retention import KEEP_ALL_FOR
from audit.log.checkpoints import BadNote, CheckpointStatement
from audit.verification.chunks import SigningClock
from audit.verification.log_source import CheckpointRow
from audit.verification.verification_report import (
    MOST_FINDINGS,
    FindingKind,
    VerificationFinding,
    VerifiedTree,
)

Trusted = Mapping[str, bytes]
BATCH = 1000
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_NEVER = -(1 << 62)
_MOST_SIZE = (1 << 63) - 1
# One row for each note. `agrees`: whether the tree has that root at that size, once that is known.
_SCHEMA = """
PRAGMA journal_mode = OFF;
CREATE TABLE signed (
    digest BLOB PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, at INTEGER NOT NULL,
    noted INTEGER NOT NULL DEFAULT 0, anchored INTEGER NOT NULL DEFAULT 0, agrees INTEGER
) WITHOUT ROWID;
CREATE INDEX signed_by_size ON signed (size, at);
CREATE INDEX signed_by_time ON signed (at, size);
CREATE TABLE unreadable (size INTEGER NOT NULL, root BLOB NOT NULL);
"""
_ADD_SQL = """
INSERT INTO signed (digest, size, root, at, noted, anchored) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET
    noted = max(noted, excluded.noted), anchored = max(anchored, excluded.anchored)
"""
_UNMATCHED_SQL = """
SELECT DISTINCT size FROM signed a
WHERE {there} = 1 AND {gone} = 0 AND at >= :until AND agrees = 1 AND size <= :sound
    AND (size, at) < (:size, :at)
    AND NOT EXISTS (SELECT 1 FROM signed k
        WHERE a.at < :day AND k.{gone} = 1 AND k.size >= a.size
            AND k.at >= a.at - a.at % :hour AND k.at < a.at - a.at % :hour + :hour)
    AND NOT EXISTS (SELECT 1 FROM unreadable u WHERE u.size = a.size AND u.root = a.root)
ORDER BY size LIMIT :most
"""
_CLOCK_SQL = """
SELECT size, min(at), max(at) FROM signed WHERE at >= :until AND size > :first AND size <= :end
    AND (NOT :agreed OR (agrees = 1 AND size <= :sound))
GROUP BY size ORDER BY size
"""


@dataclass(frozen=True, slots=True)
class PublishedNote:
    """An anchor."""

    note: str


@dataclass(frozen=True, slots=True)
class StatementComparison:
    """Statements of one group with the tree: the smallest size at which they differ, and the
    largest below at which one agrees; the largest size beyond the tree, and whether the database
    itself has a checkpoint beyond it."""

    forked: int | None
    agreed: int | None
    ahead: int | None
    ahead_noted: bool


@dataclass(frozen=True, slots=True)
class UncheckedNote:
    """What is to be checked: a note, and what its row in the database says besides."""

    note: str
    row: tuple[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    unread: UncheckedNote
    digest: bytes
    statement: CheckpointStatement | None
    flaw: tuple[FindingKind, str] | None = None


Batch = list[UncheckedNote]
Spread = Callable[
    [Callable[[Batch], list[ParsedStatement]], Iterable[Batch]], Iterable[list[ParsedStatement]]
]


class Statements:
    """All that was signed of a log, each note once; and what is wrong with any."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN")
        self.findings: list[VerificationFinding] = []
        self.notes = self.anchors = 0
        self.acceptance = ""
        self._until = _NEVER

    def close(self) -> None:
        self._database.close()

    def add_published(self, read: ParsedStatement) -> None:
        if read.statement is None:
            self._add_bad(read, _note_size(read.unread.note), "an anchor")
            return
        self.anchors += 1
        at = self._add(read.digest, read.statement, anchored=True)
        if read.statement.accepted and at > self._until:
            self._until = at
            accepted = read.statement.accepted
            self.acceptance = f"accepted by {accepted.by}: {accepted.reason}"

    def add_noted(self, read: ParsedStatement) -> None:
        size, root = read.unread.row or (0, b"")
        if read.statement is None:
            self._database.execute("INSERT INTO unreadable VALUES (?, ?)", [size, root])
            self._add_bad(read, size, "a checkpoint")
            return
        self._add(read.digest, read.statement, noted=True)
        self.compare_row(size, root, read.statement.size, read.statement.root)

    def compare_row(self, size: int, root: bytes, said_size: int, said_root: bytes) -> None:
        if (size, root) != (said_size, said_root):
            self._database.execute("INSERT INTO unreadable VALUES (?, ?)", [size, root])
            says = "a checkpoint: its row does not say what was signed"
            self._add_finding(VerificationFinding(FindingKind.BAD_SIGNATURE, said_size, says))

    def find_note(self, note: str) -> tuple[int, bytes] | None:
        """Size and root of a note that was read before, which is noted now: it is not checked
        again."""
        digest = _digest(note)
        found: tuple[int, bytes] | None = self._database.execute(
            "SELECT size, root FROM signed WHERE digest = ?", [digest]
        ).fetchone()
        if found is not None:
            self._database.execute("UPDATE signed SET noted = 1 WHERE digest = ?", [digest])
        return found

    def add_verified(self, base: VerifiedTree) -> None:
        """What an earlier verification found counts like a signed statement."""
        values = [b"verified", base.size, base.root, _to_micros(base.at), 0, 0]
        self._database.execute(_ADD_SQL, values)

    def size(self) -> int:
        """Of the largest tree that was vouched for, and not given up since."""
        return self._largest("at >= :until") or 0

    def before_break(self, at: datetime) -> bool:
        return _to_micros(at) < self._until

    def marks(self, first: int, end: int) -> list[int]:
        """The sizes from `first` on up to `end`, without `first` itself."""
        rows = self._database.execute(
            "SELECT DISTINCT size FROM signed WHERE size > ? AND size <= ? ORDER BY size",
            [first, min(end, _MOST_SIZE)],
        )
        return [size for (size,) in rows]

    def compare(self, size: int, root: bytes) -> None:
        """With the tree, which has that root at that size."""
        self._database.execute("UPDATE signed SET agrees = (root = ?) WHERE size = ?", [root, size])

    def clock(self, first: int, end: int, sound: int | None = None) -> SigningClock:
        """What is to be known of the times of records from `first` on up to `end`; with `sound`,
        by the statements alone that agree with the tree up to there."""
        values = {"until": self._until, "agreed": sound is not None, "sound": sound or 0}
        low = self._edge("max(size)", "size <= :edge", first, values)
        high = self._edge("min(size)", "size > :edge", end, values)
        span = {"first": _NEVER if low is None else low - 1, "end": end if high is None else high}
        return SigningClock(self._database.execute(_CLOCK_SQL, {**values, **span}).fetchall())

    def _edge(self, what: str, where: str, edge: int, values: Mapping[str, object]) -> int | None:
        statement = f"""SELECT {what} FROM signed WHERE at >= :until AND {where}
            AND (NOT :agreed OR (agrees = 1 AND size <= :sound))"""  # noqa: S608
        found: int | None = self._database.execute(statement, {**values, "edge": edge}).fetchone()[
            0
        ]
        return found

    def compare_group(self, *, before_break: bool, reach: int, sound: int) -> StatementComparison:
        """`reach` leaves there are; up to `sound` their tree can tell."""
        group = "at < :until" if before_break else "at >= :until"
        forked = self._smallest(f"{group} AND agrees = 0 AND size <= :sound", sound=sound)
        agreed = None
        if forked is not None:
            below = f"{group} AND agrees = 1 AND size <= :sound AND size < :forked"
            agreed = self._largest(below, sound=sound, forked=forked)
        beyond = f"{group} AND size > :reach"
        ahead = self._largest(beyond, reach=reach)
        noted = self._largest(f"{beyond} AND noted = 1", reach=reach)
        return StatementComparison(forked, agreed, ahead, noted is not None)

    def missing_checkpoints(self, sound: int) -> list[int]:
        """Sizes of checkpoints that were published, are not in the database, and were not thinned:
        each of a day stays, and of what is older one in each hour that covers the others."""
        return self._unmatched_sizes("anchored", "noted", sound)

    def missing_anchors(self, sound: int) -> list[int]:
        """Sizes of checkpoints in the database whose anchors are gone, and were not thinned. What
        is newer than each anchor that agrees may not be published yet."""
        return self._unmatched_sizes("noted", "anchored", sound)

    def _unmatched_sizes(self, there: str, gone: str, sound: int) -> list[int]:
        size = at = _MOST_SIZE
        if gone == "anchored":
            newest = (
                "SELECT size, at FROM signed WHERE anchored = 1 AND agrees = 1"
                " ORDER BY size DESC, at DESC"
            )
            found = self._database.execute(newest).fetchone()
            if found is None:
                return []  # no anchor is left: one finding reports all of them
            size, at = found
        (last,) = self._database.execute("SELECT max(at) FROM signed").fetchone()
        rows = self._database.execute(
            _UNMATCHED_SQL.format(there=there, gone=gone),
            {
                "until": self._until,
                "sound": sound,
                "size": size,
                "at": at,
                "day": (last or 0) - KEEP_ALL_FOR // _US,
                "hour": timedelta(hours=1) // _US,
                "most": MOST_FINDINGS,
            },
        )
        return [size for (size,) in rows]

    def newest_unpublished(self) -> tuple[int, datetime, datetime] | None:
        """The newest checkpoint of the database, its size and its time, and until when anything
        was published."""
        inside = "SELECT size, at FROM signed WHERE noted = 1 ORDER BY at DESC LIMIT 1"
        newest = self._database.execute(inside).fetchone()
        if newest is None:
            return None
        oldest = "SELECT min(at) FROM signed WHERE noted = 1"
        outside = f"SELECT max(at), ({oldest}) FROM signed WHERE anchored = 1"  # noqa: S608
        published, first = self._database.execute(outside).fetchone()
        known = first if published is None else published
        return newest[0], _from_micros(newest[1]), _from_micros(known)

    def largest_verified(self, sound: int) -> VerifiedTree | None:
        """The largest statement that is the tree's own, and the newest of that size."""
        found = self._database.execute(
            """SELECT size, root, at FROM signed WHERE at >= ? AND agrees = 1 AND size <= ?
            ORDER BY size DESC, at DESC LIMIT 1""",
            [self._until, sound],
        ).fetchone()
        return VerifiedTree(found[0], found[1], _from_micros(found[2])) if found else None

    def _add(
        self,
        digest: bytes,
        statement: CheckpointStatement,
        *,
        noted: bool = False,
        anchored: bool = False,
    ) -> int:
        at = _to_micros(statement.at)
        self._database.execute(
            _ADD_SQL, [digest, statement.size, statement.root, at, noted, anchored]
        )
        return at

    def _add_bad(self, read: ParsedStatement, size: int | None, what: str) -> None:
        kind, says = read.flaw or (FindingKind.BAD_SIGNATURE, "it cannot be read")
        self._add_finding(VerificationFinding(kind, size, f"{what}: {says}"))

    def _add_finding(self, finding: VerificationFinding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def _largest(self, where: str, **values: int) -> int | None:
        return self._aggregate("max", where, values)

    def _smallest(self, where: str, **values: int) -> int | None:
        return self._aggregate("min", where, values)

    def _aggregate(self, what: str, where: str, values: dict[str, int]) -> int | None:
        statement = f"SELECT {what}(size) FROM signed WHERE {where}"  # noqa: S608
        found: int | None = self._database.execute(
            statement, {"until": self._until, **values}
        ).fetchone()[0]
        return found


def map_in_turn[Asked, Answered](
    function: Callable[[Asked], Answered], batches: Iterable[Asked]
) -> Iterator[Answered]:
    return map(function, batches)


def read_statements(
    origin: str,
    noted: Iterable[CheckpointRow],
    published: Iterable[PublishedNote],
    trusted: Trusted,
    *,
    spread: Spread = map_in_turn,
    since: int = 0,
) -> Statements:
    """`spread` reads batches, in several processes perhaps. What speaks of fewer records than
    `since` is left out, but for what says that a break was accepted."""
    statements = Statements()
    read = partial(read_batch, origin, trusted)
    anchors = (UncheckedNote(one.note) for one in published if not _is_before(one.note, since))
    for done in spread(read, _batch_notes(anchors)):
        for one in done:
            statements.add_published(one)
    for done in spread(read, _batch_notes(_new_notes(statements, noted))):
        for one in done:
            statements.add_noted(one)
    return statements


def read_batch(origin: str, trusted: Trusted, notes: Batch) -> list[ParsedStatement]:
    return [_read_note(origin, trusted, one) for one in notes]


def _batch_notes(notes: Iterable[UncheckedNote]) -> Iterator[Batch]:
    return map(list, batched(notes, BATCH, strict=False))


def _new_notes(statements: Statements, noted: Iterable[CheckpointRow]) -> Iterator[UncheckedNote]:
    """A note is often met twice, in the database and as an anchor: it is checked once."""
    for row in noted:
        statements.notes += 1
        known = statements.find_note(row.note)
        if known is None:
            yield UncheckedNote(row.note, (row.size, row.root))
        else:
            statements.compare_row(row.size, row.root, *known)


def _is_before(note: str, since: int) -> bool:
    size = note.partition("\n")[2].partition("\n")[0]
    plain = since and size.isdecimal() and len(size) <= len(str(since)) and int(size) < since
    return bool(plain) and "\naccepted " not in note


def _read_note(origin: str, trusted: Trusted, unread: UncheckedNote) -> ParsedStatement:
    note = unread.note
    digest = _digest(note)
    try:
        statement = checkpoints.read_note(note)
        keys = checkpoints.signed_by(note, trusted)
        plain = _is_plainly_written(note, trusted)
    except (BadNote, ValueError) as error:
        return ParsedStatement(unread, digest, None, (FindingKind.BAD_SIGNATURE, str(error)))
    flaw = None
    if not plain:
        flaw = FindingKind.BAD_SIGNATURE, "a signature is not written as it was signed"
    elif statement.origin != origin:
        flaw = FindingKind.BAD_SIGNATURE, f"it speaks of another log, {statement.origin}"
    elif not keys:
        flaw = FindingKind.WRONG_KEY, "it is signed by no key that is trusted"
    return ParsedStatement(unread, digest, statement if flaw is None else None, flaw)


def _is_plainly_written(note: str, trusted: Trusted) -> bool:
    """Names and base64 have other spellings, which a parser accepts; Toolcrib never writes them."""
    text, _, below = note.partition("\n\n")
    origin = text.partition("\n")[0]
    *lines, end = below.split("\n")
    return not end and all(_is_plain_line(line, origin, trusted) for line in lines)


def _is_plain_line(line: str, origin: str, trusted: Trusted) -> bool:
    _, name, signature = line.split(" ")
    raw = base64.b64decode(signature)
    own = raw[:4].hex() in trusted
    return not own or (name == origin and base64.b64encode(raw).decode() == signature)


def _note_size(note: str) -> int | None:
    try:
        return checkpoints.read_note(note).size
    except (BadNote, ValueError):
        return None


def _digest(note: str) -> bytes:
    return sha256(note.encode("utf-8", "surrogatepass")).digest()[:16]


def _to_micros(at: datetime) -> int:
    return (at - _EPOCH) // _US


def _from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _US
