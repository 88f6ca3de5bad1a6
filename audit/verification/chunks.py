"""65,536 leaves at a time: each against its record, its macs and its neighbours, and their tree.

This is where the time goes. Chunks can be examined in any order, in several processes.

The time of a record is that of the database's clock, which signed checkpoints show too: an attacker
who has only the database cannot sign others. A clock that was set forward or back was so for the
checkpoints of that time as well.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from audit.log import merkle
from audit.log.merkle import Frontier
from audit.verification.log_source import (
    LogSource,
    RawRow,
    RecordRow,
    decode_micros,
    hashed_leaf,
    in_ranges,
    raw_body,
)
from audit.verification.verification_report import FindingKind, VerificationFinding

CLOCKS_AGREE_WITHIN = timedelta(minutes=10)
_SLACK_US = CLOCKS_AGREE_WITHIN // timedelta(microseconds=1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_MS = int(_EPOCH.timestamp() * 1000)
_EVER_US = 1 << 64
BLOCK_LEVEL, CHUNK_LEVEL = 8, 16
BLOCK, CHUNK = 1 << BLOCK_LEVEL, 1 << CHUNK_LEVEL
MOST_SUSPECTS = 1000  # of a chunk: enough to show what was done, and bounded
_READ = 4096
MacFunction = Callable[[bytes], bytes]
Nodes = dict[tuple[int, int], bytes]
_STORED_LEVEL_STEP = 8  # a node is stored for every level that is a multiple of it


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The times, in microseconds since 2000, that records before the index `until` may have."""

    low: int
    high: int
    until: int


@dataclass(frozen=True, slots=True)
class SigningClock:
    """Sizes that were signed, sorted, each with the first and the last time it was signed at."""

    signed: Sequence[tuple[int, int, int]]

    def span(self, index: int) -> TimeSpan:
        """Of records sealed together with that one. Anything, without a checkpoint."""
        place = self._position_after(index)
        if place == len(self.signed):
            return TimeSpan(-_EVER_US, _EVER_US, _EVER_US)
        until, sealed_at, _ = self.signed[place]
        if place == 0:
            return TimeSpan(-_EVER_US, sealed_at + _SLACK_US, until)
        before = self.signed[place - 1][2]
        return TimeSpan(
            min(before, sealed_at) - _SLACK_US, max(before, sealed_at) + _SLACK_US, until
        )

    def _position_after(self, index: int) -> int:
        return bisect_right(self.signed, index, key=lambda one: one[0])


def contradicts_id(record_id: bytes, at: int) -> bool:
    """Whether a record's time is not that which its id, a UUID of version 7, was made at.

    By itself it is no evidence: the clock of the process that made the id may be wrong.
    """
    made = (int.from_bytes(record_id[:6]) - _EPOCH_MS) * 1000
    return not -_SLACK_US <= made - at <= _SLACK_US


@dataclass(frozen=True, slots=True)
class MacKeys:
    """One log's keys for macs, which are outside the database."""

    record: bytes
    place: bytes


@dataclass(frozen=True, slots=True)
class SuspectLeaf:
    """A leaf with which something is wrong. `hash` is its record's, where there is one.

    `genuine` where its mac is good, or cannot be asked; `vouched` where it was asked and is good.
    """

    row: RecordRow
    hash: bytes | None
    genuine: bool
    vouched: bool


@dataclass(slots=True)
class Chunk:
    """What was found. `frontiers` are those of its own leaves alone, at the marks asked for;
    `sound` is one past the last leaf with which nothing is wrong, `odd` places and times of records
    with which nothing but their time is."""

    first: int
    sound: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    suspects: list[SuspectLeaf] = field(default_factory=list)
    frontiers: dict[int, Frontier] = field(default_factory=dict)
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)
    odd: list[tuple[int, int]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.gaps and not self.suspects and not self.odd


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """What is to be examined: `first` is a multiple of `CHUNK`, and `end` at most as far from it.
    `marks` are sorted; records of the ranges in `exported` need not be there."""

    first: int
    end: int
    marks: Sequence[int]
    exported: Sequence[tuple[int, int]]
    keys: MacKeys | None
    clock: SigningClock


def examine_chunk(source: LogSource, task: ChunkTask) -> Chunk:
    chunk = Chunk(task.first)
    check = _LeafCheck(source, task, chunk)
    hashes: list[bytes] = []
    expected = task.first
    for begin in range(task.first, task.end, _READ):
        rows = source.rows(begin, min(task.end, begin + _READ))
        for row in rows:
            if row[0] != expected:
                chunk.gaps.append((expected, row[0]))
            expected = row[0] + 1
            check.leaf(row)
        whole = chunk.gaps[0][0] if chunk.gaps else task.end
        hashes += [row[2] for row in rows if row[0] < whole]
    if expected < task.end:
        chunk.gaps.append((expected, task.end))
    _build_tree(chunk, hashes, task.marks)
    return chunk


def examine_surplus(source: LogSource, rows: Sequence[RawRow], task: ChunkTask) -> Chunk:
    """Leaves beyond the end of the log, without a tree."""
    chunk = Chunk(task.first)
    check = _LeafCheck(source, task, chunk)
    for row in rows:
        check.leaf(row)
    return chunk


def mac_function(key: bytes) -> MacFunction:
    """HMAC-SHA-256, twice as fast as the library's for many short messages under one key."""
    block = key.ljust(64, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

    def mac(message: bytes) -> bytes:
        inside, outside = inner.copy(), outer.copy()
        inside.update(message)
        outside.update(inside.digest())
        return outside.digest()

    return mac


class _LeafCheck:
    def __init__(self, source: LogSource, task: ChunkTask, chunk: Chunk) -> None:
        self.source, self.chunk, self.exported = source, chunk, task.exported
        keys = task.keys
        self.record_mac = mac_function(keys.record) if keys else None
        self.place_mac = mac_function(keys.place) if keys else None
        self.clock, self.span = task.clock, TimeSpan(0, 0, task.first)

    def leaf(self, row: RawRow) -> None:
        index, record_id, stored, place, at, mac, head, details, tail = row
        made, moment, genuine = None, 0, True
        if at is not None and mac is not None and head and details is not None and tail:
            body = raw_body(self.source, record_id, head, details, tail)
            moment = decode_micros(at)
            made = sha256(hashed_leaf(body, mac, moment)).digest()
            if made != stored:  # perhaps a field needs escaping that does not look like it
                body = self.source.exact_body(record_id)
                made = sha256(hashed_leaf(body, mac, moment)).digest()
            if self.record_mac is not None:
                genuine = self.record_mac(body) == mac
        placed = self.place_mac is None or self.place_mac(index.to_bytes(8) + stored) == place
        right = made == stored or (made is None and in_ranges(index, self.exported))
        if right and placed and genuine:
            self.chunk.sound = index + 1
            if made is not None and self._odd(index, record_id, moment):
                self.chunk.odd.append((index, moment))
        elif len(self.chunk.suspects) < MOST_SUSPECTS:
            vouched = genuine and self.record_mac is not None
            self.chunk.suspects.append(SuspectLeaf(RecordRow._make(row), made, genuine, vouched))

    def _odd(self, index: int, record_id: bytes, at: int) -> bool:
        """Whether both witnesses are against its time: the checkpoints it was sealed between, and
        its own id. One alone may be wrong: a long transaction's records are sealed late, and the
        clock of the process that made the id is not the database's.
        """
        if index >= self.span.until:
            self.span = self.clock.span(index)
        outside = not self.span.low <= at <= self.span.high
        return outside and len(self.chunk.odd) < MOST_SUSPECTS and contradicts_id(record_id, at)


@dataclass(slots=True)
class LogTree:
    """What the chunks make together. `on_size` is called with the edge at each requested size; it
    ends at the first gap."""

    first: int
    frontier: Frontier
    on_size: Callable[[int, Frontier], None]
    nodes: Nodes = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    suspects: list[SuspectLeaf] = field(default_factory=list)
    odd: list[tuple[int, int]] = field(default_factory=list)
    sound: int = 0

    def add(self, chunk: Chunk) -> None:
        whole = not self.gaps
        self.gaps += chunk.gaps
        self.suspects += chunk.suspects
        self.odd += chunk.odd
        self.sound = max(self.sound, chunk.sound)
        if not whole:
            return
        for mark, own in chunk.frontiers.items():
            self.on_size(mark, [*self.frontier, *own])
        self.nodes |= chunk.nodes
        made = chunk.nodes.get((CHUNK_LEVEL, chunk.first >> CHUNK_LEVEL))
        if made is not None:
            merkle.extend(self.frontier, chunk.first >> CHUNK_LEVEL, [made], self._store_node)
            self.on_size(chunk.first + CHUNK, self.frontier)

    def _store_node(self, level: int, index: int, made: bytes) -> None:
        if level % _STORED_LEVEL_STEP == 0:
            self.nodes[level + CHUNK_LEVEL, index] = made


def begin_tree(first: int, stored: Nodes, on_size: Callable[[int, Frontier], None]) -> LogTree:
    """The tree of what comes before `first`, a multiple of `CHUNK`, as its nodes say.

    Every root that is signed later shows whether they are right. Raises LookupError where one
    is missing.
    """
    frontier: Frontier = []
    for number in range(first >> CHUNK_LEVEL):
        merkle.extend(frontier, number, [stored[CHUNK_LEVEL, number]])
    on_size(first, frontier)
    return LogTree(first, frontier, on_size)


def differing_nodes(tree: LogTree, stored: Nodes) -> list[VerificationFinding]:
    """Stored nodes that are not those of the leaves."""
    found = []
    for key in sorted(stored.keys() | tree.nodes.keys()):
        (level, index), made = key, tree.nodes.get(key)
        first = index << level
        if first < tree.first or made == stored.get(key):
            continue
        if made is None:
            found.append(
                VerificationFinding(
                    FindingKind.INSERTED, first, f"{_node_name(key)} belongs to nothing"
                )
            )
        elif key not in stored:
            found.append(
                VerificationFinding(FindingKind.MISSING, first, f"{_node_name(key)} is gone")
            )
        else:
            found.append(
                VerificationFinding(
                    FindingKind.MUTATED, first, f"{_node_name(key)} is not that of its leaves"
                )
            )
    return found


def _build_tree(chunk: Chunk, hashes: list[bytes], marks: Sequence[int]) -> None:
    """The chunk's own tree: its nodes, and its frontiers at the marks."""
    above: Frontier = []
    for start in range(0, len(hashes), BLOCK):
        block = hashes[start : start + BLOCK]
        first = chunk.first + start
        wanted = marks[bisect_right(marks, first) : bisect_left(marks, first + BLOCK)]
        below = _frontiers_at_marks(chunk, first, block, wanted, above)
        if len(block) < BLOCK:
            continue
        made = below[0] if below else _block_root(block)
        chunk.nodes[BLOCK_LEVEL, first >> BLOCK_LEVEL] = made
        merkle.extend(above, start >> BLOCK_LEVEL, [made])
        if _contains(marks, first + BLOCK):
            chunk.frontiers[first + BLOCK] = list(above)
    if len(hashes) == CHUNK:
        chunk.nodes[CHUNK_LEVEL, chunk.first >> CHUNK_LEVEL] = above[0]


def _frontiers_at_marks(
    chunk: Chunk, first: int, block: list[bytes], marks: Sequence[int], above: Frontier
) -> Frontier:
    """Of a block in which there are marks; the frontier at its end."""
    below: Frontier = []
    done = 0
    for mark in marks:
        if mark - first <= len(block):
            done = merkle.extend(below, done, block[done : mark - first])
            chunk.frontiers[mark] = [*above, *below]
    if marks:
        merkle.extend(below, done, block[done:])
    return below


def _contains(marks: Sequence[int], mark: int) -> bool:
    return bisect_left(marks, mark) < bisect_right(marks, mark)


def _block_root(block: list[bytes]) -> bytes:
    while len(block) > 1:
        pairs = zip(block[::2], block[1::2], strict=True)
        block = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
    return block[0]


def _node_name(key: tuple[int, int]) -> str:
    return f"the tree's node {key[1]} at level {key[0]}"
