"""What a history of calls, effects and evidence must have in common, whatever happened meanwhile.

Pure: rows in, violations out. Each rule names one kind of violation and yields one for each case.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tests.faults.ledger import EFFECT, Effect
from tools.definitions.results import FINAL, REFUSED, TERMINAL, Status

UNKNOWN = "OUTCOME_UNKNOWN"
OURS = frozenset({"INTERNAL_ERROR", "POISONED"})  # faults of Toolcrib's, whatever the weather
ACCEPT, START, END = "TOOL.ACCEPT", "TOOL.START", "TOOL.END"
LOST, LATE = "TOOL.LOST", "TOOL.LATE_COMPLETION_REJECTED"
IN_FLIGHT_S = 2.0  # of what a run sent before it was killed, from its hand to the ledger's disk
LEGAL = {
    None: {
        *(Status.PENDING, Status.RUNNING, Status.REQUIRES_CONFIRMATION, Status.SUCCESS),
        *REFUSED,
    },
    Status.REQUIRES_CONFIRMATION: {Status.PENDING, Status.CANCELLED, Status.PERMISSION_DENIED},
    Status.PENDING: {Status.RUNNING, Status.CANCELLED, Status.FAILED, Status.PERMISSION_DENIED},
    Status.RUNNING: {Status.PENDING, *FINAL} - {Status.VALIDATION_ERROR},
}
# They say that the tool did not do its work; who reads that may well ask for it again.
_SAYS_NO_EFFECT = frozenset({Status.SANDBOX_ERROR, *REFUSED})


@dataclass(frozen=True)
class Row:
    id: str
    key: str
    delivery: str
    status: str
    error_code: str = ""
    fence: int = 1
    run: str | None = None  # of the output: which run's result was recorded
    goes_out: bool = False  # another server does the work, and does not hear of its caller's end
    effect_possible: bool = False  # as its error says


@dataclass(frozen=True)
class Move:
    """One change of a row's status or fence, as a trigger beside the product's saw it.

    `lease_until` is what the row said before; `reaped` where the reaper says that it was him.
    """

    execution: str
    was: str | None
    became: str
    old_fence: int | None
    fence: int
    worker: str
    at: float
    lease_until: float | None = None
    reaped: bool = False


@dataclass(frozen=True)
class AuditedEvent:
    """One audit record of an execution; `ends` where its transaction made the execution over."""

    execution: str
    code: str
    fence: int | None
    at: float
    ends: bool = False


@dataclass(frozen=True)
class Acknowledged:
    """An answer that named an execution, and what a client last saw of it."""

    key: str
    execution: str
    status: str


@dataclass(frozen=True)
class History:
    rows: tuple[Row, ...] = ()
    moves: tuple[Move, ...] = ()
    events: tuple[tuple[str, str], ...] = ()  # execution and type
    audited: tuple[AuditedEvent, ...] = ()
    effects: tuple[Effect, ...] = ()
    acknowledged: tuple[Acknowledged, ...] = ()
    reservations: tuple[str, ...] = ()
    held: float = 0
    used: float | None = None

    @cached_property
    def by_id(self) -> dict[str, Row]:
        return {row.id: row for row in self.rows}

    @cached_property
    def ids(self) -> dict[str, str]:
        """Of the one execution of a key that was not refused."""
        return {row.key: row.id for row in self.rows if row.status not in REFUSED}

    @cached_property
    def moves_of(self) -> dict[str, list[Move]]:
        return _grouped(self.moves, lambda move: move.execution)

    @cached_property
    def audited_of(self) -> dict[str, list[AuditedEvent]]:
        return _grouped(self.audited, lambda audited: audited.execution)

    @cached_property
    def effects_of(self) -> dict[str, list[Effect]]:
        return _grouped(self.effects, lambda effect: effect.key)


@dataclass(frozen=True)
class Violation:
    kind: str
    execution: str
    said: str

    def __str__(self) -> str:
        return f"{self.kind:<12} {self.execution or '-':<36} {self.said}"


Rule = Callable[[History], Iterator[Violation]]


def violations(history: History) -> list[Violation]:
    return [found for rule in RULES for found in rule(history)]


def nothing_lost(history: History) -> Iterator[Violation]:
    for call in history.acknowledged:
        row = history.by_id.get(call.execution)
        if row is None:
            yield Violation("lost", call.execution, f"acknowledged as {call.key}, and no row")
        elif row.key != call.key:
            yield Violation("lost", call.execution, f"answered {call.key}, but is of {row.key}")


def what_a_client_saw_stays(history: History) -> Iterator[Violation]:
    for call in history.acknowledged:
        row = history.by_id.get(call.execution)
        if row and call.status in FINAL and call.status != row.status:
            yield Violation("phantom", row.id, f"a client saw {call.status}, it is {row.status}")


def nothing_unfinished(history: History) -> Iterator[Violation]:
    for row in history.rows:
        if row.status not in FINAL:
            yield Violation("unfinished", row.id, f"{row.status}, fence {row.fence}")


def one_row_for_a_key(history: History) -> Iterator[Violation]:
    kept = Counter(row.key for row in history.rows if row.status not in REFUSED)
    for key, count in kept.items():
        if count > 1:
            yield Violation("doubled", "", f"{count} executions for the one call {key}")


def one_terminal_event(history: History) -> Iterator[Violation]:
    ends = Counter(execution for execution, kind in history.events if kind in TERMINAL)
    for row in history.rows:
        wanted = row.status in FINAL and row.status not in REFUSED
        if ends[row.id] > 1 or (wanted and not ends[row.id]):
            yield Violation("events", row.id, f"{row.status} with {ends[row.id]} terminal events")


def moves_are_legal(history: History) -> Iterator[Violation]:
    for execution, moves in history.moves_of.items():
        before: Move | None = None
        for move in moves:
            if move.was != move.became and move.became not in LEGAL.get(move.was, set()):
                yield Violation("illegal", execution, f"from {move.was} to {move.became}")
            if before and move.was != before.became:
                message = f"it was {before.became}, and left {move.was}"
                yield Violation("illegal", execution, message)
            before = move


def fences_count_claims(history: History) -> Iterator[Violation]:
    for execution, moves in history.moves_of.items():
        for move in moves:
            claimed = move.was == Status.PENDING and move.became == Status.RUNNING
            if move.old_fence is not None and move.fence != move.old_fence + claimed:
                message = f"{move.was} to {move.became}: {move.old_fence} to {move.fence}"
                yield Violation("fence", execution, message)


def every_start_ends(history: History) -> Iterator[Violation]:
    for execution, audited in history.audited_of.items():
        started = Counter(one.fence for one in audited if one.code == START)
        ended = {one.fence for one in audited if one.code in {END, LOST, LATE}}
        for fence, count in started.items():
            if count > 1:
                yield Violation("owners", execution, f"{count} starts under fence {fence}")
            if fence not in ended:
                yield Violation("unaudited", execution, f"start of fence {fence} without an end")


def every_claim_is_on_record(history: History) -> Iterator[Violation]:
    """No run without its START, unless the gates refused it at the claim; none that was not
    accepted on record."""
    for execution, moves in history.moves_of.items():
        audited = history.audited_of.get(execution, ())
        started = {one.fence for one in audited if one.code == START}
        accepted = moves[0].became in {Status.PENDING, Status.RUNNING}
        if accepted and not any(one.code == ACCEPT for one in audited):
            yield Violation("unaudited", execution, "accepted, and no record says so")
        for move, after in zip(moves, (*moves[1:], None), strict=True):
            claimed = move.was in {None, Status.PENDING} and move.became == Status.RUNNING
            refused = after is not None and after.became in REFUSED
            if claimed and not refused and move.fence not in started:
                yield Violation("unaudited", execution, f"claim of fence {move.fence}, no start")


def every_end_is_audited_once(history: History) -> Iterator[Violation]:
    for row in history.rows:
        ends = sum(one.ends for one in history.audited_of.get(row.id, ()))
        if row.status in FINAL and ends != 1:
            yield Violation("unaudited", row.id, f"{row.status}, and {ends} records say it is over")


def one_owner_at_a_time(history: History) -> Iterator[Violation]:
    """Of two runs for one call the first has done its last deed when the second begins."""
    for key, effects in history.effects_of.items():
        if (row := history.by_id.get(_id_of(history, key))) and row.goes_out:
            continue
        runs = sorted(_grouped(effects, lambda one: one.run).values(), key=lambda run: run[0].at)
        for earlier, later in pairwise(runs):
            over = earlier[-1].at - later[0].at
            if over > IN_FLIGHT_S:
                message = f"{key}: a run went on {over:.1f} s after the next had begun"
                yield Violation("owners", _id_of(history, key), message)


def leases_are_disjoint(history: History) -> Iterator[Violation]:
    """No run is taken for lost while its lease may still be valid."""
    for execution, moves in history.moves_of.items():
        for move in moves:
            if move.reaped and move.lease_until is not None and move.at < move.lease_until:
                left = move.lease_until - move.at
                message = (
                    f"fence {move.old_fence} was reaped {left:.1f} s before its lease was over"
                )
                yield Violation("owners", execution, message)


def nothing_after_the_end(history: History) -> Iterator[Violation]:
    """A run outlives neither its row's end nor the lease that was taken from it. Work that another
    server does goes on, but is not asked for after the row's end."""
    for row in history.rows:
        ends = [move.at for move in history.moves_of.get(row.id, ()) if move.became in FINAL]
        effects = history.effects_of.get(row.key, [])
        if row.goes_out:
            effects = [run[0] for run in _grouped(effects, lambda one: one.run).values()]
        last = max((one.at for one in effects), default=0.0)
        if ends and last - ends[0] > IN_FLIGHT_S and row.status not in REFUSED:
            message = f"{row.key}: a run went on {last - ends[0]:.1f} s after {row.status}"
            yield Violation("owners", row.id, message)


def a_start_before_every_run(history: History) -> Iterator[Violation]:
    """As many runs as starts at most, and each begins after the start that allows it."""
    for key, effects in history.effects_of.items():
        execution = _id_of(history, key)
        starts = sorted(t.at for t in history.audited_of.get(execution, ()) if t.code == START)
        runs = sorted(min(e.at for e in run) for run in _grouped(effects, lambda e: e.run).values())
        if len(runs) > len(starts):
            yield Violation("unaudited", execution, f"{len(runs)} runs, {len(starts)} starts")
        elif any(began < start for began, start in zip(runs, starts, strict=False)):
            yield Violation("unaudited", execution, f"{key}: an effect before its start")


def effects_are_as_promised(history: History) -> Iterator[Violation]:
    for row in history.rows:
        done = [one for one in history.effects_of.get(row.key, ()) if one.what == EFFECT]
        if fault := _broken(row, done):
            message = f"{row.delivery} {row.status} {row.error_code}: {fault}"
            yield Violation("effects", row.id, message)


def _broken(row: Row, done: list[Effect]) -> str:
    if not done:
        return "no effect" if row.status == Status.SUCCESS else ""
    succeeded = row.status == Status.SUCCESS
    if row.fence == 0:
        return f"{len(done)} effects of what never began"
    if succeeded and row.run not in {one.run for one in done}:
        return "the result is of a run that had no effect"
    if row.delivery == "external" and len(done) > 1:
        return f"{len(done)} effects"
    if row.delivery == "external" and row.status in _SAYS_NO_EFFECT:
        return "an effect, and the answer sounds as if there were none"
    if row.delivery == "external" and row.goes_out and not (succeeded or row.effect_possible):
        return "an effect, and the answer does not say that there may be one"
    return ""


def effects_are_of_calls(history: History) -> Iterator[Violation]:
    keys = {row.key for row in history.rows}
    for key in history.effects_of.keys() - keys:
        yield Violation("unaudited", "", f"an effect of {key}, which nobody called")


def no_fault_of_ours(history: History) -> Iterator[Violation]:
    for row in history.rows:
        if row.error_code in OURS:
            yield Violation("ours", row.id, f"{row.status} {row.error_code}")


def what_was_held_is_settled(history: History) -> Iterator[Violation]:
    for execution in history.reservations:
        yield Violation("budget", execution, "holds some of an allowance")
    if history.held:
        yield Violation("budget", "", f"{history.held} calls are held and belong to nobody")


def what_was_used_is_what_ran(history: History) -> Iterator[Violation]:
    """Every success is paid for, and nothing that was not accepted."""
    if history.used is None:
        return
    paid = sum(row.status == Status.SUCCESS for row in history.rows)
    accepted = sum(row.status not in REFUSED for row in history.rows)
    if not paid <= history.used <= accepted:
        message = f"{history.used} calls are counted; {paid} succeeded, {accepted} were accepted"
        yield Violation("budget", "", message)


RULES: tuple[Rule, ...] = (
    nothing_lost,
    what_a_client_saw_stays,
    nothing_unfinished,
    one_row_for_a_key,
    one_terminal_event,
    moves_are_legal,
    fences_count_claims,
    every_start_ends,
    every_claim_is_on_record,
    every_end_is_audited_once,
    one_owner_at_a_time,
    leases_are_disjoint,
    nothing_after_the_end,
    a_start_before_every_run,
    effects_are_as_promised,
    effects_are_of_calls,
    no_fault_of_ours,
    what_was_held_is_settled,
    what_was_used_is_what_ran,
)


def _id_of(history: History, key: str) -> str:
    return history.ids.get(key, "")


def _grouped[Thing](things: Iterable[Thing], by: Callable[[Thing], str]) -> dict[str, list[Thing]]:
    found: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        found[by(thing)].append(thing)
    return dict(found)
