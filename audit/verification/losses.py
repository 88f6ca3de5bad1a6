"""Losses: published records of a log that its database lacks, as after the restore of an older
backup."""

from dataclasses import dataclass
from datetime import datetime

from audit.log import anchors
from audit.log.anchors import BadAnchor
from audit.log.checkpoints import CheckpointStatement
from audit.models import AuditLog


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
            said = anchor.statement
            if said.accepted is not None:
                lacking.clear()
            elif said.size > found.size:
                lacking.append(said)
    except BadAnchor:
        return None
    if not lacking:
        return None
    published = max(said.size for said in lacking)
    return RecordLoss(
        found.name, found.size, published, len(lacking), lacking[0].at, lacking[-1].at
    )


def find_losses() -> list[RecordLoss]:
    """Of every log."""
    found = (find_loss(one) for one in AuditLog.objects.order_by("name"))
    return [one for one in found if one is not None]
