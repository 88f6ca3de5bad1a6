"""What an attack is: code that runs inside, and what is seen from outside when it worked.

An attack returns what it got; who was stopped returns nothing, or dies of the refusal.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.spec import MIB, IsolationLevel, Limits, Network
from tests.attacks.evidence import Judge, got_something
from tests.attacks.scene import Scene
from tests.attacks.sources import Body

type PolicyFor = Callable[[Scene], EgressPolicy]

NONE, STANDARD = IsolationLevel.NONE, IsolationLevel.STANDARD
STRICT, RESTRICTED = IsolationLevel.STRICT, IsolationLevel.RESTRICTED
ALL = tuple(IsolationLevel)
SANDBOXED = (STANDARD, STRICT, RESTRICTED)
NOTHING_RUNS = (STRICT, RESTRICTED)
# Its private places have the usual size: only such slots are made in advance.
USUAL = Limits(
    wall_s=60,  # none comes near it on a machine however busy
    cpu_s=4,
    memory_bytes=96 * MIB,
    processes=20,
    output_bytes=MIB,
)
X86 = platform.machine() == "x86_64"
ONLY_ROOT = "" if os.geteuid() == 0 else "without root nothing here belongs to root"
ONLY_X86 = "" if X86 else "it is machine code of another processor"


@dataclass(frozen=True)
class Hole:
    """What works in spite of the sandbox, and why. `finding` is a pattern of the one fault that
    is then reported. Where it is `certain` an attack that is contained fails: its mark is to go."""

    why: str
    finding: str
    certain: bool = True


UNCOUNTED = Hole(
    "there is no control group here to count for a whole tree",
    r"it got .*|it ended (well|[A-Z_]+), not .*",
    certain=False,
)


@dataclass(frozen=True)
class Attack:
    """`ends` are the error codes one of which a run must end with; empty: it may end well.

    `seen` is what shows that it worked. `toothless` says why it does not work here even without
    a sandbox, `unsolved` why it works at some levels inside one. `extra` goes to its parameters.
    A `silent` one asks for nothing that the egress broker would count. Those of one body that
    leave nothing behind are first tried `together`, in one run. What is `counted` needs a control
    group: without one there is no honest limit for a tree of processes.
    """

    name: str
    body: Body
    levels: tuple[IsolationLevel, ...]
    seen: tuple[Judge, ...]
    limits: Limits = USUAL
    ends: frozenset[str] = frozenset()
    toothless: str = ""
    unsolved: Hole | None = None
    unsolved_at: tuple[IsolationLevel, ...] = ()
    network: Network = Network.NONE
    egress: PolicyFor | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    together: bool = False
    counted: bool = False


@dataclass(frozen=True)
class Duel:
    """Two runs: `holder` has done its part and waits, or has ended, when `prober` begins.

    What worked is what either of them got. The prober's organization is another one unless said
    otherwise; a newcomer is one that has not run anything yet.
    """

    name: str
    holder: Body
    prober: Body
    levels: tuple[IsolationLevel, ...]
    at_once: bool = True
    same_organization: bool = False
    newcomer: bool = False
    limits: Limits = USUAL
    toothless: str = ""
    unsolved: Hole | None = None
    unsolved_at: tuple[IsolationLevel, ...] = ()
    counted: bool = False


ATTACKS: dict[str, Attack] = {}
DUELS: dict[str, Duel] = {}


def attack(
    *,
    levels: tuple[IsolationLevel, ...] = SANDBOXED,
    seen: tuple[Judge, ...] = (got_something,),
    ends: tuple[str, ...] = (),
    toothless: str = "",
    unsolved: Hole | None = None,
    unsolved_at: tuple[IsolationLevel, ...] = (),
    network: Network = Network.NONE,
    egress: PolicyFor | None = None,
    variant: str = "",
    extra: dict[str, Any] | None = None,
    silent: bool = False,
    together: bool = False,
    counted: bool = False,
    **limits: Any,
) -> Callable[[Body], Body]:
    """Put the function on the list. Its own name, after the file's, is the attack's.

    A `variant` is one of several with `extra` parameters.
    """

    def keep(body: Body) -> Body:
        made = Attack(
            name=f"{name_of(body)} {variant}".strip(),
            body=body,
            levels=levels,
            seen=seen,
            limits=limited(limits),
            ends=frozenset(ends),
            toothless=toothless,
            unsolved=unsolved,
            unsolved_at=unsolved_at,
            network=network,
            egress=egress,
            extra=extra or {},
            silent=silent,
            together=together,
            counted=counted,
        )
        enlist(ATTACKS, made.name, made)
        return body

    return keep


def duel(
    prober: Body,
    *,
    levels: tuple[IsolationLevel, ...] = SANDBOXED,
    at_once: bool = True,
    same_organization: bool = False,
    newcomer: bool = False,
    toothless: str = "",
    unsolved: Hole | None = None,
    unsolved_at: tuple[IsolationLevel, ...] = (),
    counted: bool = False,
    **limits: Any,
) -> Callable[[Body], Body]:
    """Put the decorated function on the list as the one that comes first."""

    def keep(holder: Body) -> Body:
        made = Duel(
            name=name_of(holder),
            holder=holder,
            prober=prober,
            levels=levels,
            at_once=at_once,
            same_organization=same_organization,
            newcomer=newcomer,
            limits=limited(limits),
            toothless=toothless,
            unsolved=unsolved,
            unsolved_at=unsolved_at,
            counted=counted,
        )
        enlist(DUELS, made.name, made)
        return holder

    return keep


def enlist[T](book: dict[str, T], name: str, made: T) -> None:
    if name in book:
        raise ValueError(f"there are two attacks called {name}")
    book[name] = made


def name_of(body: Body) -> str:
    return f"{body.__module__.rpartition('.')[2]}.{body.__name__}"


def limited(limits: dict[str, Any]) -> Limits:
    return Limits(**{**USUAL.to_wire(), **limits})
