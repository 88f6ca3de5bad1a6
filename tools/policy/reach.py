"""Which tools an agent reaches with all it was granted, in some state."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.models import Agent
from tools.policy.authorization import GATES
from tools.policy.availability import in_state
from tools.policy.callers import callers_of_agents
from tools.policy.decision import DEFAULT_STATE, Asked, Question
from tools.policy.grants import grants

_IN_SOME_STATE = tuple(gate for gate in GATES if gate is not in_state)
MOST_AGENTS = 50
_MOST_QUESTIONS = 10_000


@dataclass(frozen=True)
class Losers:
    """How many agents would lose each tool, and how many lose one; of the first `looked_at` by
    name, where `cut`."""

    counts: Counter[str]
    looked_at: int
    cut: bool
    agents: int = 0


def reaches(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool exists for the caller now, asking for every group it was granted."""
    question = Question(caller, tool, Asked(caller.granted_groups, DEFAULT_STATE), snapshot)
    return caller.active and all(gate(question).passed for gate in _IN_SOME_STATE)


def agents_that_reach(tool: CatalogTool, snapshot: Snapshot) -> tuple[list[str], bool]:
    """Among the first agents of the organization by name, and whether there are more to look at."""
    callers, cut = _first_agents(snapshot, MOST_AGENTS)
    return [caller.name for caller in callers if reaches(caller, tool, snapshot)], cut


def losers(names: Sequence[str], before: Snapshot, after: Snapshot) -> Losers:
    """Of the tools that another catalog would narrow: who reaches them before and not after."""
    most = min(MOST_AGENTS, max(1, _MOST_QUESTIONS // max(1, len(names))))
    callers, cut = _first_agents(before, most)
    lost = [[name for name in names if _loses(caller, name, before, after)] for caller in callers]
    counts = Counter(name for of_one in lost for name in of_one)
    return Losers(counts, len(callers), cut, sum(map(bool, lost)))


def _loses(caller: Caller, name: str, before: Snapshot, after: Snapshot) -> bool:
    return reaches(caller, before.tools[name], before) and not reaches(
        caller, after.tools[name], after
    )


def known_callers(agents: Iterable[Agent], revision: int) -> list[Caller]:
    """The agents as callers, with all they were granted: a few queries, however many they are."""
    callers = callers_of_agents(agents)
    grants.learn(callers, revision)
    return callers


def _first_agents(snapshot: Snapshot, most: int) -> tuple[list[Caller], bool]:
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    found = list(rows.order_by("slug")[: most + 1])
    return known_callers(found[:most], snapshot.revision), len(found) > most
