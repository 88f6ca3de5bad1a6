"""Prove a record step by step, as an independent verifier would with its line and its proof.

Its row is not trusted. The line is hashed again, the path is followed from that hash, and
signatures count only by keys that are outside the database.
"""

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit import canonical
from audit.log import anchors, checkpoints, key_files, leaves, merkle
from audit.log.anchors import Anchor, BadAnchor
from audit.log.checkpoints import BadNote
from audit.log.handouts import WrittenRecord, written
from audit.log.proofs import Inclusion, NotProvable, inclusion_of
from audit.models import AuditRecord
from audit.records.record_access import Payload


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One thing that was looked at, and what was found."""

    title: str
    holds: bool
    says: str


def examine(record: AuditRecord, payload: Payload) -> list[ProofStep]:
    """Every step, also those after one that does not hold.

    Raises `NotProvable` for a record that is not sealed yet, or no longer here.
    """
    found, now = inclusion_of(record.pk), written(record.pk)
    steps = [_as_sealed(found, now), _by_toolcrib(record, now), *_under_checkpoint(found, now)]
    steps += _kept_outside(found, now)
    if payload.content is not None:
        steps.append(_committed(record.details, payload))
    return steps


def _as_sealed(found: Inclusion, now: WrittenRecord) -> ProofStep:
    same = merkle.leaf_hash(now.line) == bytes(found.leaf.hash)
    return ProofStep(
        "It is as it was sealed",
        same,
        "Its line, hashed now, is the leaf that was sealed."
        if same
        else "Its line, hashed now, is not the leaf that was sealed: the record was changed.",
    )


def _by_toolcrib(record: AuditRecord, now: WrittenRecord) -> ProofStep:
    good = hmac.compare_digest(leaves.mac_of(record.organization, now.body), now.mac)
    return ProofStep(
        "Toolcrib wrote it",
        good,
        "Its code was made with a key that is not in the database."
        if good
        else "Its code was not made with Toolcrib's key: it was written past Toolcrib.",
    )


def _under_checkpoint(found: Inclusion, now: WrittenRecord) -> Iterator[ProofStep]:
    newest, log = found.checkpoint, found.leaf.log.name
    place = f"place {found.leaf.index} of {newest.size}"
    fits = _leads_to(found, now, newest.size, bytes(newest.root))
    yield ProofStep(
        "It stands in the log",
        fits,
        f"The path from its leaf leads to the root of the newest checkpoint: {place}."
        if fits
        else f"The path from its leaf does not lead to the root of the newest checkpoint: {place}.",
    )
    try:
        said = checkpoints.read(newest.note)
        keys = checkpoints.signed_by(newest.note, key_files.trusted(log))
    except BadNote as flaw:
        yield ProofStep("The checkpoint is signed", False, f"The checkpoint's note is bad: {flaw}.")
        return
    same = (said.size, said.root, said.origin) == (
        newest.size,
        bytes(newest.root),
        key_files.origin(log),
    )
    yield ProofStep(
        "The checkpoint is signed",
        bool(keys) and same,
        f"Signed at {said.at:%Y-%m-%d %H:%M:%S} UTC by the key {', '.join(keys)} of {said.origin}."
        if keys and same
        else "No key of this installation signed a checkpoint of that size and root.",
    )


def _kept_outside(found: Inclusion, now: WrittenRecord) -> Iterator[ProofStep]:
    """Nothing where no anchors are kept on this machine, or none is over the record yet."""
    title, log = "A file outside the database agrees", found.leaf.log.name
    try:
        anchor = anchors.newest(log)
        if anchor is None or anchor.statement.size <= found.leaf.index:
            return
        yield _agreeing(title, anchor, found, now)
    except (BadAnchor, BadNote) as flaw:
        yield ProofStep(title, False, f"The newest anchor cannot be read: {flaw}")


def _agreeing(title: str, anchor: Anchor, found: Inclusion, now: WrittenRecord) -> ProofStep:
    said = anchor.statement
    ours = checkpoints.signed_by(anchor.note, key_files.trusted(anchor.log))
    agrees = bool(ours) and _leads_to(found, now, said.size, said.root)
    when = f"what was published of {said.size} records at {said.at:%Y-%m-%d %H:%M:%S} UTC"
    return ProofStep(
        title,
        agrees,
        f"The record is in {when}." if agrees else f"The record is not in {when}.",
    )


def _leads_to(found: Inclusion, now: WrittenRecord, size: int, root: bytes) -> bool:
    """From the line as it is now, not from the leaf in a row."""
    leaf = merkle.leaf_hash(now.line)
    try:
        path = found.path(size)
        return merkle.root_from_inclusion(found.leaf.index, size, leaf, path) == root
    except (NotProvable, ValueError):
        return False


def _committed(details: dict[str, Any], payload: Payload) -> ProofStep:
    salt = bytes.fromhex(payload.salt)
    wrong = [
        name
        for name, part in (payload.content or {}).items()
        if details.get(f"{name}_commitment") != f"sha256:{canonical.commitment(part, salt)}"
    ]
    return ProofStep(
        "What went in and came out is what it speaks of",
        not wrong,
        f"Not so: {', '.join(sorted(wrong))}."
        if wrong
        else "With its salt it hashes to the record's commitments.",
    )
