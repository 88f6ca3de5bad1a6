"""Attacks on the sandbox from inside a run, by a built-in of sandboxd.

An attack raises OSError where the sandbox refuses it, and returns what it got otherwise.
`bait` comes from `daemon/bait.py`: things of the host that only sandboxd can see. Whether they
were touched is judged there; what an attack by `loot` found is compared with them there as well.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

type Bait = dict[str, Any]
type Perform = Callable[[Bait], str | None]

NONE, STANDARD, STRICT, RESTRICTED = EVERY = ("None", "Standard", "Strict", "Restricted")
SANDBOXED = (STANDARD, STRICT, RESTRICTED)
TIGHT = (STRICT, RESTRICTED)
FORKING = (NONE, STANDARD, STRICT)


class Attack(NamedTuple):
    """`alone` needs namespaces: without them it is known to get through."""

    name: str
    levels: tuple[str, ...]
    alone: bool
    loot: bool
    perform: Perform


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str, levels: tuple[str, ...], *, alone: bool = False, loot: bool = False
) -> Callable[[Perform], Perform]:
    def keep(perform: Perform) -> Perform:
        ATTACKS[name] = Attack(name, levels, alone, loot, perform)
        return perform

    return keep


def listed(found: Iterable[str]) -> str | None:
    """None where nothing was found."""
    return ", ".join(sorted(found)) or None


def done(way: Callable[[], object]) -> bool:
    try:
        way()
    except OSError:
        return False
    return True
