"""Previews which callers a change of a group would affect."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db import transaction

from tools.accounts.grants.grant_actions import save_group
from tools.catalog.groups import members_of, written
from tools.catalog.snapshot import CatalogGroup, Snapshot
from tools.definitions.values.schedules import DAYS
from tools.insight.tool_reach import Losers, losers

MOST_TOOLS = 200


@dataclass(frozen=True)
class Effects:
    """`lost` and `won` at once; `while_closed` whenever the group is closed, None where it never
    is. Tools by the number of agents; `looked_at` of `tools` were examined."""

    before: dict[str, Any]
    after: dict[str, Any]
    lost: Losers
    won: Losers
    while_closed: Losers | None
    looked_at: int
    tools: int


def effects_of(*, snapshot: Snapshot, name: str, **change: Any) -> Effects:
    """The change is made and rolled back. Raises what `save_group` raises."""
    with transaction.atomic():
        row = save_group(name=name, **change)
        said = written(row)
        transaction.set_rollback(True)
    held = snapshot.groups.get(name)
    made = _as_catalogued(name, said)
    after = _with(snapshot, made)
    names = [member.tool for member in members_of(name, snapshot)]
    looked = names[:MOST_TOOLS]
    return Effects(
        before=_said_of(held) if held else {},
        after=_said_of(made),
        lost=losers(looked, snapshot, after),
        won=losers(looked, after, snapshot),
        while_closed=_while_closed(made, looked, after),
        looked_at=len(looked),
        tools=len(names),
    )


def _while_closed(group: CatalogGroup, names: list[str], after: Snapshot) -> Losers | None:
    """Independent of the present time: open all week compared with closed today."""
    if not (group.schedule or group.max_queue_age_s or group.max_cpu_percent):
        return None
    always = replace(group, schedule=(), max_queue_age_s=None, max_cpu_percent=None)
    far = datetime.now(UTC) + timedelta(days=3)
    window = {"days": [DAYS[far.weekday()]], "from": "12:00", "to": "13:00"}
    closed = replace(always, schedule=(window,))
    return losers(names, _with(after, always), _with(after, closed))


def _with(snapshot: Snapshot, group: CatalogGroup) -> Snapshot:
    return snapshot.changed(groups=MappingProxyType({**snapshot.groups, group.name: group}))


def _as_catalogued(name: str, said: dict[str, Any]) -> CatalogGroup:
    lists = {"permissions": frozenset(said["permissions"]), "schedule": tuple(said["schedule"])}
    return CatalogGroup(name=name, **{**said, **lists})


def _said_of(group: CatalogGroup) -> dict[str, Any]:
    return {
        "description": group.description,
        "parent": group.parent,
        "permissions": sorted(group.permissions),
        "schedule": list(group.schedule),
        "max_queue_age_s": group.max_queue_age_s,
        "max_cpu_percent": group.max_cpu_percent,
    }
