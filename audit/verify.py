"""Whether a log is what was sealed and published of it, and if not, what was done to it and where.

Read-only, and believes nothing that stands in the database alone: macs are made with a key outside
it, checkpoints are signed with another, and anchors are kept elsewhere.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from audit.checkpoints import key_id
from audit.verification.chunks import CHUNK, Chunk, Keys, Task, examine, examine_alone, mac_with
from audit.verification.clocks import clock_of
from audit.verification.findings import Finding, Kind, Report, in_order
from audit.verification.places import Damage, Scene, Told, explain, gathered
from audit.verification.rows import LogRow, Source, Stray, micros_of, shown_time
from audit.verification.statements import Published, Signed, read_all
from audit.verification.tree import Tree, begun, differing

Examined = Callable[[Source, Iterable[Task]], Iterable[Chunk]]
PUBLISHED_WITHIN = timedelta(minutes=5)
_SHORT = (Kind.MISSING, Kind.TRUNCATED, Kind.ROLLED_BACK)
_OTHERWISE_TOLD = (Kind.BAD_SIGNATURE, Kind.WRONG_KEY, Kind.TRUNCATED, Kind.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed. There are no `keys` for somebody who has public keys alone; `published` is
    the `whole` of what we left outside the database, or what somebody kept of it."""

    origin: str
    public: Sequence[bytes]
    published: Sequence[Published]
    keys: Keys | None = None
    whole: bool = True


def one_by_one(source: Source, tasks: Iterable[Task]) -> Iterator[Chunk]:
    return (examine(source, task) for task in tasks)


def verify(source: Source, trust: Trust, first: int = 0, examined: Examined = one_by_one) -> Report:
    """Of the leaves from `first` on, or from a little before."""
    return _Verification(source, trust, first - first % CHUNK, examined).report()


class _Verification:
    def __init__(self, source: Source, trust: Trust, first: int, examined: Examined) -> None:
        self.source, self.keys, self.first, self.whole = source, trust.keys, first, trust.whole
        self.log = source.log() or LogRow(0, b"")
        # Soon: the file of a key is of no snapshot, and may be erased while the rest is looked at.
        self.without_payload = source.payloads_gone()
        self.count = source.count()
        self.noted = source.checkpoints()
        keys = {key_id(trust.origin, public): public for public in trust.public}
        self.said = read_all(trust.origin, self.noted, trust.published, keys)
        exported = source.exported()
        self.exported, self.spoiled = exported.ranges, exported.spoiled
        self.clock = clock_of(self._standing())
        self.stored = source.nodes()
        self.tree = self._grown(examined)
        self.strays = source.strays()
        self.damage = self._explained()
        self.reach = self.damage.reach

    def report(self) -> Report:
        compared = [*self._compared(given_up=False), *self._compared(given_up=True)]
        findings = [*self.said.findings, *self.damage.findings, *gathered(self._late()), *compared]
        findings += [*self._short(findings), *self._unkept(findings)]
        if self.damage.broken_from is None and not _any(findings, _SHORT):
            findings += [*self._own_row(), *differing(self.tree, self.stored)]
        findings += [*self._astray(findings), *self._unfinished()]
        findings += [*self.spoiled, *self._unpublished(), *self._without_payload()]
        anchors = sum(one.anchored for one in self.said.signed)
        return Report(self.source.name, self.count, len(self.noted), anchors, in_order(findings))

    def _grown(self, examined: Examined) -> Tree:
        beyond = self.source.beyond(self.count)
        end = max(self.count, self.said.size()) if beyond else self.count
        sizes = {one.size for one in self.said.signed} | {self.log.size}
        marks = sorted(size for size in sizes if size <= end)
        tree = begun(self.first, self.stored, marks)
        for chunk in examined(self.source, self._tasks(tree, end)):
            tree.add(chunk)
        if beyond and (rows := self.source.beyond(end)):
            tree.add(examine_alone(self.source, rows, self._task(end, end, [])))
        return tree

    def _tasks(self, tree: Tree, end: int) -> Iterator[Task]:
        for first in range(self.first, end, CHUNK):
            last = min(end, first + CHUNK)
            low, high = bisect_right(tree.marks, first), bisect_right(tree.marks, last)
            yield self._task(first, last, tree.marks[low:high])

    def _task(self, first: int, end: int, marks: Sequence[int]) -> Task:
        clock = self.clock.around(first, end)
        return Task(first, end, marks, self.exported, self.keys, clock)

    def _explained(self) -> Damage:
        return explain(
            Scene(
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

    def _compared(self, *, given_up: bool) -> Iterator[Finding]:
        """With what was signed: in the database, and outside it."""
        group = [one for one in self.said.signed if self.said.given_up(one) is given_up]
        known = [(one, root) for one in group if (root := self._root(one)) is not None]
        forks = [one.size for one, root in known if root != one.root]
        if forks:
            agreed = [one.size for one, root in known if root == one.root and one.size < min(forks)]
            says = f"the first {min(forks)} records are not those that were signed"
            yield self._finding(Kind.FORKED, max([self.first, *agreed]), says, given_up)
        ahead = [one for one in group if one.size > self.reach]
        largest = max((one.size for one in ahead), default=0)
        says = f"{self.reach} records are left of {largest} that were signed"
        if ahead and (self._row_says_more() or any(not one.anchored for one in ahead)):
            yield self._finding(Kind.TRUNCATED, self.reach, says, given_up)
        elif ahead and not forks:
            yield self._finding(Kind.ROLLED_BACK, self.reach, says, given_up)

    def _root(self, one: Signed) -> bytes | None:
        """That of the leaves at the size; None where they cannot tell."""
        broken = self.damage.broken_from
        if one.size > self.reach or (broken is not None and one.size > broken):
            return None
        return self.tree.root(one.size)

    def _finding(self, kind: Kind, index: int, says: str, accepted: bool) -> Finding:
        if accepted:
            says = f"{says}; {self.said.acceptance}"
        return Finding(kind, index, says, accepted)

    def _short(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        if self._row_says_more() and not _any(findings, (Kind.TRUNCATED,)):
            says = f"{self.reach} records are left of {self.log.size} that the log's row counts"
            yield Finding(Kind.TRUNCATED, self.reach, says)

    def _row_says_more(self) -> bool:
        there = (one.row.number + 1 for one in self.tree.suspects)
        return self.log.size > max([self.count, self.reach, *there])

    def _unkept(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        """Checkpoints that were published and are not in the database."""
        if _any(findings, _OTHERWISE_TOLD):
            return
        kept = {(row.size, row.root) for row in self.noted}
        kept |= {(one.size, one.root) for one in self.said.signed if not one.anchored}
        for one in self.said.signed:
            gone = one.anchored and (one.size, one.root) not in kept
            if gone and not self.said.given_up(one) and self._root(one) == one.root:
                says = f"the checkpoint of {one.size} records, which was published, is gone"
                yield Finding(Kind.MISSING, one.size, says)

    def _unpublished(self) -> Iterator[Finding]:
        """What was signed is published at once, and again every minute. Of a checkpoint that is far
        younger than all that was published the anchor was taken away."""
        inside = [one for one in self.said.signed if not one.anchored]
        if not self.whole or not inside:
            return
        newest = max(inside, key=lambda one: one.at)
        outside = [one.at for one in self.said.signed if one.anchored]
        known = max(outside, default=min(one.at for one in inside))
        if newest.at - known > PUBLISHED_WITHIN:
            says = f"what was published after {known:%Y-%m-%d %H:%M:%S} UTC is gone"
            yield Finding(Kind.MISSING, newest.size, f"{says}: the anchors were removed")

    def _own_row(self) -> Iterator[Finding]:
        size = self.log.size
        frontier = self.tree.frontiers.get(size, [] if size == 0 else None)
        if size != self.reach:
            says = f"the log's row counts {size} records where {self.reach} were sealed"
            yield Finding(Kind.MUTATED, size, says)
        elif frontier is not None and b"".join(frontier) != self.log.frontier:
            yield Finding(Kind.MUTATED, size, "the log's row is not the edge of its tree")

    def _late(self) -> Iterator[Told]:
        """Records whose time the clock of this very history never showed."""
        if not self.tree.odd:
            return
        clock = clock_of(one for one in self._standing() if self._root(one) == one.root)
        for index, at in self.tree.odd:
            span = clock.span(index)
            if not span.low <= at <= span.high:
                says = f"its time, {shown_time(at)}, is neither its id's nor that of its sealing"
                yield Kind.BACKDATED, index, says

    def _standing(self) -> Iterator[Signed]:
        return (one for one in self.said.signed if not self.said.given_up(one))

    def _astray(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        """Records without a place: nobody of ours wrote them, or they wait for too long."""
        strays = [one for one in self.strays if one.record_id not in self.damage.explained]
        genuine = [one for one in strays if self._genuine(one)]
        for one in strays:
            if one not in genuine:
                says = f"Toolcrib did not write the record {UUID(bytes=one.record_id)}"
                yield Finding(Kind.INSERTED, None, says)
        due = [one for one in genuine if one.due]
        if due and not _any(findings, _SHORT):
            oldest = f"{UUID(bytes=due[0].record_id)} of {shown_time(micros_of(due[0].at))}"
            yield Finding(Kind.UNSEALED, None, f"{len(due)} records have no place, first {oldest}")

    def _genuine(self, one: Stray) -> bool:
        if self.keys is None:
            return True
        body = self.source.exact_body(one.record_id)
        return mac_with(self.keys.record)(body) == one.record_mac

    def _without_payload(self) -> Iterator[Finding]:
        for index, says in self.without_payload:
            yield Finding(Kind.MISSING, index, says)

    def _unfinished(self) -> Iterator[Finding]:
        for record_id, index in self.source.unfinished():
            yield Finding(Kind.UNFINISHED, index, f"the call that {record_id} began never ended")


def _any(findings: Sequence[Finding], kinds: tuple[Kind, ...]) -> bool:
    return any(one.kind in kinds and not one.accepted for one in findings)
