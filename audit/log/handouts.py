"""Files for an independent verifier, besides a proof: a record's line, and a consistency proof that
a log only grew since a checkpoint the verifier has."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import leaves, merkle
from audit.log.proofs import NotProvable, subtree_reader
from audit.models import AuditLog, AuditRecord, Checkpoint

GROWTH = "toolcrib growth-proof@v1"
_LINE_SQL = f"""
SELECT {leaves.body_sql("r")}, r.mac, {leaves.moment_sql("r")}
FROM audit_auditrecord r WHERE r.id = %s
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A record as it is in the database now: what Python wrote, its mac, and its time."""

    body: bytes
    mac: bytes
    moment: str

    @property
    def line(self) -> bytes:
        """The bytes that its leaf hashes."""
        return leaves.leaf_line(self.body, self.mac, self.moment)


def read_written_record(record_id: UUID) -> WrittenRecord:
    """Raises `NotProvable`."""
    with connection.cursor() as cursor:
        cursor.execute(_LINE_SQL, [record_id])
        found = cursor.fetchone()
    if found is None:
        raise NotProvable("There is no such record here; an older one may be in an archive.")
    body, mac, moment = found
    return WrittenRecord(body.encode(), bytes(mac), moment)


def record_line(record_id: UUID) -> str:
    """The exact line that its leaf hashes. Raises `NotProvable`."""
    return read_written_record(record_id).line.decode()


@transaction.atomic
def disclose_line(record_id: UUID, *, by: Callable[[str], Actor]) -> str:
    """`record_line`, on record as read. `by` is asked for the reader in the record's organization."""
    line = record_line(record_id)
    found = AuditRecord.objects.get(pk=record_id)
    record(
        Event.AUDIT_READ,
        by=by(found.organization),
        outcome=Outcome.SUCCESS,
        subject=f"record:{record_id}",
        execution_id=found.execution_id,
        details={"record": str(record_id), "code": found.code, "line": True},
    )
    return line


def growth_proof(name: str, since: int) -> str:
    """That the tree of `since` leaves is the beginning of the newest. Raises `NotProvable`."""
    log = AuditLog.objects.filter(name=name).first()
    newest = Checkpoint.objects.filter(log=log).order_by("-size", "-id").first() if log else None
    if log is None or newest is None:
        raise NotProvable(f"No log of an organization {name} was signed here.")
    try:
        hashes = merkle.consistency_proof(since, newest.size, subtree_reader(log))
    except ValueError:
        raise NotProvable(f"The newest checkpoint is of {newest.size} records.") from None
    except LookupError as missing:
        raise NotProvable(f"The log is damaged: {missing}.") from None
    lines = [GROWTH, f"from {since}", *(base64.b64encode(one).decode() for one in hashes)]
    return "\n".join(lines) + "\n\n" + newest.note
