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
    LogTree,
    MacKeys,
    begin_tree,
    differing_nodes,
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
    """Verify the leaves from `first` on, or from a little before. Raises `CannotResume` if the part
    before cannot be taken as it is."""
    base = trust.verified
    since = base.size if base is not None else 0
    keys = {key_id(trust.origin, public): public for public in trust.public}
    # Published before noted: a checkpoint is in the database before it is anywhere else.
    noted = source.checkpoints(since)
    read = read_statements(
        trust.origin, noted, trust.published, keys, spread=workers.spread, since=since
    )
    with closing(read) as statements:
        if base is not None:
            if statements.before_break(base.at):
                raise CannotResume("a break of the log was accepted since")
            statements.add_verified(base)
        first = max(first, since)
        return _Verification(source, trust, statements, first - first % CHUNK, workers).report()


class _Verification:
    def __init__(
        self,
        source: LogSource,
        trust: VerificationTrust,
        statements: Statements,
        first: int,
        workers: VerificationWorkers,
    ) -> None:
        self.since = trust.verified.size if trust.verified is not None else 0
        self.source, self.keys, self.first, self.whole = source, trust.keys, first, trust.whole
        self.statements = statements
        with source.snapshot():
            self.log = source.log() or LogRow(0, b"")
            # The file of a key is of no snapshot, and may be erased while the rest is looked at.
            self.missing_payloads = source.missing_payloads()
            self.count = source.count()
            self.stored = source.nodes()
            self.unsealed = source.unsealed_records()
            self.unfinished = source.unfinished_calls()
            beyond = source.surplus_rows(self.count)
            self.end = max(self.count, statements.size()) if beyond else self.count
            self.beyond = source.surplus_rows(self.end) if beyond else []
        self.files = source.file_count()
        exported = source.exported_ranges()
        self.exported, self.spoiled = exported.ranges, exported.spoiled
        self.edge: Frontier | None = None
        self.tree = self._build_tree(workers.examined)
        self.damage = self._diagnose()
        self.reach = self.damage.reach
        broken = self.damage.broken_from
        self.sound = self.reach if broken is None else min(self.reach, broken)

    def report(self) -> VerificationReport:
        compared = [
            finding
            for before_break in (False, True)
            for finding in self._compare_signed(before_break=before_break)
        ]
        findings = [
            *self.statements.findings,
            *self.damage.findings,
            *merge_adjacent(self._find_backdated()),
            *compared,
        ]
        findings += [*self._find_truncation(findings), *self._find_missing_statements(findings)]
        if self.damage.broken_from is None and not _has_kind(findings, _SHORT_KINDS):
            findings += [*self._check_log_row(), *differing_nodes(self.tree, self.stored)]
        findings += [*self._find_unsealed(findings), *self._find_unfinished()]
        findings += [*self.spoiled, *self._find_removed_anchors(), *self._find_missing_payloads()]
        return VerificationReport(
            self.source.name,
            self.count,
            self.statements.notes,
            self.statements.anchors,
            sort_findings(findings),
            self.statements.largest_verified(self.sound),
            self.since,
        )

    def _build_tree(self, examined: ExamineChunks) -> LogTree:
        try:
            tree = begin_tree(self.first, self.stored, self._record_root)
        except LookupError as missing:
            raise CannotResume(f"the node {missing} of the tree is not there") from None
        for chunk in examined(self.source, self._tasks()):
            tree.add(chunk if chunk.clean else self._reexamine(chunk))
        if self.beyond:
            task = self._task(self.end, self.end)
            tree.add(examine_surplus(self.source, self.beyond, task))
        return tree

    def _reexamine(self, chunk: Chunk) -> Chunk:
        """Records may have left since, and rightly: their file is there before they leave."""
        files = self.source.file_count()
        if files == self.files:
            return chunk
        self.files, self.exported = files, self.source.exported_ranges().ranges
        return examine_chunk(
            self.source, self._task(chunk.first, min(self.end, chunk.first + CHUNK))
        )

    def _record_root(self, size: int, frontier: Frontier) -> None:
        self.statements.compare(size, merkle.frontier_root(frontier))
        if size == self.log.size:
            self.edge = list(frontier)

    def _tasks(self) -> Iterator[ChunkTask]:
        for first in range(self.first, self.end, CHUNK):
            yield self._task(first, min(self.end, first + CHUNK))

    def _task(self, first: int, end: int) -> ChunkTask:
        marks = self.statements.marks(first, end)
        if first < self.log.size <= end and self.log.size not in marks:
            marks = sorted([*marks, self.log.size])
        return ChunkTask(
            first, end, marks, self.exported, self.keys, self.statements.clock(first, end)
        )

    def _diagnose(self) -> DamageReport:
        return diagnose(
            DamageScene(
                source=self.source,
                suspects=self.tree.suspects,
                gaps=self.tree.gaps,
                exported=self.exported,
                strays=self.unsealed,
                place_key=self.keys.place if self.keys else None,
                end=max(self.tree.sound, min(self.first, self.count)),
                signed=self.statements.size(),
            )
        )

    def _compare_signed(self, *, before_break: bool) -> Iterator[VerificationFinding]:
        """With what was signed: in the database, and outside it."""
        found = self.statements.compare_group(
            before_break=before_break, reach=self.reach, sound=self.sound
        )
        if found.forked is not None:
            says = f"the first {found.forked} records are not those that were signed"
            agreed = max(self.first, found.agreed or 0)
            yield self._finding(FindingKind.FORKED, agreed, says, before_break)
        if found.ahead is None:
            return
        says = f"{self.reach} records are left of {found.ahead} that were signed"
        if self._row_says_more() or found.ahead_noted:
            yield self._finding(FindingKind.TRUNCATED, self.reach, says, before_break)
        elif found.forked is None:
            yield self._finding(FindingKind.ROLLED_BACK, self.reach, says, before_break)

    def _finding(
        self, kind: FindingKind, index: int, says: str, accepted: bool
    ) -> VerificationFinding:
        if accepted:
            says = f"{says}; {self.statements.acceptance}"
        return VerificationFinding(kind, index, says, accepted)

    def _find_truncation(
        self, findings: Sequence[VerificationFinding]
    ) -> Iterator[VerificationFinding]:
        if self._row_says_more() and not _has_kind(findings, (FindingKind.TRUNCATED,)):
            says = f"{self.reach} records are left of {self.log.size} that the log's row counts"
            yield VerificationFinding(FindingKind.TRUNCATED, self.reach, says)

    def _row_says_more(self) -> bool:
        there = (one.row.number + 1 for one in self.tree.suspects)
        return self.log.size > max([self.count, self.reach, *there])

    def _find_missing_statements(
        self, findings: Sequence[VerificationFinding]
    ) -> Iterator[VerificationFinding]:
        """Checkpoints that were published and are not in the database, and the other way round."""
        if _has_kind(findings, _REPORTED_OTHERWISE):
            return
        for size in self.statements.missing_checkpoints(self.sound):
            says = f"the checkpoint of {size} records, which was published, is gone"
            yield VerificationFinding(FindingKind.MISSING, size, says)
        for size in self.statements.missing_anchors(self.sound) if self.whole else ():
            says = f"the anchor of {size} records is gone: what was published was removed"
            yield VerificationFinding(FindingKind.MISSING, size, says)

    def _find_removed_anchors(self) -> Iterator[VerificationFinding]:
        """What was signed is published at once, and again every minute. Of a checkpoint that is far
        younger than all that was published the anchor was taken away."""
        found = self.statements.newest_unpublished() if self.whole else None
        if found is None:
            return
        size, newest, known = found
        if newest - known > PUBLISHED_WITHIN:
            says = f"what was published after {known:%Y-%m-%d %H:%M:%S} UTC is gone"
            yield VerificationFinding(
                FindingKind.MISSING, size, f"{says}: the anchors were removed"
            )

    def _check_log_row(self) -> Iterator[VerificationFinding]:
        size = self.log.size
        frontier = [] if size == 0 else self.edge
        if size != self.reach:
            says = f"the log's row counts {size} records where {self.reach} were sealed"
            yield VerificationFinding(FindingKind.MUTATED, size, says)
        elif frontier is not None and b"".join(frontier) != self.log.frontier:
            yield VerificationFinding(
                FindingKind.MUTATED, size, "the log's row is not the edge of its tree"
            )

    def _find_backdated(self) -> Iterator[DamageItem]:
        """Records whose time the clock of this very history never showed."""
        for index, at in self.tree.odd:
            span = self.statements.clock(index, index + 1, self.sound).span(index)
            if not span.low <= at <= span.high:
                says = f"its time, {format_time(at)}, is neither its id's nor that of its sealing"
                yield FindingKind.BACKDATED, index, says

    def _find_unsealed(
        self, findings: Sequence[VerificationFinding]
    ) -> Iterator[VerificationFinding]:
        """Unsealed records: Toolcrib did not write them, or they wait for too long."""
        unsealed = [one for one in self.unsealed if one.record_id not in self.damage.explained]
        genuine = [one for one in unsealed if self._genuine(one)]
        for one in unsealed:
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

    def _find_missing_payloads(self) -> Iterator[VerificationFinding]:
        for index, says in self.missing_payloads:
            yield VerificationFinding(FindingKind.MISSING, index, says)

    def _find_unfinished(self) -> Iterator[VerificationFinding]:
        for record_id, index in self.unfinished:
            yield VerificationFinding(
                FindingKind.UNFINISHED, index, f"the call that {record_id} began never ended"
            )


def _has_kind(findings: Sequence[VerificationFinding], kinds: tuple[FindingKind, ...]) -> bool:
    return any(one.kind in kinds and not one.accepted for one in findings)
