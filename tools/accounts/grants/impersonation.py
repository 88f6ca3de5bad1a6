"""Prevents privilege escalation by passwords and tokens. Setting a user's password allows logging
in as them, and issuing a token allows calling as its holder, so both are refused for an account
with more permissions than the issuer."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Permission
from django.db.models import Q
from guardian.shortcuts import get_objects_for_user

from tools.accounts.callers import caller_of_account
from tools.accounts.grants.grant_actions import check_grantable
from tools.accounts.grants.grants import grants
from tools.accounts.user_permissions import may
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.errors import Forbidden
from tools.models import Organization, User

ACT = "tools.act_in_organization"


def check_may_impersonate(giver: Caller, account: User) -> None:
    """Raises `Forbidden` where the account holds anything that the giver does not."""
    if giver.is_superuser:
        return
    own = User.objects.get(pk=giver.user_id)
    more: tuple[Callable[[], bool], ...] = (
        lambda: account.is_superuser,
        lambda: not _permissions(account) <= _permissions(own),
        lambda: not _organizations(account) <= _organizations(own),
        lambda: not _tools_covered(account, giver),
    )
    if any(beyond() for beyond in more):
        raise _holds_more(account)
    check_grantable(
        giver, {"groups": account.granted_groups, "permissions": account.granted_permissions}
    )


def check_may_issue(
    giver: Caller, account: User, *, groups: list[str] | None, tools: list[str] | None
) -> None:
    """Raises `Forbidden` where a token of the account, narrowed to `groups` and `tools`, would hold
    anything that the giver does not. This includes reading the results of the account's calls, as
    in impersonation of an agent. Users may always issue tokens for their own account."""
    if account.pk == giver.user_id or _is_unrestricted_superuser(giver):
        return
    if not may(giver, "view_execution"):
        raise Forbidden(
            "A token reads what its holder's calls found, and you may not read every execution.",
            code="grant_beyond_own",
        )
    every_tool = tools is None or WILDCARD in tools
    every_group = groups is None or WILDCARD in groups
    if every_tool and not _all_tools_covered(account, giver):
        raise _holds_more(account)
    wanted = {
        "groups": account.granted_groups if every_group else groups or [],
        "permissions": account.granted_permissions,
        "tools": [] if every_tool else tools or [],
    }
    check_grantable(giver, wanted)


def _is_unrestricted_superuser(giver: Caller) -> bool:
    """A superuser, without a token that narrows what they may."""
    narrowed = giver.token_tools is not None or WILDCARD not in giver.granted_groups
    return giver.is_superuser and not narrowed


def _all_tools_covered(account: User, giver: Caller) -> bool:
    return giver.token_tools is None and _tools_covered(account, giver)


def _holds_more(account: User) -> Forbidden:
    return Forbidden(
        f"{account.username} holds more than you do. Ask somebody who holds as much.",
        code="grant_beyond_own",
    )


def _permissions(account: User) -> set[int]:
    """Read from the rows: Django returns none for an inactive account, which may become active
    again."""
    held = Permission.objects.filter(Q(user=account) | Q(group__user=account))
    return {*held.values_list("pk", flat=True)}


def _organizations(account: User) -> set[UUID]:
    """The organizations where the account may act, beside its own."""
    found: Any = get_objects_for_user(
        account, ACT, Organization, with_superuser=False, accept_global_perms=False
    )
    return {*found.values_list("pk", flat=True)}


def _tools_covered(account: User, giver: Caller) -> bool:
    theirs, mine = (
        grants.find_grants(one, one.revision) for one in (caller_of_account(account), giver)
    )
    return mine.every or (
        not theirs.every and theirs.tools <= mine.tools and theirs.groups <= mine.groups
    )
