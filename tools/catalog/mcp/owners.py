"""Owners of MCP credentials: written `user:name` and `agent:slug`, stored by id.

A name may be another's tomorrow; an id never is. What was carried over without an account is kept
as `none:…`, which no call ever asks for.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from tools.errors import Malformed
from tools.models import Agent, Organization, User

AGENT, USER, NONE = "agent", "user", "none"


def owner_key(kind: str, identifier: UUID | str | None) -> str:
    """The owner key of a caller. A caller without an id owns nothing."""
    return f"{AGENT if kind == AGENT else USER}:{identifier}" if identifier else f"{NONE}:"


def key_of(organization_id: UUID, owner: str) -> str:
    """The key of an owner as people write it; empty for the shared one. Raises `Malformed`."""
    kind, _, name = owner.partition(":")
    if not owner or kind == NONE:
        return owner
    found = None
    if "\x00" not in name:  # which PostgreSQL cannot store
        found = (_agent if kind == AGENT else _person)(organization_id, name)
    if found is None or kind not in (AGENT, USER):
        raise Malformed(f"There is no {owner[:150]!r} here.", code="owner_not_found")
    return f"{kind}:{found}"


def known_key(organization_id: UUID, owner: str) -> str | None:
    """The same, or None where the name does not exist."""
    try:
        return key_of(organization_id, owner)
    except Malformed:
        return None


def keys_named(owner: str) -> list[str]:
    """The keys of all accounts with this owner name, in any organization."""
    kind, _, name = owner.partition(":")
    rows: dict[str, QuerySet[Any, Any]] = {
        AGENT: Agent.objects.filter(slug=name).values_list("pk", flat=True),
        USER: User.objects.filter(username=name).values_list("pk", flat=True),
    }
    return [f"{kind}:{pk}" for pk in rows[kind]] if kind in rows else []


def owner_text(key: str) -> str:
    """As people write it."""
    return owner_texts([key])[key]


def owner_texts(keys: Iterable[str]) -> dict[str, str]:
    """By key, with two queries at most."""
    wanted = [*keys]
    ids: dict[str, set[str]] = {AGENT: set(), USER: set()}
    for key in wanted:
        kind, _, identifier = key.partition(":")
        if kind in ids and _is_id(identifier):
            ids[kind].add(identifier)
    names: dict[str, str] = {}
    if ids[AGENT]:
        rows = Agent.objects.filter(pk__in=ids[AGENT]).values_list("pk", "slug")
        names |= {f"{AGENT}:{pk}": f"{AGENT}:{slug}" for pk, slug in rows}
    if ids[USER]:
        people = User.objects.filter(pk__in=ids[USER]).values_list("pk", "username")
        names |= {f"{USER}:{pk}": f"{USER}:{name}" for pk, name in people}
    return {key: names.get(key, key) for key in wanted}


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _agent(organization_id: UUID, slug: str) -> UUID | None:
    rows = Agent.objects.filter(organization_id=organization_id, slug=slug)
    return rows.values_list("pk", flat=True).first()


def _person(organization_id: UUID, name: str) -> UUID | None:
    """Of the organization, or with leave to act in it."""
    user = User.objects.filter(username=name, is_service_account=False).first()
    if user is None:
        return None
    place = Organization(pk=organization_id)
    at_home = user.organization_id == organization_id
    return user.pk if at_home or user.has_perm("tools.act_in_organization", place) else None
