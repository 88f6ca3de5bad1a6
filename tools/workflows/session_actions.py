"""Opens, reads and closes sessions, for all entry points."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, F, JSONField, Q, QuerySet, TextField, When
from django.db.models.functions import Cast, Left, Length, Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.accounts.callers import actor_of, caller_of_agent, caller_of_user
from tools.accounts.user_permissions import may, require
from tools.authorization import pins
from tools.authorization.facts import check_groups, check_groups_uncounted
from tools.authorization.listings import usable_tools
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts import names
from tools.errors import Conflict, Malformed, NotFound, Refused
from tools.models import Organization, Session, StateTransition
from tools.models.session import SessionQuerySet
from tools.policy.questions import EffectiveRequest

MOST_OPEN_SESSIONS = 1_000  # of one caller
MOST_TRANSITIONS = 200  # shown with a session; its history has all
MOST_ARGUMENTS = 4_000  # characters of a step's arguments; larger ones are only in its execution
MOST_OBSERVATION = 4_000


def open_session(
    *,
    caller: Caller,
    group: list[str] | None,
    state: str | None,
    pins: dict[str, Any] | None = None,
) -> tuple[Session, list[str]]:
    """A new session, and warnings about unknown groups.

    Its first state is a filter, not a permission. Raises `Malformed`, `Refused`, `Conflict`.
    """
    request = EffectiveRequest.from_options(group, state)
    _check_names(request)
    warnings = _check_granted_groups(caller, request)
    return _create_session(caller, request, pins or {}), warnings


def close_session(*, caller: Caller, session: Session) -> bool:
    """No call begins in it any more; a running one finishes. False where it was closed already.

    Another caller's session requires the permission to change sessions. Raises `Forbidden`.
    """
    if session.user_id != caller.user_id:
        require(caller, "change_session")
    row = Session.objects.filter(pk=session.pk)
    return close_open_session(row, actor_of(caller), reason="asked")


@transaction.atomic
def close_open_session(session: SessionQuerySet, by: Actor, *, reason: str) -> bool:
    """Closes the session of the query. False if it is closed already, or does not exist."""
    row = session.open().values_list("pk", "state").first()
    if row is None or not session.open().update(closed_at=Now()):
        return False
    record(
        Event.SESSION_CLOSE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=str(row[0]),
        reason=reason,
        details={"state": row[1]},
    )
    return True


def readable_sessions(caller: Caller) -> SessionQuerySet:
    """The sessions that a caller may read: an agent its own, a user what is granted."""
    here = Session.objects.filter(organization_id=caller.organization_id)
    here = here if may(caller, "view_session") else here.filter(user_id=caller.user_id)
    return here.select_related("agent", "user")


def find_readable_session(caller: Caller, identifier: UUID) -> Session:
    """A session that the caller may read. Raises `NotFound` for any other."""
    found = readable_sessions(caller).filter(pk=identifier).first()
    if found is None:
        raise NotFound("There is no such session among yours.", code="session_not_found")
    return found


def session_history(session: Session) -> QuerySet[Any]:
    """The calls of a session in their order, with refused ones.

    Each execution has `arguments`, None if they are large, and `seen`, the beginning of the
    observation.
    """
    size = Length(Cast("parameters", TextField()))
    small = When(Q(size__lte=MOST_ARGUMENTS), then=F("parameters"))
    return (
        session.executions.annotate(
            size=size,
            arguments=Case(small, default=None, output_field=JSONField(null=True)),
            seen=Left("observation", MOST_OBSERVATION),
        )
        .only("tool_name", "status", "state", "state_after", "error_code", "cached", "created_at",
              "completed_at")
        .order_by("pk")
    )  # fmt: skip


def latest_transitions(session: Session) -> list[StateTransition]:
    """The latest transitions, in their order."""
    return list(session.transitions.order_by("-pk")[:MOST_TRANSITIONS])[::-1]


def available_tools(caller: Caller, session: Session) -> list[CatalogTool]:
    """The tools that are available in the session now, to its owner."""
    owner = caller if caller.user_id == session.user_id else _session_owner(session)
    request = EffectiveRequest.from_options(session.groups, session.state)
    snapshot = pins.snapshot_for(owner, session.pk)
    if session.closed_at is not None or not _is_callable_request(owner, request, snapshot):
        return []
    return usable_tools(owner, request, snapshot)


def _check_names(request: EffectiveRequest) -> None:
    for field, values in (("group", request.groups), ("state", [request.state])):
        for name in values:
            if flaw := names.flaw_in_group(name):
                raise Malformed(f"The name of a {field} {flaw}.", field=field)


def _check_granted_groups(caller: Caller, request: EffectiveRequest) -> list[str]:
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    try:
        return check_groups(caller, request, snapshot)
    except Refused as refusal:
        metrics.denials.labels(refusal.code).inc()
        record(
            Event.SESSION_DENY,
            by=actor_of(caller),
            outcome=Outcome.DENIED,
            reason=refusal.code,
            details={
                "requested_groups": sorted(request.groups),
                "granted_groups": sorted(caller.granted_groups),
                "state": request.state,
            },
        )
        raise


@transaction.atomic
def _create_session(
    caller: Caller, request: EffectiveRequest, pins_by_tool: dict[str, Any]
) -> Session:
    open_sessions = Session.objects.open().filter(
        user_id=caller.user_id, organization_id=caller.organization_id
    )
    if open_sessions.count() >= MOST_OPEN_SESSIONS:
        raise Conflict(
            f"The caller has {MOST_OPEN_SESSIONS} open sessions. Close some of them.",
            code="too_many_sessions",
        )
    session = Session(
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        agent_id=caller.agent_id,
        groups=sorted(request.groups),
        state=request.state,
    )
    session.save(force_insert=True)
    session.refresh_from_db(fields=["entered_at", "created_at"])
    pins.pin_session(session=session, caller=caller, pins=pins_by_tool)
    record(
        Event.SESSION_OPEN,
        by=actor_of(caller),
        outcome=Outcome.CHANGED,
        subject=str(session.pk),
        details={"group": session.groups, "state": session.state, "pins": pins_by_tool},
    )
    return session


def _session_owner(session: Session) -> Caller:
    """The owner of the session with their current rights."""
    if session.agent is not None:
        return caller_of_agent(session.agent)
    home = Organization.objects.get(pk=session.organization_id)
    return caller_of_user(session.user, organization=home)


def _is_callable_request(owner: Caller, request: EffectiveRequest, snapshot: Snapshot) -> bool:
    """Whether a call in the session would reach the gates."""
    try:
        check_groups_uncounted(owner, request, snapshot)
    except (Refused, Malformed):
        return False
    return owner.active
