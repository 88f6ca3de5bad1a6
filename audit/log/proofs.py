"""Proofs from the rows of a log, in forms that can be checked without Toolcrib: that a record is in
the log, and that the log only grew since a checkpoint the verifier has.

Inclusion proofs have the form of C2SP: https://c2sp.org/tlog-proof. What is proved is the record's
line (`audit.log.leaves`); the checkpoint below names the tree and has its signatures.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import leaves, merkle
from audit.models import AuditLeaf, AuditLog, AuditNode, AuditRecord, Checkpoint

HEADER = "c2sp.org/tlog-proof@v1"
STEP = 8  # a node is stored for every level that is a multiple of it
GROWTH = "toolcrib growth-proof@v1"
_LINE_SQL = f"""
SELECT {leaves.body_sql("r")}, r.mac, {leaves.moment_sql("r")}
FROM audit_auditrecord r WHERE r.id = %s
"""  # noqa: S608


class NotProvable(Exception):
    """There is no proof; the message says why, and whether one will come."""


@dataclass(frozen=True, slots=True)
class Inclusion:
    """A record's position, and the newest checkpoint over it."""

    leaf: AuditLeaf
    checkpoint: Checkpoint

    def path(self, size: int) -> list[bytes]:
        """Hashes from the leaf's sibling up to the root of the first `size` leaves.

        Raises `NotProvable` where rows of the tree are missing."""
        try:
            return merkle.inclusion_proof(self.leaf.index, size, subtree_reader(self.leaf.log))
        except LookupError as missing:
            raise NotProvable(f"The log is damaged: {missing}") from None


def find_inclusion(record_id: UUID) -> Inclusion:
    """Raises `NotProvable` for a record that is not sealed, or not yet under a checkpoint."""
    leaf = AuditLeaf.objects.filter(record_id=record_id).select_related("log").first()
    if leaf is None:
        raise NotProvable("The record is not sealed yet. Ask again in a few seconds.")
    newest = Checkpoint.objects.filter(log=leaf.log).order_by("-size", "-id").first()
    if newest is None or newest.size <= leaf.index:
        raise NotProvable("The record is not under a checkpoint yet. Ask again in a few seconds.")
    return Inclusion(leaf, newest)


def inclusion_proof(record_id: UUID) -> str:
    """The inclusion proof of the record in its log, under the newest checkpoint.

    Raises `NotProvable` for a record that is not sealed, or not yet under a checkpoint.
    """
    found = find_inclusion(record_id)
    return proof_text(found.leaf.index, found.path(found.checkpoint.size), found.checkpoint.note)


def proof_text(index: int, hashes: list[bytes], note: str) -> str:
    lines = [HEADER, f"index {index}", *(base64.b64encode(one).decode() for one in hashes)]
    return "\n".join(lines) + "\n\n" + note


def subtree_reader(log: AuditLog) -> merkle.Subtree:
    """Roots of parts of the log's tree, from its rows. It asks for a leaf that is not there with a
    LookupError. What was read is kept, so that a whole proof is a handful of queries."""
    return _TreeRows(log).root


class _TreeRows:
    """Blocks of 256 hashes, of leaves and of each level that is stored."""

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self.blocks: dict[tuple[int, int], dict[int, bytes]] = {}

    def root(self, first: int, end: int) -> bytes:
        size = end - first
        if size <= 0:
            raise ValueError("a subtree holds something")
        level = size.bit_length() - 1
        if size == 1 << level and first % size == 0:
            return self._complete(level, first >> level)
        middle = first + (1 << (size - 1).bit_length() - 1)
        return merkle.node_hash(self.root(first, middle), self.root(middle, end))

    def _complete(self, level: int, index: int) -> bytes:
        stored = level - level % STEP
        width = 1 << (level - stored)
        return merkle.leaves_root(
            self._hash(stored, number) for number in range(index * width, (index + 1) * width)
        )

    def _hash(self, level: int, number: int) -> bytes:
        key = (level, number >> STEP)
        if key not in self.blocks:
            self.blocks[key] = self._read(level, number >> STEP)
        found = self.blocks[key].get(number)
        if found is None:
            where = f"leaf {number}" if level == 0 else f"node {level}/{number}"
            raise LookupError(f"{where} is missing")
        return found

    def _read(self, level: int, block: int) -> dict[int, bytes]:
        first, end = block << STEP, (block + 1) << STEP
        rows = (
            AuditNode.objects.filter(log=self.log, level=level, index__gte=first, index__lt=end)
            if level
            else AuditLeaf.objects.filter(log=self.log, index__gte=first, index__lt=end)
        )
        return {index: bytes(made) for index, made in rows.values_list("index", "hash")}


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
    """`record_line`, recorded as read. `by` names the reader in the record's organization."""
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
