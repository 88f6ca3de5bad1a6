"""Scheduled maintenance of sessions: close idle ones, and count those that make no progress."""

from collections import Counter
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q
from django.db.models.functions import Now

from audit.actions import Actor
from tools import metrics
from tools.authorization.known_names import drop_unknown_names
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import CallerKind
from tools.definitions.results import OPEN
from tools.models import Execution, Organization, Session
from tools.models.session import SessionQuerySet
from tools.policy.availability import matches_groups, matches_state
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest
from tools.workflows.session_actions import close_open_session

BATCH = 500


def close_idle() -> int:
    """Close sessions that were idle for `SESSION_IDLE_HOURS`; how many there were."""
    idle = _idle(timedelta(hours=settings.SESSION_IDLE_HOURS))
    found = idle.order_by("created_at").values_list("pk", "organization__slug")[:BATCH]
    return sum(
        close_open_session(
            idle.filter(pk=pk), Actor(CallerKind.SYSTEM, "beat", slug), reason="idle"
        )
        for pk, slug in found
    )


def count_stuck() -> None:
    """Open sessions whose groups have no tool in their state, by organization.

    Those without groups never had one, and are not counted.
    """
    stuck: Counter[UUID] = Counter()
    sessions = Session.objects.open().exclude(groups=[]).order_by()
    for organization_id, revision, groups, state, count in sessions.values_list(
        "organization_id", "organization__revision", "groups", "state", Count("pk")
    ):
        states = _states_with_tools(registry.snapshot(organization_id, revision), frozenset(groups))
        if not matches_state(states, state):
            stuck[organization_id] += count
    for pk, slug in Organization.objects.values_list("pk", "slug"):
        metrics.sessions_stuck.labels(slug).set(stuck[pk])


def _idle(age: timedelta) -> SessionQuerySet:
    since = Now() - age
    used = Q(created_at__gt=since) | Q(completed_at__gt=since) | Q(status__in=OPEN)
    calls = Execution.objects.filter(used, session=OuterRef("pk"))
    return Session.objects.open().filter(
        ~Exists(calls), created_at__lte=since, entered_at__lte=since
    )


def _states_with_tools(snapshot: Snapshot, groups: frozenset[str]) -> frozenset[str]:
    """One pass over the tools for each set of groups, however many states clients make up."""
    groups = drop_unknown_names(EffectiveRequest(groups, DEFAULT_STATE), snapshot).groups
    return snapshot.remember(
        ("states of", groups),
        lambda: frozenset().union(
            *(
                tool.definition.states
                for tool in snapshot.tools.values()
                if tool.enabled and matches_groups(snapshot.groups_of(tool), groups)
            )
        ),
    )
