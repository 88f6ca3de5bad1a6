"""Permissions of people: Django's model permissions; superusers have all.

Agents manage nothing, whatever their token says (DESIGN, decision 16). A token also needs the scope
of a permission, and a token that is narrowed to groups or tools manages only these.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from tools.definitions.callers import MANAGING_SCOPES, Caller, CallerKind, Scope
from tools.errors import Forbidden
from tools.models import Organization, Token, Tool, User

# Fields of a group that affect more than the group itself.
BROADER_FIELDS = frozenset({"parent", "permissions"})
_BACKEND = "tools.accounts.login.login.PeopleBackend"
_permissions_used: ContextVar[set[str] | None] = ContextVar("relied_on", default=None)
_SCOPES = {
    Scope.CATALOG: """
        confirmationrule contentschema knowledgeentry mcpserver message messagechannel
        sandboxprofile tool toolgroup toolservice
    """,
    Scope.AGENTS: "agent confirmation execution session token",
    Scope.ORGANIZATION: "egresscredential licensetier organization signingkey user",
}
_SCOPE_OF = {model: scope for scope, models in _SCOPES.items() for model in models.split()}


def has_managing_scope(caller: Caller) -> bool:
    """Whether a person's token has a managing scope and is not narrowed."""
    if caller.kind != CallerKind.PERSON or caller.narrowed:
        return False
    return any(caller.allows(scope) for scope in MANAGING_SCOPES)


def check_own_token(caller: Caller, token: Token, *, gives: bool = False) -> None:
    """Raises `Forbidden` where the caller may not revoke a token of the same holder; with `gives`
    where it would get one with more rights than its own."""
    if caller.token_id == token.pk:
        return
    check_not_narrowed(caller)
    lacking = [scope for scope in token.scopes if not caller.allows(scope)] if gives else []
    if not has_managing_scope(caller) or lacking:
        needed = ", ".join(lacking) or "that manages"
        raise Forbidden(
            f"This token lacks the scope {needed}; another token of yours needs it.",
            code="scope_missing",
        )


def check_not_narrowed(caller: Caller) -> None:
    """Raises `Forbidden` for a narrowed token, where the change is of no tool or group of it."""
    if caller.narrowed:
        raise _token_narrowed(caller)


def check_row(caller: Caller, *, tool: str | None = None, group: str | None = None) -> None:
    """Raises `Forbidden` where a narrowed token does not cover this tool or this group."""
    if not caller.narrowed:
        return
    if group is not None:
        if caller.token_tools is not None or group not in (caller.token_groups or ()):
            raise _token_narrowed(caller)
        return
    if caller.token_tools is not None and tool not in caller.token_tools:
        raise _token_narrowed(caller)
    if caller.token_groups is not None and not _is_covered(caller, tool or ""):
        raise _token_narrowed(caller)


def check_group_change(caller: Caller, changes: dict[str, Any]) -> None:
    """Raises `Forbidden` where a narrowed token changes a `BROADER_FIELDS` field of a group."""
    if caller.narrowed and changes.keys() & BROADER_FIELDS:
        raise _token_narrowed(caller)


def scope_of(permission: str) -> Scope:
    """The scope of a token that uses this permission; an unlisted permission needs every scope."""
    app, _, codename = permission.rpartition(".")
    verb, _, model = codename.partition("_")
    if verb == "view":
        return Scope.READ
    return Scope.AUDIT if app == "audit" else _SCOPE_OF.get(model, Scope.MANAGE)


def may(caller: Caller, permission: str) -> bool:
    """Whether a person holds `change_tool` of this app, or `audit.view_auditrecord` of another."""
    held = _has_permission(caller, permission)
    noted = _permissions_used.get()
    if held and noted is not None:
        noted.add(permission)
    return held


@contextmanager
def record_permissions_used() -> Iterator[set[str]]:
    """Records which permissions are checked inside, and held."""
    noted = set[str]()
    mark = _permissions_used.set(noted)
    try:
        yield noted
    finally:
        _permissions_used.reset(mark)


def require(
    caller: Caller, permission: str, *, tool: str | None = None, group: str | None = None
) -> None:
    """Raises `Forbidden` unless the caller has the permission, with this token. Name the tool or
    the group whose row it is, or a narrowed token is refused."""
    scope = scope_of(permission)
    if not caller.allows(scope):
        raise Forbidden(f"This token lacks the scope {scope}.", code="scope_missing")
    if scope != Scope.READ and (tool is not None or group is not None):
        check_row(caller, tool=tool, group=group)
    elif scope != Scope.READ:
        check_not_narrowed(caller)
    require_held(caller, permission)


def require_held(caller: Caller, permission: str) -> None:
    """Raises `Forbidden` unless the person holds the permission, regardless of the token."""
    if not may(caller, permission):
        raise Forbidden(
            f"This needs the permission {permission}, which the caller does not hold.",
            code="not_permitted",
        )


def users_with_permission(people: Iterable[UUID], permission: str) -> frozenset[UUID]:
    """Those of the people who hold `view_execution` of this app, superusers too: one query."""
    found = User.objects.with_perm(f"tools.{permission}", backend=_BACKEND)
    return frozenset(found.filter(pk__in=list(people)).values_list("pk", flat=True))


def increment_revisions(accounts: QuerySet[User], *places: Organization) -> None:
    """Increment the revision of every organization where one of the accounts may act, and of
    `places`: their grants are read again from the next request on. Call it in the transaction that
    changes it, and before a change that takes accounts out of the query."""
    where = Organization.objects.filter(
        Q(pk__in=[place.pk for place in places])
        | Q(users__in=accounts)
        | Q(organizationuserobjectpermission__user__in=accounts)
        | Q(organizationgroupobjectpermission__group__user__in=accounts)
    )
    Organization.objects.filter(pk__in=list(where.values_list("pk", flat=True))).next_revisions()


def _is_covered(caller: Caller, tool: str) -> bool:
    """Whether all groups of the tool are among the token's."""
    if "\x00" in tool:  # which PostgreSQL cannot store
        return False
    rows = Tool.objects.filter(organization_id=caller.organization_id, name=tool)
    groups = rows.values_list("version__definition__group", flat=True).first()
    return bool(groups) and {*(groups or ())} <= (caller.token_groups or frozenset())


def _token_narrowed(caller: Caller) -> Forbidden:
    parts = (("groups", caller.token_groups), ("tools", caller.token_tools))
    limits = {what: sorted(items) for what, items in parts if items is not None}
    said = " and ".join(f"the {what} {', '.join(items)}" for what, items in limits.items())
    return Forbidden(
        f"This token is narrowed to {said}. It manages these and nothing else; use a token that is "
        "not narrowed.",
        code="token_narrowed",
        **limits,
    )


def _has_permission(caller: Caller, permission: str) -> bool:
    if caller.kind != CallerKind.PERSON:
        return False
    if caller.is_superuser:
        return True
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    name = permission if "." in permission else f"tools.{permission}"
    return user is not None and user.has_perm(name)
