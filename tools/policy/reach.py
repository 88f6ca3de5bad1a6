"""Which tools an agent reaches with all it was granted, in some state."""

from collections.abc import Iterable

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


def reaches(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool exists for the caller now, asking for every group it was granted."""
    question = Question(caller, tool, Asked(caller.granted_groups, DEFAULT_STATE), snapshot)
    return caller.active and all(gate(question).passed for gate in _IN_SOME_STATE)


def agents_that_reach(tool: CatalogTool, snapshot: Snapshot) -> tuple[list[str], bool]:
    """Among the first agents of the organization by name, and whether there are more to look at."""
    callers, cut = _first_agents(snapshot, MOST_AGENTS)
    return [caller.name for caller in callers if reaches(caller, tool, snapshot)], cut


def known_callers(agents: Iterable[Agent], revision: int) -> list[Caller]:
    """The agents as callers, with all they were granted: a few queries, however many they are."""
    callers = callers_of_agents(agents)
    grants.learn(callers, revision)
    return callers


def _first_agents(snapshot: Snapshot, most: int) -> tuple[list[Caller], bool]:
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    found = list(rows.order_by("slug")[: most + 1])
    return known_callers(found[:most], snapshot.revision), len(found) > most
