"""We attack our own evidence: each tampering must be found and named, and nothing else said.

python -m pytest tests/audit/verification/test_selfattack.py              # each in twenty ways
python -m pytest --part generated …                                       # the rest of 10,000
SELFATTACK=200000 SELFATTACK_SEED=7 python -m pytest --part generated …   # the long run
"""

import os
import random
from collections import Counter
from functools import cache

import pytest

from audit.verification.log_source import LogRow
from tests.audit import worlds
from tests.audit.tamperings import ATTACKS, Attack, a_node_changed
from tests.audit.worlds import World

TAMPERINGS = int(os.environ.get("SELFATTACK", "10000"))
SEED = int(os.environ.get("SELFATTACK_SEED", "5"))
FEW = 20 * len(ATTACKS)
LOGS = 40
GENERATED = pytest.mark.part("generated")


@cache
def pasts(number: int) -> list[World]:
    """A log after each checkpoint: a short one, or one of two hundred and more records."""
    rng = random.Random(f"{SEED}/{number}")
    size = rng.randint(3, 60) if number % 10 else rng.randint(257, 700)
    return list(worlds.grown(rng, size))


def attacked(rng: random.Random, number: int) -> tuple[str, str]:
    """The name of an attack, and what is wrong with what was found; '' where it is right."""
    attack_of = ATTACKS[number % len(ATTACKS)]
    log = rng.randrange(LOGS) if attack_of is not a_node_changed else rng.randrange(LOGS // 10) * 10
    past = pasts(log)
    attack = Attack(rng, past[-1].copy(), past)
    expected = attack_of(attack)
    found = attack.world.findings()
    wrong = "" if found == expected else f"log {log}: expected {expected}, found {found}"
    return attack_of.__name__, wrong


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(FEW), id="few"),
        *(
            pytest.param(range(FEW + part, TAMPERINGS, 4), id=f"part {part}", marks=GENERATED)
            for part in range(4)
        ),
    ],
)
def test_every_tampering_is_found_and_named(
    numbers: range, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for number in numbers:
        name, problem = attacked(random.Random(f"{SEED}-{number}"), number)
        tried[name] += 1
        if problem:
            wrong.setdefault(name, []).append(f"#{number} {problem}")
    with capsys.disabled():
        print(f"\n{sum(tried.values())} tamperings: tried, found and named")
        for name, count in sorted(tried.items()):
            print(f"  {name:45} {count:6} {count - len(wrong.get(name, [])):6}")
    assert not wrong, {name: problems[:2] for name, problems in wrong.items()}


@pytest.mark.parametrize(
    "numbers", [range(100), pytest.param(range(100, 1000), marks=GENERATED)], ids=["few", "many"]
)
def test_there_is_no_false_alarm_over_untouched_logs(numbers: range) -> None:
    for number in numbers:
        rng = random.Random(f"clean {SEED}/{number}")
        *_, world = worlds.grown(rng, rng.randint(0, 300 if number % 50 == 0 else 40))
        assert world.findings() == set(), number
        assert world.findings(public=True) == set(), number


HOUR_US = 3_600_000_000


def sealed_at(times: list[list[tuple[int, int]]]) -> World:
    """For each checkpoint the records under it: the time of the database's clock, and of the id's
    maker. The checkpoint's own is that of its last record."""
    rng, world, frontier = random.Random(SEED), World("clocks", row=LogRow(0, b"")), list[bytes]()
    worlds.sign(world, frontier, worlds.START)
    for batch in times:
        for at, made in batch:
            record = worlds.written(rng, world.name, worlds.START + made, steady=True)
            worlds.place(world, frontier, record._replace(at=worlds.START + at))
        worlds.sign(world, frontier, worlds.START + batch[-1][0])
    return world


AHEAD, BEHIND = HOUR_US, -HOUR_US
CLOCKS = {
    "an hour ahead for one record": [[(0, 0)], [(AHEAD, AHEAD)], [(2, 2)], [(3, 3)]],
    "an hour ahead within one batch": [[(0, 0), (AHEAD, AHEAD), (2, 2)], [(3, 3)]],
    "set back an hour": [[(0, 0)], [(BEHIND, BEHIND)], [(BEHIND + 1, BEHIND + 1)]],
    "ahead, where workers have other clocks": [[(0, 0)], [(AHEAD, 1)], [(2, 2)], [(3, 3)]],
    "set back, where workers have other clocks": [[(0, 0)], [(BEHIND, 1)], [(BEHIND + 1, 2)]],
    "a worker a day behind": [[(0, -24 * HOUR_US)], [(1, 1), (2, -24 * HOUR_US)], [(3, 3)]],
    "two long transactions": [[(0, 0)], [(HOUR_US, HOUR_US), (1, 1), (HOUR_US + 1, HOUR_US + 1)]],
    "a worker a day behind, while nothing was sealed": [
        [(0, 0)],
        [(1, -24 * HOUR_US), (AHEAD, AHEAD)],
    ],
}


@pytest.mark.parametrize("times", CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_was_wrong_is_nobodys_tampering(times: list[list[tuple[int, int]]]) -> None:
    assert sealed_at(times).findings() == set()


def test_of_records_that_disagree_in_time_the_false_one_alone_is_blamed() -> None:
    world = sealed_at([[(0, 0)], [(AHEAD, 1), (2, 2)], [(3, 3)], [(BEHIND, 4), (5, 5)]])
    assert world.findings() == {("backdated", 1), ("backdated", 4)}
    assert world.findings(public=True) == {("backdated", 1), ("backdated", 4)}
