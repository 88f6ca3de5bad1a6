from collections import Counter
from dataclasses import replace

import pytest

from tests.faults import measures
from tests.faults.checker import Acknowledged, History, Move, Row
from tests.faults.ledger import Effect
from tests.faults.nemesis import Struck


def move(was, became, at, worker=""):
    return Move("e", was, became, 0, 0, worker, at)


MOVES = (
    move(None, "Pending", 1.0),
    move("Pending", "Running", 2.0, "host:77:1"),
    move("Running", "Pending", 20.0),
    move("Pending", "Running", 21.0, "host:78:1"),
    move("Running", "Success", 21.5, "host:78:1"),
)
HISTORY = History(moves=MOVES)


@pytest.mark.parametrize(
    ("pid", "at", "found"), [(77, 3.0, [17.0]), (77, 1.5, []), (78, 3.0, []), (77, 20.5, [])]
)
def test_an_orphan_is_resolved_when_its_worker_has_it_no_more(pid, at, found):
    assert measures.orphans_s(HISTORY, [Struck("kill worker", at, at, pid)]) == found


IN_PLACE = History(moves=(move(None, "Running", 2.0, "host:77:1"), move("Running", "Failed", 9.0)))


@pytest.mark.parametrize(("pid", "calls"), [(77, [1]), (78, [0])])
def test_the_calls_of_a_web_process_that_was_killed_are_counted(pid, calls):
    struck = [Struck("kill web", 3.0, 3.0, pid)]
    assert measures.calls_in_web(IN_PLACE, struck) == calls
    assert bool(list(measures.idle_kills(IN_PLACE, struck))) == (calls == [0])


@pytest.mark.parametrize(("at", "found"), [(20.5, [1.0]), (0.0, [20.5]), (21.2, [])])
@pytest.mark.parametrize("kind", ["redis flushed", "redis killed"])
def test_a_call_that_waits_when_redis_goes_is_measured_to_its_end(kind, at, found):
    assert measures.while_away_s(HISTORY, [Struck(kind, at, at)]) == found


@pytest.mark.parametrize(("until", "found"), [(-4.0, []), (8.0, [20.5])])
def test_a_call_that_comes_while_redis_hangs_is_measured_from_its_beginning(until, found):
    assert measures.while_away_s(HISTORY, [Struck("redis hung", -5.0, until)]) == found


WORKED = History(
    rows=(Row("e", "k", "pure", "Success"), *[Row("f", "l", "pure", "Failed")] * 3),
    effects=(Effect("k", "r", "effect", 1.0),),
    acknowledged=(Acknowledged("k", "e", "Success"),) * 2,
)


def test_a_run_in_which_enough_happened_says_something():
    assert list(measures.too_little(WORKED, struck=2, least=2)) == []


@pytest.mark.parametrize(
    ("history", "struck"),
    [
        (WORKED, 1),
        (replace(WORKED, acknowledged=WORKED.acknowledged[:1]), 2),
        (replace(WORKED, effects=()), 2),
        (replace(WORKED, rows=(*WORKED.rows, WORKED.rows[1])), 2),
    ],
    ids=["few faults", "few calls", "no effect", "few successes"],
)
def test_a_run_in_which_little_happened_proves_nothing(history, struck):
    (found,) = measures.too_little(history, struck=struck, least=2)
    assert found.kind == "nothing"


NOTHING = {name: [] for name in measures.TARGETS_S}


@pytest.mark.parametrize("name", measures.TARGETS_S)
def test_a_target_that_is_missed_is_a_violation(name):
    met, late = [measures.TARGETS_S[name]], [measures.TARGETS_S[name] + 0.1]
    assert list(measures.missed_targets(NOTHING | {name: met})) == []
    (found,) = measures.missed_targets(NOTHING | {name: late})
    assert (found.kind, name in found.said) == ("targets", True)


def test_a_run_that_measured_no_target_has_met_none():
    assert [found.kind for found in measures.missed_targets(NOTHING)] == ["targets"]


def test_after_postgresql_is_back_the_first_success_counts():
    assert measures.after_deaths_s([9.0, 3.0, 5.0], [(3.5, 4.0)]) == [1.0]


def test_a_table_names_every_kind_of_violation():
    lines = list(
        measures.table(
            history=HISTORY,
            struck=[Struck("kill worker", 3.0, 3.0, 77)],
            missed=[],
            answers=Counter({"200": 1}),
            found=[],
            recovered_s={measures.ORPHANS: [17.0]},
            finished_after_s=1.0,
        )
    )
    assert all(f"{kind}: 0" in lines[-1] for kind in measures.KINDS_OF_VIOLATION)
    assert any("orphans resolved" in line and "17.0" in line for line in lines)
