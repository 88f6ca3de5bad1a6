"""Which tools an agent reaches with all it was granted, in some state."""

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.models import Agent
from tools.policy.authorization import GATES
from tools.policy.availability import in_state
from tools.policy.callers import caller_of_agent
from tools.policy.decision import DEFAULT_STATE, Asked, Question

_IN_SOME_STATE = tuple(gate for gate in GATES if gate is not in_state)
MOST_AGENTS = 50


def reaches(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool exists for the caller now, asking for every group it was granted."""
    question = Question(caller, tool, Asked(caller.granted_groups, DEFAULT_STATE), snapshot)
    return caller.active and all(gate(question).passed for gate in _IN_SOME_STATE)


def agents_that_reach(tool: CatalogTool, snapshot: Snapshot) -> tuple[list[str], bool]:
    """Among the first agents of the organization by name, and whether there are more to look at."""
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    found = list(rows.order_by("slug")[: MOST_AGENTS + 1])
    callers = map(caller_of_agent, found[:MOST_AGENTS])
    reached = [caller.name for caller in callers if reaches(caller, tool, snapshot)]
    return reached, len(found) > MOST_AGENTS
