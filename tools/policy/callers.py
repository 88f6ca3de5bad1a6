"""From credentials to a caller. A bearer token costs one indexed query, and that query also brings
the organization's revision, by which the caller's process knows whether its catalog is current."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from audit.actions import Actor
from config.logs import request_id
from tools.definitions.callers import Caller, CallerKind, Scope
from tools.definitions.names import WILDCARD
from tools.errors import Unauthenticated
from tools.models import Execution, Organization, Token, User
from tools.policy.tokens import Presented, hashed, matches, read_token

LAST_USED_STEP = timedelta(minutes=1)  # a write per minute and token, not per request
# What a caller is made of: our name for it, and its place as seen from the user's row.
_COLUMNS = {
    "user_id": "pk",
    "username": "username",
    "groups": "granted_groups",
    "permissions": "granted_permissions",
    "superuser": "is_superuser",
    "user_active": "is_active",
    "organization_id": "organization__pk",
    "organization": "organization__slug",
    "revision": "organization__revision",
    "agent_id": "agent__pk",
    "agent": "agent__slug",
    "agent_active": "agent__active",
    "strict": "agent__strict",
}
_TOKEN_COLUMNS = ("pk", "secret_hash", "scopes", "expires_at", "revoked_at", "last_used_at")
_FROM_TOKEN = [f"user__{place}" for place in _COLUMNS.values()]
_NOBODY = Presented("0" * 8, "0" * 43)
REFUSAL = "The token is not valid. Ask an administrator for a new one."


def caller_of_token(text: str, *, source_ip: str = "") -> Caller:
    """The caller behind a bearer token. Raises `Unauthenticated`, always with the same words."""
    presented = read_token(text)
    if presented is None:
        raise Unauthenticated(REFUSAL)
    named = Token.objects.filter(public_id=presented.public_id)
    values = named.values_list(*_TOKEN_COLUMNS, *_FROM_TOKEN).first()
    if values is None:
        matches(_NOBODY, hashed(presented.secret))  # the same work as for a known one
        raise Unauthenticated(REFUSAL)
    row = dict(zip((*_TOKEN_COLUMNS, *_COLUMNS), values, strict=True))
    now = timezone.now()
    good = matches(presented, row["secret_hash"])
    if not good or row["revoked_at"] or row["expires_at"] <= now or not row["user_active"]:
        raise Unauthenticated(REFUSAL)
    if row["agent_id"] and not row["agent_active"]:
        raise Unauthenticated("The agent is suspended.", code="agent_suspended")
    if row["last_used_at"] is None or now - row["last_used_at"] > LAST_USED_STEP:
        Token.objects.filter(pk=row["pk"]).update(last_used_at=now)
    return _caller(row, scopes=frozenset(row["scopes"]), token_id=row["pk"], source_ip=source_ip)


def caller_of_user(
    user: User, *, organization: Organization | None = None, source_ip: str = ""
) -> Caller:
    """A person in their own organization, or in another one they may act in."""
    home = organization or user.organization
    return Caller(
        kind=CallerKind.PERSON,
        name=user.username,
        organization_id=home.pk,
        organization=home.slug,
        revision=home.revision,
        user_id=user.pk,
        granted_groups=frozenset([WILDCARD] if user.is_superuser else user.granted_groups),
        granted_permissions=frozenset(
            [WILDCARD] if user.is_superuser else user.granted_permissions
        ),
        scopes=frozenset(Scope),
        is_superuser=user.is_superuser,
        source_ip=source_ip,
    )


def caller_of_execution(execution: Execution) -> Caller:
    """Whoever asked for an execution, with what they are granted now; two queries at most.

    `active` is False for one who was suspended, or whose token was revoked, since.
    """
    values = User.objects.values_list(*_COLUMNS.values()).get(pk=execution.user_id)
    row = dict(zip(_COLUMNS, values, strict=True))
    if row["organization_id"] != execution.organization_id:
        place = Organization.objects.get(pk=execution.organization_id)
        row |= {"organization_id": place.pk, "organization": place.slug, "revision": place.revision}
    caller = _caller(row, scopes=frozenset(Scope), token_id=execution.token_id)
    suspended = row["agent_id"] and not row["agent_active"]
    if suspended or not row["user_active"] or _revoked(execution.token_id):
        return replace(caller, active=False)
    return caller


def actor_of(caller: Caller) -> Actor:
    """The caller as evidence names it."""
    return Actor(
        kind=caller.kind,
        name=caller.name,
        organization=caller.organization,
        id=str(caller.agent_id or caller.user_id or ""),
        token_id=str(caller.token_id or ""),
        source_ip=caller.source_ip,
        request_id=request_id.get(),
    )


def _revoked(token_id: UUID | None) -> bool:
    usable = Token.objects.usable(timezone.now()).filter(pk=token_id)
    return token_id is not None and not usable.exists()


def _caller(
    row: dict[str, Any],
    *,
    scopes: frozenset[str],
    token_id: UUID | None = None,
    source_ip: str = "",
) -> Caller:
    everything = [WILDCARD] if row["superuser"] else None
    return Caller(
        kind=CallerKind.AGENT if row["agent_id"] else CallerKind.PERSON,
        name=row["agent"] or row["username"],
        organization_id=row["organization_id"],
        organization=row["organization"],
        revision=row["revision"],
        user_id=row["user_id"],
        agent_id=row["agent_id"],
        token_id=token_id,
        granted_groups=frozenset(everything or row["groups"]),
        granted_permissions=frozenset(everything or row["permissions"]),
        scopes=scopes,
        is_superuser=row["superuser"],
        strict=bool(row["strict"]),
        source_ip=source_ip,
    )
