"""Computes which tools an agent can reach with all its grants, in some state."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from tools.accounts.callers import callers_of_agents
from tools.accounts.grants.grants import grants
from tools.catalog.group_openings import openings_of
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.licensing.kinds import Kinds, kinds_among, kinds_in, passing
from tools.models import Agent
from tools.policy.availability import group_open, in_group, in_service, in_state, source_open
from tools.policy.gates import GATES
from tools.policy.license_gates import LICENSE, tier_now
from tools.policy.permissions import object_permission, required_permissions
from tools.policy.questions import DEFAULT_STATE, AccessRequest, EffectiveRequest, Gate

OF_THE_TOOL: tuple[Gate, ...] = (in_service, source_open, *LICENSE)
OF_ITS_KIND: tuple[Gate, ...] = (in_group, group_open, required_permissions)
OF_THE_REQUEST: tuple[Gate, ...] = tuple(gate for gate in GATES if gate not in OF_THE_TOOL)
NOBODY = Caller(CallerKind.SYSTEM, "", UUID(int=0), "", 0, UUID(int=0))
_NOTHING = EffectiveRequest(frozenset(), DEFAULT_STATE)
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


class CallerToolReach:
    """Which of some tools callers reach, for many of both. Gates that depend on the tool alone are
    asked once for each kind of tool; those that depend on its groups, states and required
    permissions, once for all kinds with equal ones. The verdicts are those of the gates."""

    def __init__(self, kinds: Kinds, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        found: defaultdict[Hashable, list[CatalogTool]] = defaultdict(list)
        for kind in passing(kinds, snapshot, there_for_somebody):
            definition = kind[0].definition
            required = tuple(definition.raw["required_permissions"])
            found[snapshot.own_groups(kind[0]), definition.states, required] += kind
        self._alike = list(found.values())
        self._in_some_state: dict[Hashable, _Passing] = {}

    def of(self, caller: Caller, asked: EffectiveRequest | None = None) -> Set[str]:
        """In that request; without one, with all the caller was granted in some state."""
        if not caller.active:
            return frozenset()
        found = self._of_kinds(caller, asked)
        if grants.of(caller, self._snapshot.revision).every and caller.token_tools is None:
            return found.names
        asked = asked or EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
        questions = (AccessRequest(caller, tool, asked, self._snapshot) for tool in found.tools)
        return {one.tool.name for one in questions if object_permission(one).passed}

    def _of_kinds(self, caller: Caller, asked: EffectiveRequest | None) -> "_Passing":
        """The same for all callers with equal grants, as long as the same groups are open."""
        if asked is not None:
            return self._passing(caller, asked, (*OF_ITS_KIND, in_state))
        closed = openings_of(self._snapshot).closed
        key = (closed, caller.granted_groups, caller.granted_permissions)
        found = self._in_some_state.get(key)
        if found is None:
            asked = EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
            found = self._in_some_state[key] = self._passing(caller, asked, OF_ITS_KIND)
        return found

    def _passing(
        self, caller: Caller, asked: EffectiveRequest, gates: tuple[Gate, ...]
    ) -> "_Passing":
        open_ones = (
            tools
            for tools in self._alike
            if _pass(gates, AccessRequest(caller, tools[0], asked, self._snapshot))
        )
        tools = tuple(tool for some in open_ones for tool in some)
        return _Passing(tools, frozenset(tool.name for tool in tools))


@dataclass(frozen=True, slots=True)
class _Passing:
    """Tools whose kinds pass for a caller's request, regardless of its grants of them."""

    tools: tuple[CatalogTool, ...]
    names: frozenset[str]


def reach_of(snapshot: Snapshot) -> CallerToolReach:
    """Of all its tools; sorted once while nothing of it changes and its tier is the same."""
    key = ("reach", tier_now(snapshot).pk)
    return snapshot.remember(key, lambda: CallerToolReach(kinds_in(snapshot), snapshot))


def there_for_somebody(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool is in service and the license allows it, for any caller."""
    return _pass(OF_THE_TOOL, AccessRequest(NOBODY, tool, _NOTHING, snapshot))


def is_licensed(tool: CatalogTool, snapshot: Snapshot) -> bool:
    return _pass(LICENSE, AccessRequest(NOBODY, tool, _NOTHING, snapshot))


def _pass(gates: tuple[Gate, ...], question: AccessRequest) -> bool:
    return all(gate(question).passed for gate in gates)


def reaches(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool exists for the caller now, asking for every group it was granted."""
    question = AccessRequest(
        caller, tool, EffectiveRequest(caller.granted_groups, DEFAULT_STATE), snapshot
    )
    return caller.active and all(gate(question).passed for gate in _IN_SOME_STATE)


def agents_that_reach(tool: CatalogTool, snapshot: Snapshot) -> tuple[list[str], bool]:
    """Among the first agents of the organization by name, and whether there are more."""
    callers, cut = _first_agents(snapshot, MOST_AGENTS)
    return [caller.name for caller in callers if reaches(caller, tool, snapshot)], cut


def losers(names: Sequence[str], before: Snapshot, after: Snapshot) -> Losers:
    """Of the named tools: which agents reach them before and not after. A tool that is missing
    after counts as lost."""
    most = min(MOST_AGENTS, max(1, _MOST_QUESTIONS // max(1, len(names))))
    callers, cut = _first_agents(before, most)
    reached, would_be = (
        CallerToolReach(kinds_among(names, world), world) for world in (before, after)
    )
    lost = [reached.of(caller) - would_be.of(caller) for caller in callers]
    counts = Counter(name for of_one in lost for name in of_one)
    return Losers(counts, len(callers), cut, sum(map(bool, lost)))


def known_callers(agents: Iterable[Agent], revision: int) -> list[Caller]:
    """The agents as callers, with all they were granted: a constant number of queries."""
    callers = callers_of_agents(agents)
    grants.learn(callers, revision)
    return callers


def _first_agents(snapshot: Snapshot, most: int) -> tuple[list[Caller], bool]:
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    found = list(rows.order_by("slug")[: most + 1])
    return known_callers(found[:most], snapshot.revision), len(found) > most
