"""What the doors call: open a session, read it, close it."""

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

MOST_OPEN = 1_000  # sessions of one caller
MOST_TRANSITIONS = 200  # shown with a session; its history holds all
MOST_ARGUMENTS = 4_000  # characters of a step's arguments, beyond which its execution has them
MOST_OBSERVATION = 4_000


def open_session(
    *,
    caller: Caller,
    group: list[str] | None,
    state: str | None,
    pins: dict[str, Any] | None = None,
) -> tuple[Session, list[str]]:
    """A session with what the caller may have, and warnings about unknown groups.

    The state it begins in is a filter, not a permission. Raises `Malformed`, `Refused`, `Conflict`.
    """
    asked = EffectiveRequest.from_options(group, state)
    _check_names(asked)
    warnings = _granted(caller, asked)
    return _open(caller, asked, pins or {}), warnings


def close_session(*, caller: Caller, session: Session) -> None:
    """No call begins in it any more; one that is running finishes. Safe to repeat.

    Another's session only by who may change sessions. Raises `Forbidden`.
    """
    if session.user_id != caller.user_id:
        require(caller, "change_session")
    end(Session.objects.filter(pk=session.pk), actor_of(caller), reason="asked")


@transaction.atomic
def end(session: SessionQuerySet, by: Actor, *, reason: str) -> bool:
    """Close the one session of the query. False when it was closed already, or is not there."""
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


def readable(caller: Caller) -> SessionQuerySet:
    """The sessions a caller may read: an agent its own, a person what is granted."""
    here = Session.objects.filter(organization_id=caller.organization_id)
    here = here if may(caller, "view_session") else here.filter(user_id=caller.user_id)
    return here.select_related("agent", "user")


def one_of(caller: Caller, identifier: UUID) -> Session:
    """One session the caller may read. Raises `NotFound` also when it is another's."""
    found = readable(caller).filter(pk=identifier).first()
    if found is None:
        raise NotFound("There is no such session among yours.", code="session_not_found")
    return found


def history(session: Session) -> QuerySet[Any]:
    """The calls of a session in their order, refused ones too.

    Executions with `arguments`, None where they are large and stay in the database, and `seen`,
    the beginning of the observation.
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


def transitions(session: Session) -> list[StateTransition]:
    """The latest ones, in order."""
    return list(session.transitions.order_by("-pk")[:MOST_TRANSITIONS])[::-1]


def available_tools(caller: Caller, session: Session) -> list[CatalogTool]:
    """The tools that exist in the session now, for the one it belongs to."""
    owner = caller if caller.user_id == session.user_id else _owner(session)
    asked = EffectiveRequest.from_options(session.groups, session.state)
    snapshot = pins.snapshot_for(owner, session.pk)
    if session.closed_at is not None or not _may_ask(owner, asked, snapshot):
        return []
    return usable_tools(owner, asked, snapshot)


def _check_names(asked: EffectiveRequest) -> None:
    for field, given in (("group", asked.groups), ("state", [asked.state])):
        for name in given:
            if flaw := names.flaw_in_group(name):
                raise Malformed(f"The name of a {field} {flaw}.", field=field)


def _granted(caller: Caller, asked: EffectiveRequest) -> list[str]:
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    try:
        return check_groups(caller, asked, snapshot)
    except Refused as refusal:
        metrics.denials.labels(refusal.code).inc()
        record(
            Event.SESSION_DENY,
            by=actor_of(caller),
            outcome=Outcome.DENIED,
            reason=refusal.code,
            details={
                "requested_groups": sorted(asked.groups),
                "granted_groups": sorted(caller.granted_groups),
                "state": asked.state,
            },
        )
        raise


@transaction.atomic
def _open(caller: Caller, asked: EffectiveRequest, wanted: dict[str, Any]) -> Session:
    mine = Session.objects.open().filter(
        user_id=caller.user_id, organization_id=caller.organization_id
    )
    if mine.count() >= MOST_OPEN:
        raise Conflict(
            f"The caller has {MOST_OPEN} open sessions. Close some of them.",
            code="too_many_sessions",
        )
    session = Session(
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        agent_id=caller.agent_id,
        groups=sorted(asked.groups),
        state=asked.state,
    )
    session.save(force_insert=True)
    session.refresh_from_db(fields=["entered_at", "created_at"])
    pins.pin_session(session=session, caller=caller, pins=wanted)
    record(
        Event.SESSION_OPEN,
        by=actor_of(caller),
        outcome=Outcome.CHANGED,
        subject=str(session.pk),
        details={"group": session.groups, "state": session.state, "pins": wanted},
    )
    return session


def _owner(session: Session) -> Caller:
    """Whose session it is, as they stand now."""
    if session.agent is not None:
        return caller_of_agent(session.agent)
    home = Organization.objects.get(pk=session.organization_id)
    return caller_of_user(session.user, organization=home)


def _may_ask(owner: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> bool:
    """Whether a call in the session would come as far as the gates."""
    try:
        check_groups_uncounted(owner, asked, snapshot)
    except (Refused, Malformed):
        return False
    return owner.active
