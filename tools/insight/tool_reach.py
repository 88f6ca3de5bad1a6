"""Computes which tools an agent can reach with all its grants, in some state."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass

from tools.accounts.callers import callers_of_agents
from tools.accounts.grants.grants import grants
from tools.authorization.facts import question_of
from tools.catalog.group_openings import openings_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tiers import tier_now
from tools.definitions.callers import Caller
from tools.licensing.license_coverage import question_about
from tools.licensing.tool_kinds import Kinds, kinds_among, kinds_in, passing
from tools.models import Agent
from tools.policy import gates
from tools.policy.gates import GateCheck, Scope
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, Gate

# What-if and reach ask about access. What a call would spend or wait for is not theirs.
SKIPPED = {
    Gate.NESTING: "Access does not depend on the depth of a call.",
    Gate.ACCOUNTABLE: "A halted audit log stops every call, whatever is changed.",
    Gate.LOAD: "The load of the installation is that of now, not of the calls that are replayed.",
    Gate.FAN_OUT: "As LOAD: it is counted when a call is made.",
    Gate.DELIVERY: "As for listings: see `gates.SKIPPED_BY_LISTINGS`.",
    Gate.RATE: "Nothing is counted for a hypothetical call.",
    Gate.ARGUMENTS: "Parameters do not depend on grants, groups or tiers.",
    Gate.BUDGET: "Nothing is reserved for a hypothetical call.",
    Gate.CONFIRMATION: "A held call is not refused.",
}
_SERVICE = frozenset({Gate.STATUS, Gate.SOURCE_OPEN})  # gates that a license does not affect
MOST_AGENTS = 50
_MOST_QUESTIONS = 10_000


def checks_of_callers() -> tuple[GateCheck, ...]:
    """The gates that depend on a caller's grants, with the tool or without it."""
    return _checks(Scope.KIND, Scope.CALL)


def _checks(*scopes: Scope) -> tuple[GateCheck, ...]:
    return tuple(check for check in gates.select(skip=SKIPPED) if check.scope in scopes)


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
        for kind in passing(kinds, snapshot, is_available_to_any):
            definition = kind[0].definition
            required = tuple(definition.raw["required_permissions"])
            found[snapshot.own_groups(kind[0]), definition.states, required] += kind
        self._alike = list(found.values())
        self._in_some_state: dict[Hashable, _Passing] = {}

    def reachable_names(self, caller: Caller, asked: EffectiveRequest | None = None) -> Set[str]:
        """In that request; without one, with all the caller was granted in some state."""
        if not caller.active:
            return frozenset()
        found = self._of_kinds(caller, asked)
        checks = _checks(Scope.CALL)
        if grants.find_grants(caller, self._snapshot.revision).every and caller.token_tools is None:
            checks = tuple(one for one in checks if one.name != Gate.OBJECT_PERMISSION)
        if not checks:
            return found.names
        asked = asked or EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
        questions = (question_of(caller, tool, asked, self._snapshot) for tool in found.tools)
        return {one.tool.name for one in questions if gates.passes(one, checks)}

    def _of_kinds(self, caller: Caller, asked: EffectiveRequest | None) -> "_Passing":
        """The same for all callers with equal grants, as long as the same groups are open."""
        if asked is not None:
            return self._passing(caller, asked, _checks(Scope.KIND))
        closed = openings_of(self._snapshot).closed
        key = (closed, caller.granted_groups, caller.granted_permissions)
        found = self._in_some_state.get(key)
        if found is None:
            asked = EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
            found = self._in_some_state[key] = self._passing(
                caller,
                asked,
                tuple(one for one in _checks(Scope.KIND) if one.name != Gate.STATE),
            )
        return found

    def _passing(
        self, caller: Caller, asked: EffectiveRequest, checks: tuple[GateCheck, ...]
    ) -> "_Passing":
        open_ones = (
            tools
            for tools in self._alike
            if gates.passes(question_of(caller, tools[0], asked, self._snapshot), checks)
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


def is_available_to_any(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool is in service and the license allows it, for any caller."""
    return gates.passes(question_about(tool, snapshot), _checks(Scope.TOOL))


def is_licensed(tool: CatalogTool, snapshot: Snapshot) -> bool:
    checks = tuple(check for check in _checks(Scope.TOOL) if check.name not in _SERVICE)
    return gates.passes(question_about(tool, snapshot), checks)


def reaches(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the tool exists for the caller now, asking for every group it was granted."""
    question = question_of(
        caller, tool, EffectiveRequest(caller.granted_groups, DEFAULT_STATE), snapshot
    )
    checks = _checks(Scope.TOOL, Scope.KIND, Scope.CALL)
    in_some_state = tuple(check for check in checks if check.name != Gate.STATE)
    return caller.active and gates.passes(question, in_some_state)


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
    lost = [
        reached.reachable_names(caller) - would_be.reachable_names(caller) for caller in callers
    ]
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
