"""Object permissions (django-guardian), read once per caller and revision of the organization.

Every change of a grant counts the revision up, so a revocation is seen by the next request.
"""

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Permission
from django.db.models import Model, Q

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.models import (
    ToolGroupGroupObjectPermission,
    ToolGroupObjectPermission,
    ToolGroupUserObjectPermission,
    ToolUserObjectPermission,
)

_KEPT = 10_000
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

    def of(self, caller: Caller, revision: int) -> ToolGrants:
        """The caller's grants as of `revision`; at most three queries after a change, else none."""
        if caller.is_superuser:
            return EVERY_TOOL
        key = (caller.user_id, caller.organization_id)  # revisions of two places do not compare
        known = self._kept.get(key)
        if known is not None and known[0] >= revision:
            return known[1]
        grants = _read(*key)
        self._keep(key, revision, grants)
        return grants

    def _keep(self, key: tuple[UUID, UUID], revision: int, grants: ToolGrants) -> None:
        with self._lock:
            self._kept[key] = (revision, grants)
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def suppose(self, caller: Caller, supposed: ToolGrants) -> Caller:
        """The same caller under an account that nobody has, which holds these grants instead."""
        pretended = replace(caller, user_id=uuid4(), is_superuser=False)
        self._keep((pretended.user_id, pretended.organization_id), sys.maxsize, supposed)
        return pretended

    def forget(self) -> None:
        self._kept.clear()


grants = GrantCache()


def _read(user_id: UUID, organization_id: UUID) -> ToolGrants:
    """A name is one organization's alone, so what belongs to another is left out here."""
    execute = Permission.objects.filter(content_type__app_label="tools", codename=EXECUTE)
    if execute.filter(Q(user=user_id) | Q(group__user=user_id)).exists():
        return EVERY_TOOL
    here = {"content_object__organization": organization_id}
    on_tools = {"permission__codename": EXECUTE, **here}
    on_groups = {"permission__codename": EXECUTE_GROUP, **here}
    tool, group = "content_object_id", "content_object__name"
    return ToolGrants(
        every=False,
        tools=_held(ToolUserObjectPermission, ToolGroupObjectPermission, user_id, on_tools, tool),
        groups=_held(
            ToolGroupUserObjectPermission, ToolGroupGroupObjectPermission, user_id, on_groups, group
        ),
    )


def _held(
    own: type[Model], shared: type[Model], user_id: UUID, wanted: dict[str, Any], column: str
) -> frozenset[Any]:
    """By the user, or by one of the user's (people's) groups; one query."""
    mine = own._default_manager.filter(user=user_id, **wanted).values_list(column, flat=True)
    ours = shared._default_manager.filter(group__user=user_id, **wanted)
    return frozenset(mine.union(ours.values_list(column, flat=True)))
