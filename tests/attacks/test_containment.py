"""Every attack at every level where it must not work."""

import builtins
import dis
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType

import pytest

from sandbox.spec import IsolationLevel
from tests.attacks.attack import UNCOUNTED, Attack, Duel, Hole, name_of
from tests.attacks.siege import Siege
from tests.attacks.sources import Body, source_of
from tests.attacks.suite import ATTACKS, DUELS
from tests.attacks.tally import TALLY

_LARGE = (
    "forged_answers.answers_uncleanly with a hundred thousand levels",
    "forged_answers.answers_uncleanly with escapes without an end",
    "output.floods_with_one_endless_line",
    "output.returns_a_list_without_end",
    "output.returns_more_than_it_may",
    "output.fails_with_an_enormous_message",
)

type Needs = Callable[[IsolationLevel], None]


def cases(book: dict[str, Attack] | dict[str, Duel]) -> list[object]:
    return [
        pytest.param(one, level, id=f"{level}-{name.replace(' ', '_')}")
        for name, one in book.items()
        for level in one.levels
    ]


def count(siege: Siege, faults: list[str], case: Attack | Duel, level: IsolationLevel) -> None:
    """A known hole is reported, not hidden, and nothing else hides behind it."""
    TALLY.mode = siege.mode
    TALLY.suffered += 1
    TALLY.contained += not faults
    known = known_hole(siege, case, level)
    if works_as_known(faults, known):
        TALLY.unsolved += 1
        assert known is not None
        pytest.xfail(f"{known.why}: {faults}")  # lint: this fault alone, by its words


def works_as_known(faults: list[str], known: Hole | None) -> bool:
    """Raises AssertionError for a fault of any other words, and for a hole that is closed."""
    others = [one for one in faults if known is None or not re.fullmatch(known.finding, one)]
    assert not others, "; ".join(others)
    assert faults or known is None or not known.certain, f"it is contained; unmark it: {known}"
    return bool(faults)


def known_hole(siege: Siege, case: Attack | Duel, level: IsolationLevel) -> Hole | None:
    if case.counted and siege.mode == "none":
        return UNCOUNTED
    return case.unsolved if level in case.unsolved_at else None


def bodies() -> list[Body]:
    sides = {side for duel in DUELS.values() for side in (duel.holder, duel.prober)}
    return sorted(sides | {attack.body for attack in ATTACKS.values()}, key=name_of)


def names_used_by(code: CodeType) -> set[str]:
    """The global ones, also of the functions inside of it."""
    loads = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return loads.union(*map(names_used_by, inner))


@pytest.mark.parametrize(("attack", "level"), cases(ATTACKS))
def test_an_attack_is_contained(
    siege: Siege, needs: Needs, attack: Attack, level: IsolationLevel
) -> None:
    needs(level)
    count(siege, siege.suffer(attack, level), attack, level)


@pytest.mark.parametrize("level", ATTACKS["signals.kills_by_number"].levels)
def test_a_process_that_died_between_two_attacks_counts_for_none(
    siege: Siege, needs: Needs, level: IsolationLevel
) -> None:
    """As with the template whose user it is: sandboxd retires one that is idle."""
    needs(level)
    siege.scene.canary.kill()
    siege.scene.canary.wait()
    assert not siege.suffer(ATTACKS["signals.kills_by_number"], level)


@pytest.mark.parametrize(("duel", "level"), cases(DUELS))
def test_two_runs_do_not_touch_each_other(
    siege: Siege, needs: Needs, duel: Duel, level: IsolationLevel
) -> None:
    needs(level)
    count(siege, siege.suffer_two(duel, level), duel, level)


PIPES = Hole("the kernel counts by user", r"pipes have room for \d+ bytes")


@pytest.mark.parametrize(
    ("faults", "known", "works"),
    [
        ([], None, False),
        (["pipes have room for 4096 bytes"], PIPES, True),
        ([], replace(PIPES, certain=False), False),
    ],
)
def test_what_works_is_what_is_known(faults: list[str], known: Hole | None, works: bool) -> None:
    assert works_as_known(faults, known) is works


@pytest.mark.parametrize(
    ("faults", "known"),
    [
        (["the secret came out"], None),
        (["the secret came out"], PIPES),
        (["pipes have room for 4096 bytes", "the secret came out"], PIPES),
        ([], PIPES),
    ],
)
def test_a_mark_hides_no_other_fault_and_does_not_outlive_its_hole(
    faults: list[str], known: Hole | None
) -> None:
    with pytest.raises(AssertionError):
        works_as_known(faults, known)


@pytest.mark.parametrize("body", bodies(), ids=name_of)
def test_what_is_sent_inside_stands_on_its_own(body: Body) -> None:
    """A name that is missing inside would look like a sandbox."""
    there: dict[str, object] = {}
    exec(source_of(body), there)
    used = names_used_by(body.__code__)
    assert used - there.keys() - vars(builtins).keys() == set()


def test_every_level_is_served(siege: Siege) -> None:
    assert siege.served == frozenset(IsolationLevel)


def test_there_are_more_attacks_than_anybody_asked_for() -> None:
    assert len({attack.body for attack in ATTACKS.values()}) >= 120
    assert len(ATTACKS) + len(DUELS) >= 400


def test_nothing_of_any_attack_is_left(siege: Siege) -> None:
    assert siege.scene.survivors() == 0
    assert siege.scene.changes() == ()
    assert siege.leaves_settle(), siege.leaves()


def test_sandboxd_has_taken_no_harm(siege: Siege) -> None:
    """Same process, no thread that broke, and neither memory nor descriptors that pile up."""
    assert siege.daemon.process.poll() is None
    assert [line for line in siege.daemon.log if '"crash"' in line] == []
    assert [line for line in siege.daemon.log if "left_behind" in line] == []
    assert siege.descriptors_settle()


def test_what_sandboxd_holds_of_large_answers_does_not_grow(siege: Siege) -> None:
    """Its heap has been as large as it gets; the same once more needs nothing more."""
    large = [ATTACKS[name] for name in _LARGE for _ in range(5)]
    before = siege.memory_kb()
    for attack in large:
        siege.suffer(attack, IsolationLevel.STANDARD)
    assert siege.memory_kb() - before < 4 * 1024


def test_no_secret_stands_in_the_log(siege: Siege) -> None:
    assert siege.scene.secret not in "".join(siege.daemon.log)
    assert Path(f"/proc/{siege.daemon.process.pid}").exists()
