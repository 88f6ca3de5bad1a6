"""Setting somebody's password is being able to log in as them: nobody does it to who holds more."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Permission
from django.db.models import Q
from guardian.shortcuts import get_objects_for_user

from tools.definitions.callers import Caller
from tools.errors import Forbidden
from tools.models import Organization, User
from tools.policy.callers import caller_of_account
from tools.policy.grant_actions import check_held
from tools.policy.grants import grants

ACT = "tools.act_in_organization"


def check_may_stand_in(giver: Caller, account: User) -> None:
    """Raises `Forbidden` where the account holds anything that the giver does not."""
    if giver.is_superuser:
        return
    own = User.objects.get(pk=giver.user_id)
    more: tuple[Callable[[], bool], ...] = (
        lambda: account.is_superuser,
        lambda: not _permissions(account) <= _permissions(own),
        lambda: not _places(account) <= _places(own),
        lambda: not _tools_within(account, giver),
    )
    if any(beyond() for beyond in more):
        raise Forbidden(
            f"{account.username} holds more than you do. Ask somebody who holds as much.",
            code="grant_beyond_own",
        )
    check_held(
        giver, {"groups": account.granted_groups, "permissions": account.granted_permissions}
    )


def _permissions(account: User) -> set[int]:
    """Asked of the rows: Django says none for an account that is not active, and may be again."""
    held = Permission.objects.filter(Q(user=account) | Q(group__user=account))
    return {*held.values_list("pk", flat=True)}


def _places(account: User) -> set[UUID]:
    """The organizations beside their own where somebody may act."""
    found: Any = get_objects_for_user(
        account, ACT, Organization, with_superuser=False, accept_global_perms=False
    )
    return {*found.values_list("pk", flat=True)}


def _tools_within(account: User, giver: Caller) -> bool:
    theirs, mine = (grants.of(one, one.revision) for one in (caller_of_account(account), giver))
    return mine.every or (
        not theirs.every and theirs.tools <= mine.tools and theirs.groups <= mine.groups
    )
