"""Verify that a log is what was sealed and published of it; if not, report what was done and where.

Read-only, and trusts nothing that is only in the database: macs are made with a key outside it,
checkpoints are signed with another, and anchors are kept elsewhere.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from audit.log import merkle
from audit.log.checkpoints import key_id
from audit.log.merkle import Frontier
from audit.verification.chunks import (
    CHUNK,
    Chunk,
    ChunkTask,
    MacKeys,
    examine_chunk,
    examine_surplus,
    mac_function,
)
from audit.verification.damage_diagnosis import (
    DamageItem,
    DamageReport,
    DamageScene,
    diagnose,
    merge_adjacent,
)
from audit.verification.log_source import (
    LogRow,
    LogSource,
    UnsealedRecord,
    decode_micros,
    format_time,
)
from audit.verification.statements import (
    PublishedNote,
    Spread,
    Statements,
    map_in_turn,
    read_statements,
)
from audit.verification.tree import LogTree, begin_tree, differing_nodes
from audit.verification.verification_report import (
    FindingKind,
    VerificationFinding,
    VerificationReport,
    VerifiedTree,
    sort_findings,
)

ExamineChunks = Callable[[LogSource, Iterable[ChunkTask]], Iterable[Chunk]]
PUBLISHED_WITHIN = timedelta(minutes=5)
_SHORT_KINDS = (FindingKind.MISSING, FindingKind.TRUNCATED, FindingKind.ROLLED_BACK)
_REPORTED_OTHERWISE = (
    FindingKind.BAD_SIGNATURE,
    FindingKind.WRONG_KEY,
    FindingKind.TRUNCATED,
    FindingKind.ROLLED_BACK,
)


class CannotResume(Exception):
    """The log cannot be verified from that place on; the message says why."""


@dataclass(frozen=True, slots=True)
class VerificationTrust:
    """What is believed. There are no `keys` for a verifier who has public keys alone; `published`
    is the `whole` of the anchors outside the database, or of a copy of them. `verified`: from there
    on the log is looked at, and what came before is believed as far as its root goes."""

    origin: str
    public: Sequence[bytes]
    published: Iterable[PublishedNote]
    keys: MacKeys | None = None
    whole: bool = True
    verified: VerifiedTree | None = None


@dataclass(frozen=True, slots=True)
class VerificationWorkers:
    """Who reads notes and examines leaves: this process, or several."""

    examined: ExamineChunks
    spread: Spread


def examine_in_turn(source: LogSource, tasks: Iterable[ChunkTask]) -> Iterator[Chunk]:
    return (examine_chunk(source, task) for task in tasks)


SINGLE_PROCESS = VerificationWorkers(examine_in_turn, map_in_turn)


def verify_log(
    source: LogSource,
    trust: VerificationTrust,
    first: int = 0,
    workers: VerificationWorkers = SINGLE_PROCESS,
) -> VerificationReport:
    """Of the leaves from `first` on, or from a little before. Raises `CannotResume` where what comes
    before cannot be taken as it is."""
    base = trust.verified
    since = base.size if base is not None else 0
    keys = {key_id(trust.origin, public): public for public in trust.public}
    # Published before noted: a checkpoint is in the database before it is anywhere else.
    noted = source.checkpoints(since)
    read = read_statements(
        trust.origin, noted, trust.published, keys, spread=workers.spread, since=since
    )
    with closing(read) as said:
        if base is not None:
            if said.given_up(base.at):
                raise CannotResume("a break of the log was accepted since")
            said.add_verified(base)
        first = max(first, since)
        return _Verification(source, trust, said, first - first % CHUNK, workers).report()


class _Verification:
    def __init__(
        self,
        source: LogSource,
        trust: VerificationTrust,
        said: Statements,
        first: int,
        workers: VerificationWorkers,
    ) -> None:
        self.since = trust.verified.size if trust.verified is not None else 0
        self.source, self.keys, self.first, self.whole = source, trust.keys, first, trust.whole
        self.said = said
        with source.moment():
            self.log = source.log() or LogRow(0, b"")
            # The file of a key is of no snapshot, and may be erased while the rest is looked at.
            self.without_payload = source.payloads_gone()
            self.count = source.count()
            self.stored = source.nodes()
            self.strays = source.strays()
            self.unfinished = source.unfinished()
            beyond = source.beyond(self.count)
            self.end = max(self.count, said.size()) if beyond else self.count
            self.beyond = source.beyond(self.end) if beyond else []
        self.files = source.files()
        exported = source.exported()
        self.exported, self.spoiled = exported.ranges, exported.spoiled
        self.edge: Frontier | None = None
        self.tree = self._grown(workers.examined)
        self.damage = self._explained()
        self.reach = self.damage.reach
        broken = self.damage.broken_from
        self.sound = self.reach if broken is None else min(self.reach, broken)

    def report(self) -> VerificationReport:
        compared = [*self._compared(given_up=False), *self._compared(given_up=True)]
        findings = [
            *self.said.findings,
            *self.damage.findings,
            *merge_adjacent(self._late()),
            *compared,
        ]
        findings += [*self._short(findings), *self._unkept(findings)]
        if self.damage.broken_from is None and not _has_kind(findings, _SHORT_KINDS):
            findings += [*self._own_row(), *differing_nodes(self.tree, self.stored)]
        findings += [*self._astray(findings), *self._unfinished()]
        findings += [*self.spoiled, *self._unpublished(), *self._without_payload()]
        said = self.said
        return VerificationReport(
            self.source.name,
            self.count,
            said.notes,
            said.anchors,
            sort_findings(findings),
            said.verified(self.sound),
            self.since,
        )

    def _grown(self, examined: ExamineChunks) -> LogTree:
        try:
            tree = begin_tree(self.first, self.stored, self._reached)
        except LookupError as missing:
            raise CannotResume(f"the node {missing} of the tree is not there") from None
        for chunk in examined(self.source, self._tasks()):
            tree.add(chunk if chunk.clean else self._again(chunk))
        if self.beyond:
            task = self._task(self.end, self.end)
            tree.add(examine_surplus(self.source, self.beyond, task))
        return tree

    def _again(self, chunk: Chunk) -> Chunk:
        """Records may have left since, and rightly: their file is there before they leave."""
        files = self.source.files()
        if files == self.files:
            return chunk
        self.files, self.exported = files, self.source.exported().ranges
        return examine_chunk(
            self.source, self._task(chunk.first, min(self.end, chunk.first + CHUNK))
        )

    def _reached(self, size: int, frontier: Frontier) -> None:
        self.said.compare(size, merkle.frontier_root(frontier))
        if size == self.log.size:
            self.edge = list(frontier)

    def _tasks(self) -> Iterator[ChunkTask]:
        for first in range(self.first, self.end, CHUNK):
            yield self._task(first, min(self.end, first + CHUNK))

    def _task(self, first: int, end: int) -> ChunkTask:
        marks = self.said.marks(first, end)
        if first < self.log.size <= end and self.log.size not in marks:
            marks = sorted([*marks, self.log.size])
        return ChunkTask(first, end, marks, self.exported, self.keys, self.said.clock(first, end))

    def _explained(self) -> DamageReport:
        return diagnose(
            DamageScene(
                source=self.source,
                suspects=self.tree.suspects,
                gaps=self.tree.gaps,
                exported=self.exported,
                strays=self.strays,
                place_key=self.keys.place if self.keys else None,
                end=max(self.tree.sound, min(self.first, self.count)),
                signed=self.said.size(),
            )
        )

    def _compared(self, *, given_up: bool) -> Iterator[VerificationFinding]:
        """With what was signed: in the database, and outside it."""
        found = self.said.compared(given_up=given_up, reach=self.reach, sound=self.sound)
        if found.forked is not None:
            says = f"the first {found.forked} records are not those that were signed"
            agreed = max(self.first, found.agreed or 0)
            yield self._finding(FindingKind.FORKED, agreed, says, given_up)
        if found.ahead is None:
            return
        says = f"{self.reach} records are left of {found.ahead} that were signed"
        if self._row_says_more() or found.ahead_noted:
            yield self._finding(FindingKind.TRUNCATED, self.reach, says, given_up)
        elif found.forked is None:
            yield self._finding(FindingKind.ROLLED_BACK, self.reach, says, given_up)

    def _finding(
        self, kind: FindingKind, index: int, says: str, accepted: bool
    ) -> VerificationFinding:
        if accepted:
            says = f"{says}; {self.said.acceptance}"
        return VerificationFinding(kind, index, says, accepted)

    def _short(self, findings: Sequence[VerificationFinding]) -> Iterator[VerificationFinding]:
        if self._row_says_more() and not _has_kind(findings, (FindingKind.TRUNCATED,)):
            says = f"{self.reach} records are left of {self.log.size} that the log's row counts"
            yield VerificationFinding(FindingKind.TRUNCATED, self.reach, says)

    def _row_says_more(self) -> bool:
        there = (one.row.number + 1 for one in self.tree.suspects)
        return self.log.size > max([self.count, self.reach, *there])

    def _unkept(self, findings: Sequence[VerificationFinding]) -> Iterator[VerificationFinding]:
        """Checkpoints that were published and are not in the database, and the other way round."""
        if _has_kind(findings, _REPORTED_OTHERWISE):
            return
        for size in self.said.unkept(self.sound):
            says = f"the checkpoint of {size} records, which was published, is gone"
            yield VerificationFinding(FindingKind.MISSING, size, says)
        for size in self.said.unanchored(self.sound) if self.whole else ():
            says = f"the anchor of {size} records is gone: what was published was removed"
            yield VerificationFinding(FindingKind.MISSING, size, says)

    def _unpublished(self) -> Iterator[VerificationFinding]:
        """What was signed is published at once, and again every minute. Of a checkpoint that is far
        younger than all that was published the anchor was taken away."""
        found = self.said.unpublished() if self.whole else None
        if found is None:
            return
        size, newest, known = found
        if newest - known > PUBLISHED_WITHIN:
            says = f"what was published after {known:%Y-%m-%d %H:%M:%S} UTC is gone"
            yield VerificationFinding(
                FindingKind.MISSING, size, f"{says}: the anchors were removed"
            )

    def _own_row(self) -> Iterator[VerificationFinding]:
        size = self.log.size
        frontier = [] if size == 0 else self.edge
        if size != self.reach:
            says = f"the log's row counts {size} records where {self.reach} were sealed"
            yield VerificationFinding(FindingKind.MUTATED, size, says)
        elif frontier is not None and b"".join(frontier) != self.log.frontier:
            yield VerificationFinding(
                FindingKind.MUTATED, size, "the log's row is not the edge of its tree"
            )

    def _late(self) -> Iterator[DamageItem]:
        """Records whose time the clock of this very history never showed."""
        for index, at in self.tree.odd:
            span = self.said.clock(index, index + 1, self.sound).span(index)
            if not span.low <= at <= span.high:
                says = f"its time, {format_time(at)}, is neither its id's nor that of its sealing"
                yield FindingKind.BACKDATED, index, says

    def _astray(self, findings: Sequence[VerificationFinding]) -> Iterator[VerificationFinding]:
        """Unsealed records: Toolcrib did not write them, or they wait for too long."""
        strays = [one for one in self.strays if one.record_id not in self.damage.explained]
        genuine = [one for one in strays if self._genuine(one)]
        for one in strays:
            if one not in genuine:
                says = f"Toolcrib did not write the record {UUID(bytes=one.record_id)}"
                yield VerificationFinding(FindingKind.INSERTED, None, says)
        due = [one for one in genuine if one.due]
        if due and not _has_kind(findings, _SHORT_KINDS):
            oldest = f"{UUID(bytes=due[0].record_id)} of {format_time(decode_micros(due[0].at))}"
            yield VerificationFinding(
                FindingKind.UNSEALED, None, f"{len(due)} records have no place, first {oldest}"
            )

    def _genuine(self, one: UnsealedRecord) -> bool:
        if self.keys is None:
            return True
        body = self.source.exact_body(one.record_id)
        return mac_function(self.keys.record)(body) == one.record_mac

    def _without_payload(self) -> Iterator[VerificationFinding]:
        for index, says in self.without_payload:
            yield VerificationFinding(FindingKind.MISSING, index, says)

    def _unfinished(self) -> Iterator[VerificationFinding]:
        for record_id, index in self.unfinished:
            yield VerificationFinding(
                FindingKind.UNFINISHED, index, f"the call that {record_id} began never ended"
            )


def _has_kind(findings: Sequence[VerificationFinding], kinds: tuple[FindingKind, ...]) -> bool:
    return any(one.kind in kinds and not one.accepted for one in findings)
