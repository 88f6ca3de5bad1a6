"""Object permissions (django-guardian), read once per caller and revision of the organization.

Every change of a grant counts the revision up, so a revocation is seen by the next request.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import Permission
from django.db.models import Q

from tools.definitions.callers import Caller
from tools.models import ToolGroupObjectPermission, ToolUserObjectPermission

_KEPT = 10_000
EXECUTE = "execute_tool"


@dataclass(frozen=True, slots=True)
class ToolGrants:
    """The tools a caller may execute; `every` is the grant on all of them ("*")."""

    every: bool
    tools: frozenset[UUID]

    def cover(self, tool: UUID) -> bool:
        return self.every or tool in self.tools


EVERY_TOOL = ToolGrants(every=True, tools=frozenset())


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
        grants = _read(caller.user_id)
        with self._lock:
            self._kept[key] = (revision, grants)
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return grants

    def forget(self) -> None:
        self._kept.clear()


grants = GrantCache()


def _read(user_id: UUID) -> ToolGrants:
    execute = Permission.objects.filter(content_type__app_label="tools", codename=EXECUTE)
    if execute.filter(Q(user=user_id) | Q(group__user=user_id)).exists():
        return EVERY_TOOL
    own = ToolUserObjectPermission.objects.filter(user=user_id, permission__codename=EXECUTE)
    shared = ToolGroupObjectPermission.objects.filter(
        group__user=user_id, permission__codename=EXECUTE
    )
    column = "content_object_id"
    return ToolGrants(
        every=False,
        tools=frozenset(own.values_list(column, flat=True))
        | frozenset(shared.values_list(column, flat=True)),
    )
