"""Checkpoints and anchors: who signed them, and whether the log is what they say.

Which keys are trusted is never asked of the database, nor of the notes: anybody can put a signature
of their own below one. Whoever asks names every key, those of before too.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from audit import checkpoints
from audit.checkpoints import BadNote, Statement
from audit.verification.findings import Finding, Kind
from audit.verification.rows import Noted

Trusted = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Published:
    """An anchor."""

    note: str


@dataclass(frozen=True, slots=True)
class Signed:
    size: int
    root: bytes
    at: datetime
    anchored: bool


@dataclass(frozen=True, slots=True)
class Statements:
    signed: list[Signed]
    findings: list[Finding]
    accepted_until: datetime | None
    acceptance: str

    def size(self) -> int:
        """Of the largest tree that was vouched for, and not given up since."""
        standing = (one.size for one in self.signed if not self.given_up(one))
        return max(standing, default=0)

    def given_up(self, one: Signed) -> bool:
        return self.accepted_until is not None and one.at < self.accepted_until


class _Untold(Exception):
    def __init__(self, kind: Kind, says: str) -> None:
        super().__init__(says)
        self.kind = kind


def read_all(
    origin: str, noted: Iterable[Noted], published: Iterable[Published], trusted: Trusted
) -> Statements:
    reader = _Reader(origin, trusted)
    signed: list[Signed] = []
    findings: list[Finding] = []
    until: datetime | None = None
    acceptance = ""
    for anchor in published:
        try:
            said = reader.read(anchor.note)
        except _Untold as error:
            findings.append(Finding(error.kind, _size(anchor.note), f"an anchor: {error}"))
            continue
        signed.append(Signed(said.size, said.root, said.at, anchored=True))
        if said.accepted and (until is None or said.at > until):
            until = said.at
            acceptance = f"accepted by {said.accepted.by}: {said.accepted.reason}"
    for row in noted:
        try:
            said = reader.read(row.note)
        except _Untold as error:
            findings.append(Finding(error.kind, row.size, f"a checkpoint: {error}"))
            continue
        if (said.size, said.root) != (row.size, row.root):
            says = "a checkpoint: its row does not say what was signed"
            findings.append(Finding(Kind.BAD_SIGNATURE, said.size, says))
        signed.append(Signed(said.size, said.root, said.at, anchored=False))
    return Statements(signed, findings, until, acceptance)


class _Reader:
    """A note is often met twice, in the database and as an anchor: it is checked once."""

    def __init__(self, origin: str, trusted: Trusted) -> None:
        self.origin, self.trusted = origin, trusted
        self.known: dict[str, Statement] = {}

    def read(self, note: str) -> Statement:
        found = self.known.get(note)
        if found is None:
            found = self.known[note] = self._checked(note)
        return found

    def _checked(self, note: str) -> Statement:
        try:
            said = checkpoints.read(note)
            keys = checkpoints.signed_by(note, self.trusted)
            plain = _written_plainly(note, self.trusted)
        except (BadNote, ValueError) as error:
            raise _Untold(Kind.BAD_SIGNATURE, str(error)) from None
        if not plain:
            raise _Untold(Kind.BAD_SIGNATURE, "a signature is not written as it was signed")
        if said.origin != self.origin:
            raise _Untold(Kind.BAD_SIGNATURE, f"it speaks of another log, {said.origin}")
        if not keys:
            raise _Untold(Kind.WRONG_KEY, "it is signed by no key that is trusted")
        return said


def _written_plainly(note: str, trusted: Trusted) -> bool:
    """Names and base64 have other spellings, which a reader forgives; nobody of ours wrote them."""
    text, _, below = note.partition("\n\n")
    origin = text.partition("\n")[0]
    *lines, end = below.split("\n")
    return not end and all(_plain(line, origin, trusted) for line in lines)


def _plain(line: str, origin: str, trusted: Trusted) -> bool:
    _, name, signature = line.split(" ")
    raw = base64.b64decode(signature)
    own = raw[:4].hex() in trusted
    return not own or (name == origin and base64.b64encode(raw).decode() == signature)


def _size(note: str) -> int | None:
    try:
        return checkpoints.read(note).size
    except (BadNote, ValueError):
        return None
