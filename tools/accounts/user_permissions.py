"""Permissions of people: Django's model permissions; superusers have all.

Agents manage nothing, whatever their token says (DESIGN, decision 16). A token needs a scope for it
too, and one that is narrowed to groups or tools manages those alone
(`tools/accounts/grants/narrowing.py`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from django.db.models import Q, QuerySet

from tools.accounts.grants.narrowing import check_not_narrowed, check_row
from tools.definitions.callers import Caller, CallerKind, Scope
from tools.errors import Forbidden
from tools.models import Organization, User

_BACKEND = "tools.accounts.login.login.PeopleBackend"
_relied_on: ContextVar[set[str] | None] = ContextVar("relied_on", default=None)
_SCOPES = {
    Scope.CATALOG: """
        confirmationrule contentschema knowledgeentry mcpserver message messagechannel
        sandboxprofile tool toolgroup toolservice
    """,
    Scope.AGENTS: "agent confirmation execution session token",
    Scope.ORGANIZATION: "egresscredential licensetier organization signingkey user",
}
_SCOPE_OF = {model: scope for scope, models in _SCOPES.items() for model in models.split()}


def scope_of(permission: str) -> Scope:
    """The scope of a token that uses this permission; an unlisted permission needs every scope."""
    app, _, codename = permission.rpartition(".")
    verb, _, model = codename.partition("_")
    if verb == "view":
        return Scope.READ
    return Scope.AUDIT if app == "audit" else _SCOPE_OF.get(model, Scope.MANAGE)


def may(caller: Caller, permission: str) -> bool:
    """Whether a person holds `change_tool` of this app, or `audit.view_auditrecord` of another."""
    held = _holds(caller, permission)
    noted = _relied_on.get()
    if held and noted is not None:
        noted.add(permission)
    return held


@contextmanager
def noting_permissions() -> Iterator[set[str]]:
    """Records which permissions are checked inside, and held."""
    noted = set[str]()
    mark = _relied_on.set(noted)
    try:
        yield noted
    finally:
        _relied_on.reset(mark)


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


def _holds(caller: Caller, permission: str) -> bool:
    if caller.kind != CallerKind.PERSON:
        return False
    if caller.is_superuser:
        return True
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    name = permission if "." in permission else f"tools.{permission}"
    return user is not None and user.has_perm(name)


def holders(people: Iterable[UUID], permission: str) -> frozenset[UUID]:
    """Those of the people who hold `view_execution` of this app, superusers too: one query."""
    found = User.objects.with_perm(f"tools.{permission}", backend=_BACKEND)
    return frozenset(found.filter(pk__in=list(people)).values_list("pk", flat=True))


def count_up(accounts: QuerySet[User], *places: Organization) -> None:
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
