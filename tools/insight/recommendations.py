"""Recommends groups for a question (checklist S1, 15): by the words of their tools, and by tools
that were used with success before.

Only groups the caller may request are named, and only for tools it could call through them.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import Count
from django.utils import timezone

from tools.accounts.user_permissions import may
from tools.authorization.facts import question_of
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.texts.names import WILDCARD
from tools.models import Execution
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, Gate

MOST_GROUPS = 20
MOST_TOOLS = 5  # named for one group
PERIOD = timedelta(days=30)
_MOST_CALLS = 50_000  # the latest that count
_REMEMBERED_S = 60.0
_MOST_REMEMBERED = 1_000
_OF_USE = 0.2  # tenfold success adds about half of the score of the words
_OF_SIZE = 0.1  # of two groups that fit alike, the smaller opens less
_SHARES = (1.0, 0.5, 0.25)  # of its best tools in a group's score

# Managers of the catalog are recommended groups of tools that they were not granted.
SKIPPED_FOR_MANAGERS = frozenset(gates.SKIPPED_BY_LISTINGS) | {
    Gate.OBJECT_PERMISSION, Gate.REQUIRED_PERMISSIONS, Gate.LICENSE, Gate.SANDBOX_PROFILE,
    Gate.ISOLATION_LICENSE, Gate.ISOLATION, Gate.NETWORK,
}  # fmt: skip

_successes: dict[UUID, tuple[float, Counter[str]]] = {}


@dataclass(frozen=True, slots=True)
class Fitting:
    """A tool that is a reason for a group."""

    name: str
    score: float
    proven: bool  # used with success recently


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`score` is relative to the best group's, which is 1."""

    group: str
    score: float
    tools: tuple[Fitting, ...]

    @property
    def reason(self) -> str:
        names = ", ".join(tool.name for tool in self.tools)
        fits = f"{names} {'fits' if len(self.tools) == 1 else 'fit'} the question"
        proven = [tool.name for tool in self.tools if tool.proven]
        used = f"; used with success lately: {', '.join(proven)}" if proven else ""
        return f"{fits}{used}."


def recommend(
    caller: Caller, question: str, state: str | None, snapshot: Snapshot
) -> list[Recommendation]:
    """Groups for a question, the best first. Without a state, tools of every state count."""
    used = successes(snapshot.organization_id)
    by_group: dict[str, list[Fitting]] = defaultdict(list)
    asking = _Asking(caller, state, snapshot, manages=may(caller, "view_tool"))
    for fitting, groups in asking.fitting(question, used):
        for group in groups:
            by_group[group].append(fitting)
    sizes = _sizes(snapshot)
    scored = sorted(
        ((_score(tools, sizes[group]), group, tools) for group, tools in by_group.items()),
        key=lambda one: (-one[0], one[1]),
    )
    return [
        Recommendation(group, round(score / scored[0][0], 3), tuple(tools[:MOST_TOOLS]))
        for score, group, tools in scored[:MOST_GROUPS]
    ]


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who asks, and in which state if that is known."""

    caller: Caller
    state: str | None
    snapshot: Snapshot
    manages: bool

    def fitting(self, question: str, used: Counter[str]) -> Iterator[tuple[Fitting, list[str]]]:
        """Tools that fit, each with the groups through which the caller could have it."""
        groups = {tool.name: self.having(tool) for tool in self.snapshot.sorted_tools}
        had = [tool for tool in self.snapshot.sorted_tools if groups[tool.name]]
        for one in relevant_tools(rank_tools(self.snapshot, question, had)):
            count = used[one.tool.name]
            score = one.score * (1 + _OF_USE * math.log1p(count))
            yield Fitting(one.tool.name, score, count > 0), groups[one.tool.name]

    def having(self, tool: CatalogTool) -> list[str]:
        """The groups through which the caller could have it: no other tool is ranked, so that none
        displaces a usable one."""
        return [group for group in self.requestable(tool) if self.could_have(tool, group)]

    def requestable(self, tool: CatalogTool) -> list[str]:
        held, granted = self.snapshot.groups_of(tool), self.caller.granted_groups
        every = self.manages or WILDCARD in granted
        return sorted((held if every else held & granted) - {WILDCARD})

    def could_have(self, tool: CatalogTool, group: str) -> bool:
        """The gate's question for a request with only this group."""
        asked = EffectiveRequest(
            frozenset([group]), DEFAULT_STATE if self.state is None else self.state
        )
        question = question_of(self.caller, tool, asked, self.snapshot)
        skip = SKIPPED_FOR_MANAGERS if self.manages else gates.SKIPPED_BY_LISTINGS
        checks = gates.select(Stage.ACCESS, skip=skip)
        verdicts = (check.decide(question) for check in checks)
        return all(
            verdict.passed or (verdict.gate == Gate.STATE and self.state is None)
            for verdict in verdicts
        )


def _score(tools: list[Fitting], size: int) -> float:
    best = sorted((tool.score for tool in tools), reverse=True)
    whole = sum(share * score for share, score in zip(_SHARES, best, strict=False))
    return whole / (1 + _OF_SIZE * math.log1p(size))


def _sizes(snapshot: Snapshot) -> Counter[str]:
    return snapshot.remember(
        ("group sizes",),
        lambda: Counter(
            name for tool in snapshot.tools.values() for name in snapshot.groups_of(tool)
        ),
    )


def successes(organization_id: UUID) -> Counter[str]:
    """By tool: how often it ended well in the last 30 days; at most a minute old."""
    known = _successes.get(organization_id)
    if known is None or known[0] < time.monotonic():
        if len(_successes) >= _MOST_REMEMBERED:
            _successes.clear()
        known = time.monotonic() + _REMEMBERED_S, _count(organization_id)
        _successes[organization_id] = known
    return known[1]


def _count(organization_id: UUID) -> Counter[str]:
    latest = Execution.objects.filter(
        organization_id=organization_id,
        status=Status.SUCCESS,
        created_at__gt=timezone.now() - PERIOD,
    ).order_by("-created_at")[:_MOST_CALLS]
    counted = (
        Execution.objects.filter(pk__in=latest.values("pk"))
        .order_by()
        .values_list("tool_name")
        .annotate(times=Count("pk"))
    )
    return Counter(dict(counted))
