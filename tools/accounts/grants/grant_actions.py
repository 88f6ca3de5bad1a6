"""Grants and revokes permissions of agents, people, and groups of people.

A user grants only what they hold and cannot change their own grants; a superuser holds everything.
Each change increments the revision of every organization where its holder may act, and records what
was added and removed, in one transaction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import transaction
from guardian.shortcuts import assign_perm, get_objects_for_group, get_objects_for_user, remove_perm

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of, caller_of_account
from tools.accounts.grants.grants import EXECUTE, EXECUTE_GROUP, grants, permissions_of
from tools.accounts.user_permissions import count_up, may, require
from tools.catalog.registry import Snapshot, registry
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.texts import names
from tools.errors import Forbidden, Malformed, NotFound
from tools.models import Agent, Organization, Tool, ToolGroup, User
from tools.models.permission import GrantRow

AGENT, PERSON, PEOPLE = "agent", "user", "people_group"
SUBJECTS = {AGENT: "change_agent", PERSON: "change_user", PEOPLE: "change_user"}
# The kinds as request bodies name them, and as list rows do.
KINDS = {
    "tools": "tool",
    "tool_groups": "tool_group",
    "groups": "requestable_group",
    "permissions": "permission",
}
BODY_KINDS = {row: body for body, row in KINDS.items()}
Grants = Mapping[str, Iterable[str]]
_COLUMNS = {"groups": "granted_groups", "permissions": "granted_permissions"}


@dataclass(frozen=True)
class Subject:
    """The holder: an account or a (people's) group, by its name in the organization."""

    kind: str
    name: str
    holder: User | Group
    organization: Organization

    @property
    def account(self) -> User:
        if not isinstance(self.holder, User):
            raise Malformed(
                "A group of people holds tools and tool groups only; which groups its members may "
                "request, and their permissions, are granted to each of them.",
                code="not_for_people_groups",
            )
        return self.holder

    @property
    def evidence(self) -> str:
        """As the record names it; an agent by its slug alone, as everywhere."""
        return self.name if self.kind == AGENT else f"{self.kind}:{self.name}"


def subject_of(agent: Agent) -> Subject:
    return Subject(AGENT, agent.slug, agent.service_account, agent.organization)


@transaction.atomic
def give(*, giver: Caller, kind: str, name: str, wanted: Grants) -> list[GrantRow]:
    """Add grants that are not held yet; returns all requested ones as rows. Safe to repeat."""
    subject = _changeable(giver, kind, name)
    _change(subject, by=actor_of(giver), giver=giver, added=wanted)
    return [
        GrantRow(kind, name, KINDS[what], item)
        for what, items in wanted.items()
        for item in dict.fromkeys(items)
    ]


@transaction.atomic
def take(*, giver: Caller, row: GrantRow) -> None:
    """Revoke one grant. Raises `NotFound` where it is not held."""
    subject = _changeable(giver, row.subject_kind, row.subject)
    what = BODY_KINDS[row.kind]
    if row.name not in held_by(subject, (what,))[what]:
        raise NotFound("There is no such grant.", code="grant_not_found")
    _change(subject, by=actor_of(giver), giver=giver, removed={what: [row.name]})


@transaction.atomic
def grant(
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
    subject = subject_of(agent)
    _lock(subject.holder)
    held = held_by(subject, given)
    _change(
        subject,
        by=by,
        giver=giver,
        added=given,
        removed={what: held[what] - set(items) for what, items in given.items()},
    )


def held_by(subject: Subject, kinds: Iterable[str] = KINDS) -> dict[str, set[str]]:
    """The direct grants of the subject, by kind."""
    return {what: _held(subject, what) for what in kinds}


def granted_tools(agent: Agent) -> list[str]:
    """The names of the tools an agent may execute by themselves; `["*"]` for all."""
    held = _held(subject_of(agent), "tools")
    return [names.WILDCARD] if names.WILDCARD in held else sorted(held)


def granted_tool_groups(agent: Agent) -> list[str]:
    return sorted(_held(subject_of(agent), "tool_groups"))


def check_held(giver: Caller, wanted: Grants) -> None:
    """Raises `Forbidden` for what the giver does not hold in the organization it acts in.

    Call it before the transaction increments a revision: the process caches what is read here.
    """
    snapshot = registry.snapshot(giver.organization_id, giver.revision)
    beyond = {
        what: missing
        for what, items in wanted.items()
        if (missing := sorted(set(items) - _holds(giver, what, set(items), snapshot)))
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
        "groups": _holds(holder, "groups", set(groups or ()), snapshot),
        "tools": _holds(holder, "tools", names_of_tools, snapshot),
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
        raise _own()
    if account.is_superuser:
        raise Forbidden("Only a superuser changes a superuser.", code="not_permitted")


def require_some(giver: Caller) -> None:
    """Raises `Forbidden` for a caller who may not change any grants, before anything is read."""
    if not may(giver, SUBJECTS[PERSON]):
        require(giver, SUBJECTS[AGENT])


def find_subject(organization: Organization, kind: str, name: str) -> Subject:
    """Raises `NotFound`, also for another organization's account."""
    holder: User | Group | None
    if kind == PEOPLE:
        holder = Group.objects.filter(name=name).first()
    else:
        accounts = User.objects.filter(organization=organization)
        mine = {"agent__slug": name} if kind == AGENT else {"username": name}
        holder = accounts.filter(is_service_account=kind == AGENT, **mine).first()
    if holder is None:
        word = kind.replace("_", " ")
        raise NotFound(f"There is no {word} {name[:150]!r}.", code=f"{kind}_not_found")
    return Subject(kind, name, holder, organization)


def _changeable(giver: Caller, kind: str, name: str) -> Subject:
    require(giver, SUBJECTS[kind])
    if kind == PEOPLE and not giver.is_superuser:
        raise Forbidden(
            "Groups of people reach across organizations, so only a superuser changes what they "
            "hold.",
            code="not_permitted",
        )
    organization = Organization.objects.get(pk=giver.organization_id)
    subject = find_subject(organization, kind, name)
    if isinstance(subject.holder, User):
        check_changeable(giver, subject.holder)
    return subject


def _own() -> Forbidden:
    return Forbidden(
        "Nobody changes their own grants. Ask another administrator.", code="own_grants"
    )


def _change(
    subject: Subject,
    *,
    by: Actor,
    giver: Caller | None,
    added: Grants | None = None,
    removed: Grants | None = None,
) -> None:
    """Locks the holder, so that the compared grants are those that are changed."""
    _lock(subject.holder)
    held = held_by(subject, {**(added or {}), **(removed or {})})
    more = {what: _new(items, held[what], what) for what, items in (added or {}).items()}
    less = {what: sorted(held[what] & set(items)) for what, items in (removed or {}).items()}
    more = {what: items for what, items in more.items() if items}
    less = {what: items for what, items in less.items() if items}
    if not more and not less:
        return
    _check_giver(giver, by, more)
    count_up(_accounts(subject), subject.organization)
    for what in {**more, **less}:
        _write(subject, what, more.get(what, []), less.get(what, []))
    record(
        Event.GRANT_CHANGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=subject.evidence,
        details={
            "before": {what: sorted(held[what]) for what in {**more, **less}},
            "after": {what: _after(held[what], more, less, what) for what in {**more, **less}},
            "added": more,
            "removed": less,
        },
    )


def _after(
    held: set[str], more: dict[str, list[str]], less: dict[str, list[str]], what: str
) -> list[str]:
    return sorted(held.difference(less.get(what, ())).union(more.get(what, ())))


def _lock(holder: User | Group) -> None:
    if isinstance(holder, User):
        User.objects.select_for_update().get(pk=holder.pk)
    else:
        Group.objects.select_for_update().get(pk=holder.pk)


def _check_giver(giver: Caller | None, by: Actor, more: Grants) -> None:
    if giver is not None:
        check_held(giver, more)
    elif by.kind != CallerKind.SYSTEM:
        raise LookupError("who grants must be known, for nobody grants what they do not hold")


def _accounts(subject: Subject) -> Any:
    if isinstance(subject.holder, User):
        return User.objects.filter(pk=subject.holder.pk)
    return User.objects.filter(groups=subject.holder)


def _new(items: Iterable[str], held: set[str], what: str) -> list[str]:
    """In their order, each once. Raises `Malformed` for an invalid name."""
    wanted = [item for item in dict.fromkeys(items) if item not in held]
    if what in _COLUMNS:
        for item in wanted:
            if flaw := names.flaw_in_group(item):
                raise Malformed(f"An entry of {what} {flaw}.", field=what)
    return wanted


def _held(subject: Subject, what: str) -> set[str]:
    if what in _COLUMNS:
        if not isinstance(subject.holder, User):
            return set()
        column = _COLUMNS[what]
        return set(User.objects.values_list(column, flat=True).get(pk=subject.holder.pk))
    if what == "tool_groups":
        return _named(subject, EXECUTE_GROUP, ToolGroup.objects.all())
    every = {names.WILDCARD} if _model_permissions(subject).filter(**_EVERY).exists() else set()
    return every | _named(subject, EXECUTE, Tool.objects.present())


_EVERY = {"codename": EXECUTE, "content_type__app_label": "tools"}


def _named(subject: Subject, codename: str, rows: Any) -> set[str]:
    here, name = rows.filter(organization=subject.organization), f"tools.{codename}"
    if isinstance(subject.holder, User):
        found = get_objects_for_user(
            subject.holder, name, here, use_groups=False, with_superuser=False,
            accept_global_perms=False,
        )  # fmt: skip
    else:
        found = get_objects_for_group(subject.holder, name, here, accept_global_perms=False)
    return set(found.values_list("name", flat=True))


def _model_permissions(subject: Subject) -> Any:
    holder = subject.holder
    return holder.user_permissions if isinstance(holder, User) else holder.permissions


def _holds(giver: Caller, what: str, items: set[str], snapshot: Snapshot) -> set[str]:
    """Those of `items` the giver holds: by grants of its own or of its (people's) groups."""
    if what == "groups":
        return items if names.WILDCARD in giver.granted_groups else items & giver.granted_groups
    if what == "permissions":
        held = permissions_of(giver, snapshot)
        return items if names.WILDCARD in held else items & held
    if what == "tool_groups":
        return {name for name in items if _holds_group(giver, name, snapshot)}
    return {name for name in items if _holds_tool(giver, name, snapshot)}


def _holds_tool(giver: Caller, name: str, snapshot: Snapshot) -> bool:
    """Granting a tool that does not exist requires a grant of every tool; the granter gets an
    error."""
    if giver.token_tools is not None and name not in giver.token_tools:
        return False
    held, tool = grants.of(giver, snapshot.revision), snapshot.tool(name)
    return held.every if tool is None else held.cover(tool, snapshot)


def _holds_group(giver: Caller, name: str, snapshot: Snapshot) -> bool:
    """Itself or one of its parents: whatever is in it is in them (ruling 19)."""
    held = grants.of(giver, snapshot.revision)
    if giver.token_tools is not None:
        return False
    return held.every or not held.groups.isdisjoint(_with_parents(name, snapshot))


def _with_parents(name: str, snapshot: Snapshot) -> set[str]:
    chain: set[str] = set()
    while name not in chain:
        chain.add(name)
        group = snapshot.groups.get(name)
        name = (group.parent if group else None) or name
    return chain


def _write(subject: Subject, what: str, more: list[str], less: list[str]) -> None:
    if what in _COLUMNS:
        _write_column(subject.account, _COLUMNS[what], more, less)
    elif what == "tool_groups":
        groups = ToolGroup.objects.filter(organization=subject.organization)
        _write_objects(subject, EXECUTE_GROUP, groups, more, less)
    else:
        _write_every(subject, names.WILDCARD in more, names.WILDCARD in less)
        tools = Tool.objects.present().filter(organization=subject.organization)
        _write_objects(subject, EXECUTE, tools, more, less)


def _write_column(account: User, column: str, more: list[str], less: list[str]) -> None:
    account.refresh_from_db(fields=[column])
    kept = [item for item in getattr(account, column) if item not in less]
    setattr(account, column, kept + more)
    account.save(update_fields=[column])


def _write_every(subject: Subject, given: bool, taken: bool) -> None:
    execute = Permission.objects.get(**_EVERY)
    if given:
        _model_permissions(subject).add(execute)
    if taken:
        _model_permissions(subject).remove(execute)


def _write_objects(
    subject: Subject, codename: str, rows: Any, more: list[str], less: list[str]
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
