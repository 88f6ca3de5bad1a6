"""Inclusion proofs from the rows of a log, in a form that can be checked without Toolcrib.

The form is that of C2SP: https://c2sp.org/tlog-proof. What is proved is the record's line
(`audit.log.leaves`); the checkpoint below says of which tree, and who vouches for it.
"""

import base64
from dataclasses import dataclass
from uuid import UUID

from audit.log import merkle
from audit.models import AuditLeaf, AuditLog, AuditNode, Checkpoint

HEADER = "c2sp.org/tlog-proof@v1"
STEP = 8  # a node is stored for every level that is a multiple of it


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
