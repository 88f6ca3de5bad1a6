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
from audit.log.proofs import (
    Inclusion,
    NotProvable,
    WrittenRecord,
    find_inclusion,
    read_written_record,
)
from audit.models import AuditRecord
from audit.records.record_access import PayloadView


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One thing that was looked at, and what was found."""

    title: str
    holds: bool
    says: str


def prove_record(record: AuditRecord, payload: PayloadView) -> list[ProofStep]:
    """Every step, also those after one that does not hold.

    Raises `NotProvable` for a record that is not sealed yet, or no longer here.
    """
    found, now = find_inclusion(record.pk), read_written_record(record.pk)
    steps = [_check_leaf(found, now), _check_mac(record, now), *_check_checkpoint(found, now)]
    steps += _check_anchor(found, now)
    if payload.content is not None:
        steps.append(_check_commitments(record.details, payload))
    return steps


def _check_leaf(found: Inclusion, now: WrittenRecord) -> ProofStep:
    same = merkle.leaf_hash(now.line) == bytes(found.leaf.hash)
    return ProofStep(
        "It is as it was sealed",
        same,
        "Its line, hashed now, is the leaf that was sealed."
        if same
        else "Its line, hashed now, is not the leaf that was sealed: the record was changed.",
    )


def _check_mac(record: AuditRecord, now: WrittenRecord) -> ProofStep:
    good = hmac.compare_digest(leaves.record_mac(record.organization, now.body), now.mac)
    return ProofStep(
        "Toolcrib wrote it",
        good,
        "Its code was made with a key that is not in the database."
        if good
        else "Its code was not made with Toolcrib's key: it was written past Toolcrib.",
    )


def _check_checkpoint(found: Inclusion, now: WrittenRecord) -> Iterator[ProofStep]:
    newest, log = found.checkpoint, found.leaf.log.name
    place = f"place {found.leaf.index} of {newest.size}"
    fits = _leads_to_root(found, now, newest.size, bytes(newest.root))
    yield ProofStep(
        "It stands in the log",
        fits,
        f"The path from its leaf leads to the root of the newest checkpoint: {place}."
        if fits
        else f"The path from its leaf does not lead to the root of the newest checkpoint: {place}.",
    )
    try:
        statement = checkpoints.read_note(newest.note)
        keys = checkpoints.signed_by(newest.note, key_files.trusted_keys(log))
    except BadNote as flaw:
        yield ProofStep("The checkpoint is signed", False, f"The checkpoint's note is bad: {flaw}.")
        return
    same = (statement.size, statement.root, statement.origin) == (
        newest.size,
        bytes(newest.root),
        key_files.log_origin(log),
    )
    yield ProofStep(
        "The checkpoint is signed",
        bool(keys) and same,
        f"Signed at {statement.at:%Y-%m-%d %H:%M:%S} UTC"
        f" by the key {', '.join(keys)} of {statement.origin}."
        if keys and same
        else "No key of this installation signed a checkpoint of that size and root.",
    )


def _check_anchor(found: Inclusion, now: WrittenRecord) -> Iterator[ProofStep]:
    """Nothing where no anchors are kept on this machine, or none is over the record yet."""
    title, log = "A file outside the database agrees", found.leaf.log.name
    try:
        anchor = anchors.newest_anchor(log)
        if anchor is None or anchor.statement.size <= found.leaf.index:
            return
        yield _compare_anchor(title, anchor, found, now)
    except (BadAnchor, BadNote) as flaw:
        yield ProofStep(title, False, f"The newest anchor cannot be read: {flaw}")


def _compare_anchor(title: str, anchor: Anchor, found: Inclusion, now: WrittenRecord) -> ProofStep:
    statement = anchor.statement
    ours = checkpoints.signed_by(anchor.note, key_files.trusted_keys(anchor.log))
    agrees = bool(ours) and _leads_to_root(found, now, statement.size, statement.root)
    when = f"what was published of {statement.size} records at {statement.at:%Y-%m-%d %H:%M:%S} UTC"
    return ProofStep(
        title,
        agrees,
        f"The record is in {when}." if agrees else f"The record is not in {when}.",
    )


def _leads_to_root(found: Inclusion, now: WrittenRecord, size: int, root: bytes) -> bool:
    """From the line as it is now, not from the leaf in a row."""
    leaf = merkle.leaf_hash(now.line)
    try:
        path = found.path(size)
        return merkle.root_from_inclusion(found.leaf.index, size, leaf, path) == root
    except (NotProvable, ValueError):
        return False


def _check_commitments(details: dict[str, Any], payload: PayloadView) -> ProofStep:
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
