"""What an attacker could do who may write to every table and has none of the keys.

Each changes a world in its own way and says what must be found: kinds with the first bad index.
"""

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.log import merkle
from audit.verification.log_source import CheckpointRow, LogRow
from tests.audit import worlds
from tests.audit.worlds import FIELDS, Leaf, Record, World

Expected = set[tuple[str, int | None]]
MINUTES_US = 60_000_000
FALSE_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


@dataclass
class Attack:
    """`past` is the log after each of its checkpoints, up to now."""

    rng: random.Random
    world: World
    past: Sequence[World]

    @property
    def size(self) -> int:
        return len(self.world.leaves)

    def index(self) -> int:
        return self.rng.randrange(self.size)

    def two(self) -> tuple[int, int]:
        first, second = sorted(self.rng.sample(range(self.size), 2))
        return first, second

    def record(self, index: int) -> Record:
        return self.world.records[self.world.leaves[index].record_id]

    def replace_record(self, index: int, record: Record) -> None:
        self.world.records[self.world.leaves[index].record_id] = record

    def forged(self, at: int) -> Record:
        """A record as it should be but for its mac."""
        record = worlds.written(self.rng, self.world.name, at)
        return record._replace(mac=self.rng.randbytes(32))

    def leaf(self, record: Record) -> Leaf:
        return Leaf(record.id, record.hash, self.rng.randbytes(32))

    def flipped(self, value: bytes) -> bytes:
        place, bit = self.rng.randrange(len(value)), 1 << self.rng.randrange(8)
        return value[:place] + bytes([value[place] ^ bit]) + value[place + 1 :]

    def refit(self) -> None:
        """The log's row and the nodes, made to fit the leaves that are there now."""
        frontier: list[bytes] = []
        self.world.stored = {}

        def completed(level: int, number: int, node: bytes) -> None:
            if level % 8 == 0:
                self.world.stored[level, number] = node

        hashes = [self.world.leaves[index].hash for index in sorted(self.world.leaves)]
        merkle.extend(frontier, 0, hashes, completed)
        self.world.row = LogRow(len(hashes), b"".join(frontier))


def a_bit_of_a_column(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.record(index)
    names = [name for name, value in zip(FIELDS, record.fields, strict=True) if value]
    name = attack.rng.choice([*(one for one in names if one not in {"id", "execution_id"}), "mac"])
    if name == "mac":
        attack.replace_record(index, record._replace(mac=attack.flipped(record.mac)))
    else:
        value = record.fields[FIELDS.index(name)]
        attack.replace_record(index, record.changed(name, _bit_of_text(attack.rng, value)))
    return {("mutated", index)}


def a_bit_of_the_details(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.record(index)
    attack.replace_record(index, record._replace(details=_bit_of_text(attack.rng, record.details)))
    return {("mutated", index)}


def a_bit_of_a_time(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.record(index)
    bit = attack.rng.randrange(63)
    attack.replace_record(index, record._replace(at=record.at ^ (1 << bit)))
    return {("backdated", index)}


def a_bit_of_an_id(attack: Attack) -> Expected:
    index = attack.index()
    record_id = attack.world.leaves[index].record_id
    record = attack.world.records.pop(record_id)
    other = attack.flipped(record_id)
    attack.world.records[other] = record.changed("id", str(UUID(bytes=other)))
    return {("mutated", index)}


def a_bit_of_a_leaf(attack: Attack) -> Expected:
    index = attack.index()
    leaf = attack.world.leaves[index]
    name = attack.rng.choice(Leaf._fields)
    attack.world.leaves[index] = leaf._replace(**{name: attack.flipped(getattr(leaf, name))})
    return {("mutated", index)}


def a_record_and_its_leaf(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.record(index).changed("outcome", "forged")
    attack.replace_record(index, record)
    made = attack.world.leaves[index]._replace(hash=record.hash)
    if attack.rng.random() < 0.5:
        made = made._replace(mac=attack.rng.randbytes(32))
    attack.world.leaves[index] = made
    if attack.rng.random() < 0.5:
        attack.refit()
    return {("mutated", index)}


def a_record_taken_out(attack: Attack) -> Expected:
    index = attack.index()
    del attack.world.records[attack.world.leaves[index].record_id]
    return {("missing", index)}


def a_leaf_taken_out(attack: Attack) -> Expected:
    index = attack.index()
    leaf = attack.world.leaves.pop(index)
    if attack.rng.random() < 0.5:
        del attack.world.records[leaf.record_id]
    return {("missing" if index < attack.size else "truncated", index)}


def a_leaf_taken_out_and_the_gap_closed(attack: Attack) -> Expected:
    index = attack.index()
    last = attack.size - 1
    del attack.world.records[attack.world.leaves[index].record_id]
    for place in range(index, last):
        attack.world.leaves[place] = attack.world.leaves[place + 1]
    del attack.world.leaves[last]
    if attack.rng.random() < 0.5:
        attack.refit()
    return {("missing" if index < last else "truncated", index)}


def an_invented_record(attack: Attack) -> Expected:
    record = attack.forged(attack.record(attack.size - 1).at)
    attack.world.records[record.id] = record
    return {("inserted", None)}


def a_leaf_put_at_the_end(attack: Attack) -> Expected:
    size = attack.size
    record = attack.forged(attack.record(size - 1).at)
    if attack.rng.random() < 0.5:
        record = worlds.written(attack.rng, attack.world.name, record.at)  # one that waits
    attack.world.records[record.id] = record
    attack.world.leaves[size] = attack.leaf(record)
    if attack.rng.random() < 0.5:
        attack.refit()
    return {("inserted", size)}


def a_leaf_put_between(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.forged(attack.record(index).at)
    for place in range(attack.size, index, -1):
        attack.world.leaves[place] = attack.world.leaves[place - 1]
    attack.world.records[record.id] = record
    attack.world.leaves[index] = attack.leaf(record)
    if attack.rng.random() < 0.5:
        attack.refit()
    return {("inserted", index)}


def two_leaves_swapped(attack: Attack) -> Expected:
    """Wholly, or only what they point at, or all but their macs."""
    first, second = attack.two()
    rows = attack.world.leaves
    one, other = rows[first], rows[second]
    names = attack.rng.choice([["record_id", "hash", "mac"], ["record_id"], ["record_id", "hash"]])
    rows[first] = one._replace(**{name: getattr(other, name) for name in names})
    rows[second] = other._replace(**{name: getattr(one, name) for name in names})
    if attack.rng.random() < 0.5:
        attack.refit()
    return {("reordered", first)}


def a_leaf_moved_along(attack: Attack) -> Expected:
    first, last = attack.two()
    rows = attack.world.leaves
    moved = rows[first]
    for place in range(first, last):
        rows[place] = rows[place + 1]
    rows[last] = moved
    return {("reordered", first)}


def two_records_contents_swapped(attack: Attack) -> Expected:
    first, second = attack.two()
    one, other = attack.record(first), attack.record(second)
    attack.replace_record(first, other.changed("id", one.fields[worlds.ID]))
    attack.replace_record(second, one.changed("id", other.fields[worlds.ID]))
    return _neighbours("mutated", first, second)


def the_tail_cut_off(attack: Attack) -> Expected:
    """With the log's row or without, and with the checkpoints that speak of it or without."""
    left = attack.index()
    for index in range(left, attack.size):
        leaf = attack.world.leaves.pop(index)
        attack.world.records.pop(leaf.record_id)
    tidied = attack.rng.choice([(False, True), (True, False), (True, True)])
    if tidied[0]:
        attack.refit()
    if tidied[1]:
        attack.world.noted = [row for row in attack.world.noted if row.size <= left]
    return {("rolled_back" if all(tidied) else "truncated", left)}


def all_tables_put_back(attack: Attack) -> Expected:
    then = attack.rng.choice([one for one in attack.past if one.count() < attack.size])
    _put_back(attack, then)
    return {("rolled_back", then.count())}


def put_back_and_written_on(attack: Attack) -> Expected:
    """By the product itself, which does not know: everything it wrote since is genuine."""
    then = attack.rng.choice([one for one in attack.past if one.count() < attack.size])
    size, at = attack.size, attack.record(attack.size - 1).at
    _put_back(attack, then)
    world = attack.world
    published = list(world.published)
    frontier: list[bytes] = []
    merkle.extend(frontier, 0, [world.leaves[index].hash for index in range(then.count())])
    for _ in range(size - then.count() + attack.rng.randrange(3)):
        worlds.place(world, frontier, worlds.written(attack.rng, world.name, at))
    worlds.sign(world, frontier, at)
    world.published = published
    return {("forked", then.count())}


def all_of_the_log_removed(attack: Attack) -> Expected:
    world = attack.world
    world.leaves, world.stored, world.noted, world.row = {}, {}, [], None
    if attack.rng.random() < 0.5:
        world.records = {}
    return {("rolled_back", 0)}


def a_bit_of_a_note(attack: Attack) -> Expected:
    """Wherever in it; a signature of an unknown key counts as one of another key."""
    place = attack.rng.randrange(len(attack.world.noted))
    row = attack.world.noted[place]
    at = attack.rng.randrange(len(row.note))
    changed = row.note[:at] + _bit_of_text(attack.rng, row.note[at]) + row.note[at + 1 :]
    attack.world.noted[place] = CheckpointRow(row.size, row.root, changed)
    return {("wrong_key" if _other_key(row.note, changed) else "bad_signature", row.size)}


def a_bit_of_a_checkpoints_row(attack: Attack) -> Expected:
    place = attack.rng.randrange(len(attack.world.noted))
    row = attack.world.noted[place]
    if attack.rng.random() < 0.5:
        changed = CheckpointRow(row.size ^ (1 << attack.rng.randrange(40)), row.root, row.note)
    else:
        changed = CheckpointRow(row.size, attack.flipped(row.root), row.note)
    attack.world.noted[place] = changed
    return {("bad_signature", row.size)}


def a_checkpoint_by_another_key(attack: Attack) -> Expected:
    place = attack.rng.randrange(len(attack.world.noted))
    row = attack.world.noted[place]
    root = row.root if attack.rng.random() < 0.5 else attack.rng.randbytes(32)
    attack.world.noted[place] = worlds.checkpoint_row(
        attack.world, row.size, root, worlds.START, key=FALSE_KEY
    )
    return {("wrong_key", row.size)}


def a_larger_tree_by_another_key(attack: Attack) -> Expected:
    size = attack.size + attack.rng.randint(1, 9)
    made = worlds.checkpoint_row(
        attack.world, size, attack.rng.randbytes(32), worlds.START, key=FALSE_KEY
    )
    attack.world.noted.append(made)
    return {("wrong_key", size)}


def a_checkpoint_taken_out(attack: Attack) -> Expected:
    row = attack.rng.choice(attack.world.noted)
    attack.world.noted.remove(row)
    return {("missing", row.size)}


def a_sealed_record_dated_back(attack: Attack) -> Expected:
    index = attack.index()
    record = attack.record(index)
    by = attack.rng.randint(11, 10**6) * MINUTES_US
    attack.replace_record(index, record._replace(at=record.at - by))
    return {("backdated", index)}


def a_record_dated_back_before_it_was_sealed(attack: Attack) -> Expected:
    """Then the sealer, who knows no better, seals it as it is."""
    return _sealed_with_a_time_off_by(attack, -attack.rng.randint(11, 999) * MINUTES_US)


def a_record_dated_ahead_before_it_was_sealed(attack: Attack) -> Expected:
    """It alone is blamed, and not the innocent ones that are sealed after it."""
    return _sealed_with_a_time_off_by(attack, attack.rng.randint(11, 999) * MINUTES_US)


def a_forged_record_sealed(attack: Attack) -> Expected:
    world = attack.world
    size, at = attack.size, attack.record(attack.size - 1).at
    frontier: list[bytes] = []
    merkle.extend(frontier, 0, [world.leaves[index].hash for index in range(size)])
    worlds.place(world, frontier, attack.forged(at))
    worlds.sign(world, frontier, at)
    return {("inserted", size)}


def a_node_changed(attack: Attack) -> Expected:
    key = attack.rng.choice(sorted(attack.world.stored))
    way = attack.rng.choice(["changed", "gone", "put"])
    if way == "changed":
        attack.world.stored[key] = attack.flipped(attack.world.stored[key])
        return {("mutated", key[1] << key[0])}
    if way == "gone":
        del attack.world.stored[key]
        return {("missing", key[1] << key[0])}
    beyond = attack.size // 256 + 1
    attack.world.stored[8, beyond] = attack.rng.randbytes(32)
    return {("inserted", beyond << 8)}


def the_logs_own_row(attack: Attack) -> Expected:
    row = attack.world.row or LogRow(0, b"")
    way = attack.rng.choice(["more", "less", "edge"])
    if way == "more":
        attack.world.row = LogRow(attack.size + attack.rng.randint(1, 2**40), row.frontier)
        return {("truncated", attack.size)}
    if way == "less":
        less = attack.rng.randrange(attack.size)
        attack.world.row = LogRow(less, row.frontier)
        return {("mutated", less)}
    attack.world.row = LogRow(row.size, attack.flipped(row.frontier))
    return {("mutated", row.size)}


ATTACKS: tuple[Callable[[Attack], Expected], ...] = (
    a_bit_of_a_column,
    a_bit_of_the_details,
    a_bit_of_a_time,
    a_bit_of_an_id,
    a_bit_of_a_leaf,
    a_record_and_its_leaf,
    a_record_taken_out,
    a_leaf_taken_out,
    a_leaf_taken_out_and_the_gap_closed,
    an_invented_record,
    a_leaf_put_at_the_end,
    a_leaf_put_between,
    two_leaves_swapped,
    a_leaf_moved_along,
    two_records_contents_swapped,
    the_tail_cut_off,
    all_tables_put_back,
    put_back_and_written_on,
    all_of_the_log_removed,
    a_bit_of_a_note,
    a_bit_of_a_checkpoints_row,
    a_checkpoint_by_another_key,
    a_larger_tree_by_another_key,
    a_checkpoint_taken_out,
    a_sealed_record_dated_back,
    a_record_dated_back_before_it_was_sealed,
    a_record_dated_ahead_before_it_was_sealed,
    a_forged_record_sealed,
    a_node_changed,
    the_logs_own_row,
)


def _put_back(attack: Attack, then: World) -> None:
    """All tables; what was published stays, being elsewhere."""
    published = attack.world.published
    attack.world = then.copy()
    attack.world.published = published


def _sealed_with_a_time_off_by(attack: Attack, by: int) -> Expected:
    world = attack.world
    size, at = attack.size, attack.record(attack.size - 1).at
    record = worlds.written(attack.rng, world.name, at)
    frontier: list[bytes] = []
    merkle.extend(frontier, 0, [world.leaves[index].hash for index in range(size)])
    worlds.place(world, frontier, record._replace(at=at + by))
    for _ in range(attack.rng.randrange(4)):
        worlds.place(world, frontier, worlds.written(attack.rng, world.name, at))
    worlds.sign(world, frontier, at)
    return {("backdated", size)}


def _other_key(note: str, changed: str) -> bool:
    (text, _, line), (other, _, below) = note.rpartition(" "), changed.rpartition(" ")
    if text != other or len(line) != len(below) or below[-1] != "\n":
        return False
    try:
        signature = base64.b64decode(below[:-1], validate=True)
    except ValueError:
        return False
    return signature[:4] != base64.b64decode(line)[:4]


def _neighbours(kind: str, first: int, second: int) -> Expected:
    """Two adjacent ones are reported as one."""
    return {(kind, first)} if second == first + 1 else {(kind, first), (kind, second)}


def _bit_of_text(rng: random.Random, text: str) -> str:
    """One bit of one character, so that it is still text the database takes."""
    while True:
        place = rng.randrange(len(text))
        changed = chr(ord(text[place]) ^ (1 << rng.randrange(7)))
        if changed != "\0":
            return text[:place] + changed + text[place + 1 :]
