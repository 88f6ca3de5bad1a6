"""Grants and revokes permissions of agents, people, and groups of people.

A user grants only what they hold and cannot change their own grants; a superuser holds everything.
Each change increments the revision of every organization where its holder may act, and records what
was added and removed, in one transaction.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import transaction
from guardian.shortcuts import assign_perm, remove_perm

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of, caller_of_account
from tools.accounts.grants.grant_queries import (
    _COLUMNS,
    _EVERY_TOOL,
    AGENT,
    BODY_KINDS,
    KINDS,
    PEOPLE,
    PERSON,
    SUBJECTS,
    GrantHolder,
    GrantNames,
    _model_permissions,
    direct_grants,
    find_holder,
    holder_of_agent,
)
from tools.accounts.grants.grants import EXECUTE, EXECUTE_GROUP, grants, permissions_of
from tools.accounts.user_permissions import increment_revisions, may, require
from tools.catalog import groups as catalog
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.texts import names
from tools.errors import Forbidden, Malformed, NotFound
from tools.models import Agent, Organization, Tool, ToolGroup, User
from tools.models.permission import GrantRow


@transaction.atomic
def give_grants(*, giver: Caller, kind: str, name: str, wanted: GrantNames) -> bool:
    """Add grants that are not held yet: whether there were any. Safe to repeat."""
    subject = _find_changeable(giver, kind, name)
    return _change_grants(subject, by=actor_of(giver), giver=giver, added=wanted)


@transaction.atomic
def add_grants(*, giver: Caller, kind: str, name: str, wanted: GrantNames) -> list[GrantRow]:
    """As `give_grants`; returns all requested ones as rows."""
    give_grants(giver=giver, kind=kind, name=name, wanted=wanted)
    return [
        GrantRow(kind, name, KINDS[what], item)
        for what, items in wanted.items()
        for item in dict.fromkeys(items)
    ]


@transaction.atomic
def revoke_grant(*, giver: Caller, row: GrantRow) -> None:
    """Revoke one grant. Raises `NotFound` where it is not held."""
    subject = _find_changeable(giver, row.subject_kind, row.subject)
    what = BODY_KINDS[row.kind]
    if row.name not in direct_grants(subject, (what,))[what]:
        raise NotFound("There is no such grant.", code="grant_not_found")
    _change_grants(subject, by=actor_of(giver), giver=giver, removed={what: [row.name]})


@transaction.atomic
def set_grants(
    *,
    agent: Agent,
    by: Actor,
    giver: Caller | None = None,
    groups: list[str] | None = None,
    tools: list[str] | None = None,
    tool_groups: list[str] | None = None,
    permissions: list[str] | None = None,
) -> None:
    """Set the given kinds of an agent's grants; None leaves a kind unchanged. The tool "*" stands
    for all and leaves no other. Without a giver only the system grants."""
    if tools is not None and names.WILDCARD in tools:
        tools = [names.WILDCARD]
    wanted = {
        "groups": groups, "tools": tools, "tool_groups": tool_groups, "permissions": permissions,
    }  # fmt: skip
    given = {what: items for what, items in wanted.items() if items is not None}
    subject = holder_of_agent(agent)
    _lock(subject.holder)
    held = direct_grants(subject, given)
    _change_grants(
        subject,
        by=by,
        giver=giver,
        added=given,
        removed={what: held[what] - set(items) for what, items in given.items()},
    )


def check_grantable(giver: Caller, wanted: GrantNames) -> None:
    """Raises `Forbidden` for what the giver does not hold in the organization it acts in.

    Call it before the transaction increments a revision: the process caches what is read here.
    """
    snapshot = registry.snapshot(giver.organization_id, giver.revision)
    beyond = {
        what: missing
        for what, items in wanted.items()
        if (missing := sorted(set(items) - _subset_held(giver, what, set(items), snapshot)))
    }
    if beyond:
        listed = "; ".join(f"{what} {', '.join(items)}" for what, items in beyond.items())
        raise Forbidden(
            f"Nobody grants what they do not hold themselves, and you do not hold: {listed}. "
            "Leave it out, or ask an administrator who holds it.",
            code="grant_beyond_own",
            **beyond,
        )


def check_narrowing(account: User, *, groups: list[str] | None, tools: list[str] | None) -> None:
    """A token never has more rights than its holder. Raises `Malformed` for grants that the holder
    lacks."""
    if groups is None and tools is None:
        return
    holder = caller_of_account(account)
    snapshot = registry.snapshot(holder.organization_id, holder.revision)
    names_of_tools = {name for name in tools or () if snapshot.tool(name) is not None}
    held = {
        "groups": _subset_held(holder, "groups", set(groups or ()), snapshot),
        "tools": _subset_held(holder, "tools", names_of_tools, snapshot),
    }
    for what, wanted in (("groups", groups), ("tools", tools)):
        beyond = sorted(set(wanted or ()) - held[what] - {names.WILDCARD})
        if beyond:
            raise Malformed(
                f"A token only narrows what its holder has; these {what} are beyond it: "
                f"{', '.join(beyond)}.",
                code="token_beyond_holder",
                **{what: beyond},
            )


def check_changeable(giver: Caller, account: User) -> None:
    """Raises `Forbidden` unless the giver may change what this account was granted."""
    require(giver, SUBJECTS[AGENT if account.is_service_account else PERSON])
    if giver.is_superuser:
        return
    if account.pk == giver.user_id:
        raise _own_grants()
    if account.is_superuser:
        raise Forbidden("Only a superuser changes a superuser.", code="not_permitted")


def require_any_granting(giver: Caller) -> None:
    """Raises `Forbidden` for a caller who may not change any grants, before anything is read."""
    if not may(giver, SUBJECTS[PERSON]):
        require(giver, SUBJECTS[AGENT])


def _find_changeable(giver: Caller, kind: str, name: str) -> GrantHolder:
    require(giver, SUBJECTS[kind])
    if kind == PEOPLE and not giver.is_superuser:
        raise Forbidden(
            "Groups of people reach across organizations, so only a superuser changes what they "
            "hold.",
            code="not_permitted",
        )
    organization = Organization.objects.get(pk=giver.organization_id)
    subject = find_holder(organization, kind, name)
    if isinstance(subject.holder, User):
        check_changeable(giver, subject.holder)
    return subject


def _own_grants() -> Forbidden:
    return Forbidden(
        "Nobody changes their own grants. Ask another administrator.", code="own_grants"
    )


def _change_grants(
    subject: GrantHolder,
    *,
    by: Actor,
    giver: Caller | None,
    added: GrantNames | None = None,
    removed: GrantNames | None = None,
) -> bool:
    """Whether something changed. Locks the holder, so that the compared grants are those that are
    changed."""
    _lock(subject.holder)
    held = direct_grants(subject, {**(added or {}), **(removed or {})})
    more = {what: _names_to_add(items, held[what], what) for what, items in (added or {}).items()}
    less = {what: sorted(held[what] & set(items)) for what, items in (removed or {}).items()}
    more = {what: items for what, items in more.items() if items}
    less = {what: items for what, items in less.items() if items}
    if not more and not less:
        return False
    _check_giver(giver, by, more)
    increment_revisions(_accounts(subject), subject.organization)
    for what in {**more, **less}:
        _write_grants(subject, what, more.get(what, []), less.get(what, []))
    record(
        Event.GRANT_CHANGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=subject.evidence,
        details={
            "before": {what: sorted(held[what]) for what in {**more, **less}},
            "after": {
                what: _grants_after(held[what], more, less, what) for what in {**more, **less}
            },
            "added": more,
            "removed": less,
        },
    )
    return True


def _grants_after(
    held: set[str], more: dict[str, list[str]], less: dict[str, list[str]], what: str
) -> list[str]:
    return sorted(held.difference(less.get(what, ())).union(more.get(what, ())))


def _lock(holder: User | Group) -> None:
    if isinstance(holder, User):
        User.objects.select_for_update().get(pk=holder.pk)
    else:
        Group.objects.select_for_update().get(pk=holder.pk)


def _check_giver(giver: Caller | None, by: Actor, more: GrantNames) -> None:
    if giver is not None:
        check_grantable(giver, more)
    elif by.kind != CallerKind.SYSTEM:
        raise LookupError("who grants must be known, for nobody grants what they do not hold")


def _accounts(subject: GrantHolder) -> Any:
    if isinstance(subject.holder, User):
        return User.objects.filter(pk=subject.holder.pk)
    return User.objects.filter(groups=subject.holder)


def _names_to_add(items: Iterable[str], held: set[str], what: str) -> list[str]:
    """In their order, each once. Raises `Malformed` for an invalid name."""
    wanted = [item for item in dict.fromkeys(items) if item not in held]
    if what in _COLUMNS:
        for item in wanted:
            if flaw := names.flaw_in_group(item):
                raise Malformed(f"An entry of {what} {flaw}.", field=what)
    return wanted


def _subset_held(giver: Caller, what: str, items: set[str], snapshot: Snapshot) -> set[str]:
    """Those of `items` the giver holds: by grants of its own or of its (people's) groups."""
    if what == "groups":
        return items if names.WILDCARD in giver.granted_groups else items & giver.granted_groups
    if what == "permissions":
        held = permissions_of(giver, snapshot)
        return items if names.WILDCARD in held else items & held
    if what == "tool_groups":
        return {name for name in items if _may_grant_group(giver, name, snapshot)}
    return {name for name in items if _may_grant_tool(giver, name, snapshot)}


def _may_grant_tool(giver: Caller, name: str, snapshot: Snapshot) -> bool:
    """Granting a tool that does not exist requires a grant of every tool; the granter gets an
    error."""
    if giver.token_tools is not None and name not in giver.token_tools:
        return False
    held, tool = grants.find_grants(giver, snapshot.revision), snapshot.tool(name)
    return held.every if tool is None else held.cover(tool, snapshot)


def _may_grant_group(giver: Caller, name: str, snapshot: Snapshot) -> bool:
    """Itself or one of its parents: whatever is in it is in them (ruling 19)."""
    held = grants.find_grants(giver, snapshot.revision)
    if giver.token_tools is not None:
        return False
    return held.every or not held.groups.isdisjoint(_group_and_parents(name, snapshot))


def _group_and_parents(name: str, snapshot: Snapshot) -> set[str]:
    chain: set[str] = set()
    while name not in chain:
        chain.add(name)
        group = snapshot.groups.get(name)
        name = (group.parent if group else None) or name
    return chain


def _write_grants(subject: GrantHolder, what: str, more: list[str], less: list[str]) -> None:
    if what in _COLUMNS:
        _write_column(subject.account, _COLUMNS[what], more, less)
    elif what == "tool_groups":
        groups = ToolGroup.objects.filter(organization=subject.organization)
        _write_objects(subject, EXECUTE_GROUP, groups, more, less)
    else:
        _write_every_tool(subject, names.WILDCARD in more, names.WILDCARD in less)
        tools = Tool.objects.present().filter(organization=subject.organization)
        _write_objects(subject, EXECUTE, tools, more, less)


def _write_column(account: User, column: str, more: list[str], less: list[str]) -> None:
    account.refresh_from_db(fields=[column])
    kept = [item for item in getattr(account, column) if item not in less]
    setattr(account, column, kept + more)
    account.save(update_fields=[column])


def _write_every_tool(subject: GrantHolder, given: bool, taken: bool) -> None:
    execute = Permission.objects.get(**_EVERY_TOOL)
    if given:
        _model_permissions(subject).add(execute)
    if taken:
        _model_permissions(subject).remove(execute)


def _write_objects(
    subject: GrantHolder, codename: str, rows: Any, more: list[str], less: list[str]
) -> None:
    wanted = {name for name in (*more, *less) if (codename, name) != (EXECUTE, names.WILDCARD)}
    found = {row.name: row for row in rows.filter(name__in=wanted)}
    if missing := sorted(wanted - found.keys()):
        kind = "tool" if codename == EXECUTE else "group"
        raise NotFound(
            f"There is no {kind} {', '.join(missing)} to grant.", code=f"{kind}_not_found"
        )
    for name, row in found.items():
        change = assign_perm if name in more else remove_perm
        change(codename, subject.holder, row)


def create_group(
    *,
    giver: Caller,
    organization: Organization,
    name: str,
    by: Actor,
    permissions: list[str] | None = None,
    **fields: Any,
) -> ToolGroup:
    """As `save_group`, where there must be none of the name yet: raises `Conflict`."""
    check_grantable(giver, {"permissions": set(permissions or ())})
    return catalog.create_group(
        organization=organization, name=name, by=by, permissions=permissions, **fields
    )


def save_group(
    *,
    giver: Caller,
    organization: Organization,
    name: str,
    by: Actor,
    permissions: list[str] | None = None,
    **fields: Any,
) -> ToolGroup:
    """As the catalog has it. Every holder of the group holds its permissions, so adding one that
    the user does not hold raises `Forbidden`."""
    known = ToolGroup.objects.filter(organization=organization, name=name).first()
    added = set(permissions or ()) - set(known.permissions if known else ())
    check_grantable(giver, {"permissions": added})
    return catalog.save_group(
        organization=organization, name=name, by=by, permissions=permissions, **fields
    )
