"""Without a sandbox the attacks do what they are said to do: else the suite would prove nothing."""

from tests.attacks.control import Run
from tests.attacks.suite import ATTACKS, DUELS
from tests.attacks.tally import TALLY


def test_without_a_sandbox_every_attack_works_or_says_why_not(control: Run) -> None:
    bites = control.bites()
    TALLY.bit = sum(bool(bite.what) for bite in bites)
    assert len(bites) == len(ATTACKS) + len(DUELS)
    assert [bite.name for bite in bites if not bite.what and not bite.toothless] == []
    assert TALLY.bit / len(bites) > 0.7
