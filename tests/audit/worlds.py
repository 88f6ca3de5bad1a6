"""Sealed logs kept in memory, as all the tables of them: to be tampered with by the thousand.

`grown` seals them with the functions the sealer uses; `read` takes one from the database.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.log import checkpoints, key_files, leaves, merkle
from audit.log.checkpoints import CheckpointStatement, Signer
from audit.verification.chunks import MacKeys
from audit.verification.log_source import (
    HEAD,
    TAIL,
    CheckpointRow,
    ExportedRanges,
    LogRow,
    RawRow,
    RecordRow,
    UnsealedRecord,
    decode_micros,
)
from audit.verification.log_verification import VerificationTrust, verify_log
from audit.verification.statements import PublishedNote
from audit.verification.verification_report import VerificationFinding

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
START = int((datetime(2026, 3, 1, tzinfo=UTC) - EPOCH) / timedelta(microseconds=1))
FIELDS = (*HEAD, *TAIL)
ID = FIELDS.index("id")
_UNIX_US = 946_684_800_000_000
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TEXTS = ("", "plain", 'a "quoted" \\ one', "naïve ☕ 𝄞", "line\nbreak\tand\x07", "unit")


class Record(NamedTuple):
    fields: tuple[str, ...]
    details: str
    at: int
    mac: bytes

    @property
    def id(self) -> bytes:
        return UUID(self.fields[ID]).bytes

    def changed(self, name: str, value: str) -> "Record":
        place = FIELDS.index(name)
        return self._replace(fields=(*self.fields[:place], value, *self.fields[place + 1 :]))

    @property
    def body(self) -> bytes:
        values: dict[str, Any] = dict(zip(FIELDS, self.fields, strict=True))
        values["execution_id"] = values["execution_id"] or None
        return leaves.record_body(values, self.details.encode())

    @property
    def hash(self) -> bytes:
        moment = EPOCH + timedelta(microseconds=self.at)
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return merkle.leaf_hash(leaves.leaf_line(self.body, self.mac, text))


class Leaf(NamedTuple):
    record_id: bytes
    hash: bytes
    mac: bytes


@dataclass
class World:
    """A `Source`. `records` are by the id that leaves know them by."""

    name: str
    records: dict[bytes, Record] = field(default_factory=dict)
    leaves: dict[int, Leaf] = field(default_factory=dict)
    stored: dict[tuple[int, int], bytes] = field(default_factory=dict)
    noted: list[CheckpointRow] = field(default_factory=list)
    row: LogRow | None = None
    segments: list[tuple[int, int]] = field(default_factory=list)
    published: list[PublishedNote] = field(default_factory=list)
    origin: str = "toolcrib/tests/log"
    key: Ed25519PrivateKey = KEY

    def copy(self) -> "World":
        return replace(
            self,
            records=dict(self.records),
            leaves=dict(self.leaves),
            stored=dict(self.stored),
            noted=list(self.noted),
            segments=list(self.segments),
            published=list(self.published),
        )

    def log(self) -> LogRow | None:
        return self.row

    def count(self) -> int:
        return len(self.leaves)

    def rows(self, first: int, end: int) -> Sequence[RawRow]:
        return [self._row(index) for index in sorted(self.leaves) if first <= index < end]

    def surplus_rows(self, end: int) -> Sequence[RawRow]:
        return self.rows(end, 1 << 63)[:1000]

    def exact_body(self, record_id: bytes) -> bytes:
        return self.records[record_id].body

    def nodes(self) -> dict[tuple[int, int], bytes]:
        return self.stored

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def checkpoints(self, since: int = 0) -> list[CheckpointRow]:
        return [one for one in self.noted if one.size >= since]

    def file_count(self) -> int:
        return len(self.segments)

    def exported_ranges(self) -> ExportedRanges:
        return ExportedRanges(self.segments, [])

    def unsealed_records(self) -> list[UnsealedRecord]:
        placed = {leaf.record_id for leaf in self.leaves.values()}
        return [
            UnsealedRecord(record_id, *_columns(record)[:2], due=False)
            for record_id, record in self.records.items()
            if record_id not in placed
        ]

    def missing_payloads(self) -> list[tuple[int | None, str]]:
        return []

    def unfinished_calls(self) -> list[tuple[UUID, int | None]]:
        return []

    def _row(self, index: int) -> RecordRow:
        leaf = self.leaves[index]
        record = self.records.get(leaf.record_id)
        rest = _columns(record) if record is not None else (None, None, None, None, None)
        return RecordRow(index, *leaf, *rest)

    def findings(self, *, public: bool = False) -> set[tuple[str, int | None]]:
        return {(str(one.kind), one.index) for one in self.verify(public=public)}

    def verify(self, *, public: bool = False) -> tuple[VerificationFinding, ...]:
        keys = None if public else keys_of(self.name)
        public = self.key.public_key().public_bytes_raw()
        trust = VerificationTrust(self.origin, [public], self.published, keys)
        return verify_log(self, trust).findings


def keys_of(name: str) -> MacKeys:
    return MacKeys(key_files.derived_key("record", name), key_files.derived_key("place", name))


def written(
    rng: random.Random, name: str, at: int, *, steady: bool = False, **changes: str
) -> Record:
    """As `audit.actions.record` writes one; its id was made then, by a process's own clock. Unless
    it is `steady`, that is wrong now and then."""
    odd_clock = not steady and rng.random() < 0.05
    wrong_by = rng.choice([-1, 1]) * 86_400_000_000 if odd_clock else 0
    made = ((at + _UNIX_US + wrong_by) // 1000).to_bytes(6) + rng.randbytes(10)
    made = made[:6] + bytes([0x70 | made[6] & 0xF, made[7], 0x80 | made[8] & 0x3F]) + made[9:]
    odd = TEXTS if rng.random() < 0.2 else TEXTS[:2]
    values = {one: rng.choice(odd) for one in FIELDS}
    values |= {"id": str(UUID(bytes=made)), "organization": name, "code": "TOOL.END"}
    values |= {"actor": "agent", "actor_kind": "agent", "outcome": "success"}
    values["execution_id"] = rng.choice(["", str(UUID(bytes=rng.randbytes(16)))])
    values |= changes
    details = leaves.canonical_details(
        {"n": rng.randrange(1000), "text": rng.choice(TEXTS)}
    ).decode()
    record = Record(tuple(values[one] for one in FIELDS), details, at, b"")
    return record._replace(mac=leaves.record_mac(name, record.body))


def grown(rng: random.Random, size: int, name: str | None = None) -> Iterator[World]:
    """A log after each of its checkpoints; the last one has that many records."""
    world = World(name or f"log-{rng.randrange(10**9)}", row=LogRow(0, b""))
    frontier: list[bytes] = []
    at = START
    while True:
        yield sign(world, frontier, at)
        if len(world.leaves) >= size:
            return
        step = rng.randint(size // 5, size // 3) + 1
        for _ in range(min(step, size - len(world.leaves))):
            at += rng.randrange(5_000_000)
            place(world, frontier, written(rng, world.name, at))


def place(world: World, frontier: list[bytes], record: Record) -> None:
    """Seal one record, with all that the sealer writes but the checkpoint."""
    index = len(world.leaves)
    made = record.hash

    def completed(level: int, number: int, node: bytes) -> None:
        if level % 8 == 0:
            world.stored[level, number] = node

    merkle.extend(frontier, index, [made], completed)
    world.records[record.id] = record
    world.leaves[index] = Leaf(record.id, made, leaves.position_mac(world.name, index, made))
    world.row = LogRow(index + 1, b"".join(frontier))


def sign(world: World, frontier: list[bytes], at: int) -> World:
    """With a checkpoint more, which is published too. It is as it was then, whatever comes."""
    note = checkpoint_row(world, len(world.leaves), merkle.frontier_root(frontier), at, world.key)
    world.noted.append(note)
    world.published.append(PublishedNote(note.note))
    return world.copy()


def checkpoint_row(
    world: World, size: int, root: bytes, at: int, key: Ed25519PrivateKey
) -> CheckpointRow:
    moment = EPOCH + timedelta(microseconds=at)
    text = checkpoints.sign_statement(
        CheckpointStatement(world.origin, size, root, moment), Signer(world.origin, key)
    )
    return CheckpointRow(size, root, text)


def read(source: Any, published: Sequence[PublishedNote], signer: Signer) -> World:
    """All of a log that is in the database."""
    rows = [RecordRow._make(row) for row in source.rows(0, source.count())]
    return World(
        source.name,
        {row.record_id: _record(source, row) for row in rows},
        {row.number: Leaf(row.record_id, row.hash, row.mac) for row in rows},
        source.nodes(),
        [*source.checkpoints()],
        source.log(),
        source.exported_ranges().ranges,
        list(published),
        signer.name,
        signer.private,
    )


def write(cursor: Any, world: World) -> None:
    """Everything of the log as it is in the world, by the owner of the tables."""
    for table in ("auditrecord", "auditleaf", "auditnode", "checkpoint"):
        cursor.execute(f"DELETE FROM audit_{table}")
    for record_id, record in world.records.items():
        fields = dict(zip(FIELDS, record.fields, strict=True)) | {"id": UUID(bytes=record_id)}
        fields["execution_id"] = fields["execution_id"] or None  # type: ignore[assignment]
        cursor.execute(
            f"INSERT INTO audit_auditrecord ({', '.join(FIELDS)}, details, mac, occurred_at) "
            f"VALUES ({', '.join(['%s'] * len(FIELDS))}, %s, %s, "
            "'2000-01-01Z'::timestamptz + %s * interval '1 microsecond')",
            [*(fields[name] for name in FIELDS), record.details, record.mac, record.at],
        )
    log = "(SELECT id FROM audit_auditlog)"
    for index, leaf in world.leaves.items():
        values = [index, UUID(bytes=leaf.record_id), leaf.hash, leaf.mac]
        cursor.execute(f"INSERT INTO audit_auditleaf SELECT {log}, %s, %s, %s, %s", values)
    for one in world.noted:
        values = [one.size, one.root, one.note]
        cursor.execute(
            f"INSERT INTO audit_checkpoint (log_id, size, root, note) SELECT {log}, %s, %s, %s",
            values,
        )
    row = world.row or LogRow(0, b"")
    cursor.execute("UPDATE audit_auditlog SET size = %s, frontier = %s", [row.size, row.frontier])


def _record(source: Any, row: RecordRow) -> Record:
    body = json.loads(source.exact_body(row.record_id))
    fields = tuple(body[name] or "" for name in FIELDS)
    return Record(fields, row.details or "", decode_micros(row.at or b""), row.record_mac or b"")


def _columns(record: Record) -> tuple[bytes, bytes, str, str, str]:
    at = record.at.to_bytes(8, signed=True)
    values = dict(zip(FIELDS, record.fields, strict=True))
    head = ",".join(f'"{name}":"{values[name]}"' for name in HEAD)
    execution = f'"{values["execution_id"]}"' if values["execution_id"] else "null"
    tail = ",".join(f'"{name}":"{values[name]}"' for name in TAIL[1:])
    return (
        at,
        record.mac,
        "{" + head + ',"details":',
        record.details,
        f',"execution_id":{execution},{tail}' + "}",
    )
