"""Caches object permissions (django-guardian), read once per caller and revision of the
organization.

Every change of a grant increments the revision, so the next request sees a revocation.
"""

import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Permission
from django.db.models import Model, Q

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.models import (
    ToolGroupGroupObjectPermission,
    ToolGroupObjectPermission,
    ToolGroupUserObjectPermission,
    ToolUserObjectPermission,
    User,
)

_MAX_CACHED = 10_000
EXECUTE = "execute_tool"
EXECUTE_GROUP = "execute_toolgroup"


@dataclass(frozen=True, slots=True)
class ToolGrants:
    """What a caller may execute in one organization: single tools, and every tool whose effective
    groups hold one of `groups`; `every` is the grant on all of them ("*")."""

    every: bool
    tools: frozenset[UUID] = frozenset()
    groups: frozenset[str] = frozenset()

    def cover(self, tool: CatalogTool, snapshot: Snapshot) -> bool:
        if self.every or tool.id in self.tools:
            return True
        return bool(self.groups) and not self.groups.isdisjoint(snapshot.groups_of(tool))


EVERY_TOOL = ToolGrants(every=True)


class GrantCache:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[UUID, UUID], tuple[int, ToolGrants]] = OrderedDict()
        self._lock = threading.Lock()

    def find_grants(self, caller: Caller, revision: int) -> ToolGrants:
        """The caller's grants as of `revision`; at most three queries after a change, else none."""
        if caller.is_superuser:
            return EVERY_TOOL
        key = (caller.user_id, caller.organization_id)  # revisions of two places do not compare
        known = self._kept.get(key)
        if known is not None and known[0] >= revision:
            return known[1]
        grants = _read_grants([key])[key]
        self._keep(key, revision, grants)
        return grants

    def learn(self, callers: Iterable[Caller], revision: int) -> None:
        """Read at once what `of` would read one by one: three queries, however many they are.
        Callers of one organization."""
        keys = {
            (caller.user_id, caller.organization_id)
            for caller in callers
            if not caller.is_superuser
        }
        unknown = [key for key in keys if not self._knows(key, revision)]
        for key, held in _read_grants(unknown).items():
            self._keep(key, revision, held)

    def _knows(self, key: tuple[UUID, UUID], revision: int) -> bool:
        known = self._kept.get(key)
        return known is not None and known[0] >= revision

    def _keep(self, key: tuple[UUID, UUID], revision: int, grants: ToolGrants) -> None:
        with self._lock:
            self._kept[key] = (revision, grants)
            self._kept.move_to_end(key)
            if len(self._kept) > _MAX_CACHED:
                self._kept.popitem(last=False)

    def suppose(self, caller: Caller, supposed: ToolGrants) -> Caller:
        """The same caller under an account that does not exist, which holds these grants
        instead."""
        pretended = replace(caller, user_id=uuid4(), is_superuser=False)
        self._keep((pretended.user_id, pretended.organization_id), sys.maxsize, supposed)
        return pretended

    def forget(self) -> None:
        self._kept.clear()


grants = GrantCache()


def _read_grants(keys: list[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], ToolGrants]:
    """Of accounts in one organization, with at most three queries. A name is one organization's
    alone, so what belongs to another is left out here."""
    if not keys:
        return {}
    every = _users_with_every_tool([user for user, _ in keys])
    found = {key: EVERY_TOOL for key in keys if key[0] in every}
    others = [user for user, _ in keys if user not in every]
    if not others:
        return found
    here = {"content_object__organization": keys[0][1]}
    on_tools = {"permission__codename": EXECUTE, **here}
    on_groups = {"permission__codename": EXECUTE_GROUP, **here}
    tool, group = "content_object_id", "content_object__name"
    tools = _granted_objects(
        ToolUserObjectPermission, ToolGroupObjectPermission, others, on_tools, tool
    )
    groups = _granted_objects(
        ToolGroupUserObjectPermission, ToolGroupGroupObjectPermission, others, on_groups, group
    )
    return found | {
        key: ToolGrants(False, frozenset(tools[key[0]]), frozenset(groups[key[0]]))
        for key in keys
        if key not in found
    }


def _users_with_every_tool(users: list[UUID]) -> frozenset[UUID]:
    """Those who may execute every tool, by themselves or by one of their (people's) groups."""
    execute = Permission.objects.filter(content_type__app_label="tools", codename=EXECUTE)
    held = User.objects.filter(pk__in=users).filter(
        Q(user_permissions__in=execute) | Q(groups__permissions__in=execute)
    )
    return frozenset(held.values_list("pk", flat=True))


def _granted_objects(
    own: type[Model], shared: type[Model], users: list[UUID], wanted: dict[str, Any], column: str
) -> defaultdict[UUID, set[Any]]:
    """By each user, or by one of the user's (people's) groups; one query."""
    mine = own._default_manager.filter(user__in=users, **wanted).values_list("user", column)
    ours = shared._default_manager.filter(group__user__in=users, **wanted)
    found: defaultdict[UUID, set[Any]] = defaultdict(set)
    for user, what in mine.union(ours.values_list("group__user", column)):
        found[user].add(what)
    return found


def permissions_of(caller: Caller, snapshot: Snapshot) -> frozenset[str]:
    """Those granted by name, and those that come with the groups the caller was granted."""
    return snapshot.remember(
        ("permissions", caller.granted_groups, caller.granted_permissions),
        lambda: caller.granted_permissions.union(*_permissions_of_groups(caller, snapshot)),
    )


def _permissions_of_groups(caller: Caller, snapshot: Snapshot) -> Iterator[frozenset[str]]:
    everything = WILDCARD in caller.granted_groups
    for group in snapshot.groups.values():
        if everything or group.name in caller.granted_groups:
            yield group.permissions
