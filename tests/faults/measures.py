"""How soon things went on again, and the table that a run prints."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tests.faults.checker import History, Move, Violation
from tests.faults.nemesis import AWAY, DATABASE_DEATHS, KILLS, Struck
from tools.definitions.results import FINAL, Status

QUICK_S = 1.0  # a run this short says something about waiting
LEAST_SUCCESS = 0.25  # of all calls; where fewer succeed, little was put to the proof
ORPHANS, AWAITED, SUCCEEDED = "orphans resolved", "Redis away, call finished", "first success"
KILL_WEB = "kill web"
PERFORMERS = frozenset({"kill worker", KILL_WEB})
TARGETS_S = {ORPHANS: 20.0, AWAITED: 3.0, SUCCEEDED: 5.0}  # at p95
KINDS_OF_VIOLATION = (
    *("lost", "phantom", "unfinished", "doubled", "effects", "unaudited", "owners"),
    *("fence", "illegal", "events", "budget", "evidence", "answers", "service", "ours"),
    *("nothing", "targets"),
)


def orphans_s(history: History, struck: Iterable[Struck]) -> list[float]:
    """From the kill of a worker, or of a web process that performed calls, to the moment each call
    it had was put back or ended."""
    return [
        left.at - death.at
        for death in struck
        if death.kind in PERFORMERS
        for left in _released_calls(history, death)
    ]


def calls_in_web(history: History, struck: Iterable[Struck]) -> list[int]:
    """How many calls each web process performed that was killed."""
    deaths = [one for one in struck if one.kind == KILL_WEB]
    return [sum(1 for _ in _released_calls(history, death)) for death in deaths]


def _released_calls(history: History, death: Struck) -> Iterator[Move]:
    for moves in history.moves_of.values():
        if left := _released(moves, death):
            yield left


def _released(moves: Sequence[Move], death: Struck) -> Move | None:
    """The move that took a call away from the process that was killed."""
    for claim, after in pairwise(moves):
        theirs = claim.became == Status.RUNNING and f":{death.pid}:" in claim.worker
        if theirs and claim.at < death.at < after.at:
            return after
    return None


def while_away_s(history: History, struck: Iterable[Struck]) -> list[float]:
    """From the moment Redis was gone, or from the call where that came later, to its end: of calls
    that waited then, or came while it was away or within two seconds, and whose last run was a
    short one."""
    found = []
    for gone in (one for one in struck if one.kind in AWAY):
        for moves in history.moves_of.values():
            if len(moves) < 3 or moves[-1].became not in FINAL:
                continue
            accepted, claimed, ended = moves[0].at, moves[-2].at, moves[-1].at
            waits = accepted < max(gone.at + 2, gone.until) and claimed > gone.at
            if waits and ended - claimed < QUICK_S:
                found.append(ended - max(accepted, gone.at))
    return found


def after_deaths_s(
    successes: Sequence[float], deaths: Iterable[tuple[float, float]]
) -> list[float]:
    """From the moment PostgreSQL was back to the first call that a client saw succeed."""
    ordered = sorted(successes)
    return [next((at for at in ordered if at > back), float("inf")) - back for _, back in deaths]


def too_little(history: History, struck: int, least: int) -> Iterator[Violation]:
    """Why a history without a flaw would prove nothing."""
    rows, calls = len(history.rows), len(history.acknowledged)
    succeeded = sum(row.status == Status.SUCCESS for row in history.rows)
    if struck < least or calls < least:
        yield Violation("nothing", "", f"{struck} faults and {calls} calls; wanted {least} of each")
    if not history.effects:
        yield Violation("nothing", "", "no tool had an effect")
    if succeeded < LEAST_SUCCESS * rows:
        yield Violation("nothing", "", f"{succeeded} of {rows} calls succeeded")


def idle_kills(history: History, struck: Iterable[Struck]) -> Iterator[Violation]:
    """Where web was killed and never while it performed a call, nothing is known of such calls."""
    calls = calls_in_web(history, struck)
    if calls and not any(calls):
        yield Violation("nothing", "", f"{len(calls)} kills of web, and it performed no call")


def missed_targets(recovered_s: dict[str, Sequence[float]]) -> Iterator[Violation]:
    """Also where there is nothing to compare: then the run was of no use for it."""
    measured = {name: recovered_s[name] for name in TARGETS_S if recovered_s[name]}
    if not measured:
        yield Violation("targets", "", "nothing was measured")
    for name, values in measured.items():
        if (took := quantile(values, 0.95)) > TARGETS_S[name]:
            message = f"{name}: {took:.1f} s at p95, at most {TARGETS_S[name]:.0f} s"
            yield Violation("targets", "", message)


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def table(
    *,
    history: History,
    struck: Sequence[Struck],
    missed: Iterable[str],
    answers: Counter[str],
    found: Sequence[Violation],
    recovered_s: dict[str, Sequence[float]],
    finished_after_s: float,
) -> Iterator[str]:
    yield "faults"
    for kind, count in sorted(Counter(one.kind for one in struck).items()):
        yield f"    {kind:<28}{count:>8}"
    kills = sum(one.kind in KILLS for one in struck)
    deaths = sum(one.kind in DATABASE_DEATHS for one in struck)
    yield f"    {'together':<28}{len(struck):>8}   {kills} kills, {deaths} of PostgreSQL"
    yield f"    {'found nothing to hit':<28}{sum(1 for _ in missed):>8}"
    in_web = calls_in_web(history, struck)
    busy = sum(map(bool, in_web))
    yield f"    {'calls in web at its kill':<28}{sum(in_web):>8}   in {busy} of {len(in_web)} kills"
    yield "calls"
    yield f"    {'acknowledged':<28}{len(history.acknowledged):>8}"
    for (status, code), count in sorted(_outcomes(history).items()):
        yield f"    {status:<16}{code[:20]:<21}{count:>8}"
    yield f"    {'moves watched':<28}{len(history.moves):>8}"
    yield f"    {'effects in the ledger':<28}{len(history.effects):>8}"
    yield "answers"
    yield "    " + "  ".join(f"{status}: {count}" for status, count in sorted(answers.items()))
    heads = ("n", "p50", "p95", "target")
    yield "recovery, seconds" + " " * 15 + "".join(f"{head:>8}" for head in heads)
    for name, values in recovered_s.items():
        cells = f"{quantile(values, 0.5):>8.1f}{quantile(values, 0.95):>8.1f}"
        target = f"{TARGETS_S[name]:>8.0f}" if name in TARGETS_S else ""
        yield f"    {name:<28}{len(values):>8}{cells}{target}"
    yield f"    {'all finished after':<36}{finished_after_s:>8.1f}"
    yield "violations"
    kinds = Counter(one.kind for one in found)
    yield "    " + "  ".join(f"{kind}: {kinds[kind]}" for kind in KINDS_OF_VIOLATION)


def _outcomes(history: History) -> Counter[tuple[str, str]]:
    return Counter((row.status, row.error_code) for row in history.rows)
