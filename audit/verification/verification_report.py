"""Findings and reports of verification, named so that a reader knows what was done to the log, and
losses: published records that the database lacks, as after the restore of an older backup."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from audit.log import anchors
from audit.log.anchors import BadAnchor
from audit.log.checkpoints import CheckpointStatement
from audit.models import AuditLog

MOST_FINDINGS = 1000  # findings of one kind of place: enough to show what was done, and bounded


class FindingKind(StrEnum):
    MUTATED = "mutated"
    MISSING = "missing"
    INSERTED = "inserted"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    ROLLED_BACK = "rolled_back"
    FORKED = "forked"
    BAD_SIGNATURE = "bad_signature"
    WRONG_KEY = "wrong_key"
    BACKDATED = "backdated"
    UNSEALED = "unsealed_too_old"
    UNFINISHED = "start_without_end"
    NOT_VERIFIED = "not_verified"


@dataclass(frozen=True, slots=True)
class VerificationFinding:
    """`index` is the first bad one; there is none for a record that has no place."""

    kind: FindingKind
    index: int | None
    says: str
    accepted: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "index": self.index,
            "says": self.says,
            "accepted": self.accepted,
        }


@dataclass(frozen=True, slots=True)
class VerifiedTree:
    """The largest signed tree that a verification found to be the log's."""

    size: int
    root: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """Of one log. There are `size` leaves; `checkpoints` and `anchors` were compared with them.
    `verified` is the largest signed tree that was found to be theirs, and `since` the size from
    which on they were looked at, where an earlier verification was believed."""

    log: str
    size: int
    checkpoints: int
    anchors: int
    findings: tuple[VerificationFinding, ...]
    verified: VerifiedTree | None = None
    since: int = 0

    @property
    def damaged(self) -> bool:
        """Whether there is damage that no operator has accepted."""
        return any(not finding.accepted for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {
            "log": self.log,
            "size": self.size,
            "checkpoints": self.checkpoints,
            "anchors": self.anchors,
            "since": self.since,
            "damaged": self.damaged,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def sort_findings(findings: Iterable[VerificationFinding]) -> tuple[VerificationFinding, ...]:
    """The first bad index first; what has none comes last."""
    return tuple(sorted(set(findings), key=lambda one: (one.index is None, one.index or 0)))


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Of one log: it holds so many records where so many were published, in checkpoints of which
    the first and the last have these times. Proofs that were issued under them cannot be made
    again."""

    log: str
    held: int
    published: int
    checkpoints: int
    since: datetime
    until: datetime

    @property
    def says(self) -> str:
        records, one = self.published - self.held, self.published - self.held == 1
        which = f"record {self.held}" if one else f"records {self.held} to {self.published - 1}"
        times = f"{self.since:%Y-%m-%d %H:%M:%S} to {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{self.log}: {records} of {self.published} published records"
            f" {'is' if one else 'are'} missing ({which}; {self.checkpoints}"
            f" checkpoint{'' if self.checkpoints == 1 else 's'}, {times})"
        )


def find_loss(found: AuditLog) -> RecordLoss | None:
    """Compared with all anchors since a break was last accepted; None where they say no more than
    the log holds, or cannot be read."""
    lacking: list[CheckpointStatement] = []
    try:
        for anchor in anchors.read_anchors(found.name):
            statement = anchor.statement
            if statement.accepted is not None:
                lacking.clear()
            elif statement.size > found.size:
                lacking.append(statement)
    except BadAnchor:
        return None
    if not lacking:
        return None
    published = max(statement.size for statement in lacking)
    return RecordLoss(
        found.name, found.size, published, len(lacking), lacking[0].at, lacking[-1].at
    )


def find_losses() -> list[RecordLoss]:
    """Of every log."""
    found = (find_loss(one) for one in AuditLog.objects.order_by("name"))
    return [one for one in found if one is not None]
