"""Bulk changes of tools. The effect on each tool is computed from the catalog and shown; then the
catalog's own actions apply it to those that are unchanged since."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from django.db import transaction

from audit.actions import Actor
from tools.accounts.user_permissions import require
from tools.catalog import seats
from tools.catalog.actions import amended, set_enabled, update_tool
from tools.catalog.groups import check_names, line_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tiers import tier_now
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.definitions.texts.names import join_names
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, Forbidden, Malformed, NotFound, ToolcribError
from tools.insight.tool_reach import Losers, losers
from tools.licensing.licenses import locked_tier
from tools.licensing.tiers import change_tier
from tools.models import LicenseTier, Organization, Tool, ToolStatus

MOST = 500  # tools at once
MOST_VERSIONS = 200  # each is written and signed while the catalog is locked
_NAMED = 5
_SWITCHED = {ToolStatus.ACTIVE: True, ToolStatus.DISABLED: False}


class Do(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"
    PUT = "put"
    TAKE = "take"
    TIER = "tier"


class BulkEffectKind(StrEnum):
    CHANGES = "changes"
    SAME = "same"
    CANNOT = "cannot"


@dataclass(frozen=True)
class Deed:
    """`name` is that of the group, or of the lowest tier to include the tools."""

    do: Do
    name: str = ""

    @property
    def most(self) -> int:
        return MOST_VERSIONS if self.do in {Do.PUT, Do.TAKE} else MOST

    @classmethod
    def parse(cls, do: str, name: str) -> "Deed":
        """Raises `Malformed`, and `NotFound` for a tier that is not there."""
        if do not in set(Do):
            raise Malformed("Choose what is to be done with the tools.")
        deed = cls(Do(do), name if do in {Do.PUT, Do.TAKE, Do.TIER} else "")
        if deed.do in {Do.PUT, Do.TAKE}:
            check_names(deed.name, ())
        if deed.do == Do.TIER and deed.name not in {tier.name for tier in _tiers()}:
            raise NotFound(f"There is no tier {deed.name[:60]!r}.", code="tier_not_found")
        return deed


@dataclass(frozen=True, slots=True)
class BulkEffect:
    """The effect of the change on one tool, or why there is none."""

    tool: CatalogTool
    kind: BulkEffectKind
    before: str = ""
    after: str = ""
    why: str = ""
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # its own ones then, where groups are what changes

    @property
    def mark(self) -> str:
        """A digest that differs when the tool, or the effect on it, has changed."""
        tool = self.tool
        seen = (tool.id, tool.updated_at.isoformat(), self.kind, self.before, self.after)
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class BulkOutcome:
    """The results: changed tools with their new revisions, tools that had changed since the
    preview, and refused ones with the reason."""

    done: dict[str, int] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def permit(caller: Caller, deed: Deed) -> None:
    """Raises `Forbidden`. A tier is one for every organization, so it is for superusers."""
    require(caller, "change_tool")
    if deed.do == Do.TIER and not caller.is_superuser:
        raise Forbidden("Only a superuser changes what tiers include.", code="not_permitted")


def plan(deed: Deed, tools: Sequence[CatalogTool], snapshot: Snapshot) -> list[BulkEffect]:
    """A line for each tool, in their order. Raises `Malformed` for more tools than the change
    allows."""
    if len(tools) > deed.most:
        raise Malformed(
            f"That are {len(tools):,} tools, and at most {deed.most} are changed so at once. "
            "Narrow the search, or tick fewer."
        )
    outlook = _Outlook(deed, snapshot)
    return [_PLANS[deed.do](outlook, tool) for tool in tools]


def lost_by(deed: Deed, lines: Iterable[BulkEffect], snapshot: Snapshot) -> Losers | None:
    """Which agents would lose which tools; None where the change cannot take any away."""
    changing = [line for line in lines if line.kind == BulkEffectKind.CHANGES]
    after = _changed_snapshot(deed, changing, snapshot)
    if after is None or not changing:
        return None
    return losers([line.tool.name for line in changing], snapshot, after)


def carry_out(
    *,
    deed: Deed,
    tools: Sequence[CatalogTool],
    marks: Mapping[str, str],
    snapshot: Snapshot,
    by: Actor,
) -> BulkOutcome:
    """Apply the change in one transaction, in which each tool succeeds or fails by itself. `marks`
    are those of the preview's lines, by tool name. Raises `Conflict` where the catalog changes
    meanwhile."""
    there = {tool.name for tool in tools}
    account = BulkOutcome(stale=[name for name in marks if name not in there])
    ready = []
    for line in plan(deed, tools, snapshot):
        if marks.get(line.tool.name) != line.mark:
            account.stale.append(line.tool.name)
        elif line.kind == BulkEffectKind.CHANGES:
            ready.append(line)
    with transaction.atomic():
        _hold(deed, snapshot)
        _DEEDS[deed.do](deed, ready, by, account)
    return account


def _hold(deed: Deed, snapshot: Snapshot) -> None:
    """Locks the basis of the preview until the end of the transaction. For tiers only the tiers:
    every change of a tier locks tiers before organizations."""
    place = Organization.objects
    if deed.do == Do.TIER:
        for tier in _tiers():
            locked_tier(tier)
        current = place.values_list("revision", flat=True).get(pk=snapshot.organization_id)
    else:
        current = place.next_revision(snapshot.organization_id) - 1
    if current != snapshot.revision:
        raise Conflict(
            "The catalog was changed at this very moment, so nothing was done. Look again.",
            code="catalog_changed",
        )


# --- what would be done ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outlook:
    deed: Deed
    snapshot: Snapshot
    _seated: list[str] = field(default_factory=list)

    @cached_property
    def called_by(self) -> Mapping[str, list[str]]:
        return self.snapshot.settle("called by chains", lambda: _called_by(self.snapshot))

    @cached_property
    def tiers(self) -> list[LicenseTier]:
        return _tiers()

    @cached_property
    def _room(self) -> int | None:
        """Seats that are free; below 0 where more are taken than there are."""
        limit = tier_now(self.snapshot).max_custom_tools
        if limit is None:
            return None
        custom = [tool for tool in self.snapshot.tools.values() if tool.custom]
        return limit - sum(not seats.put_out(tool) for tool in custom)

    def seats(self, tool: CatalogTool) -> bool:
        """Whether the license has a seat for the tool, after those that got one before it."""
        if self._room is None or not tool.custom:
            return True
        left = self._room - len(self._seated)
        if not seats.put_out(tool):
            return left >= 0  # it has one
        if left > 0:
            self._seated.append(tool.name)
        return left > 0


def _switched(outlook: _Outlook, tool: CatalogTool, enabled: bool) -> BulkEffect:
    wanted = ToolStatus.ACTIVE if enabled else ToolStatus.DISABLED
    now = ToolStatus(tool.status)
    if now not in _SWITCHED:
        return BulkEffect(
            tool, BulkEffectKind.CANNOT, now, why=f"It is {now}; it must be approved first."
        )
    if now == wanted:
        return BulkEffect(tool, BulkEffectKind.SAME, now, why=f"It is {now} already.")
    if enabled and not outlook.seats(tool):
        tier = tier_now(outlook.snapshot).name
        return BulkEffect(
            tool, BulkEffectKind.CANNOT, now, why=f"The {tier} licence has no room for it."
        )
    return BulkEffect(
        tool, BulkEffectKind.CHANGES, now, wanted, notes=() if enabled else _chains(outlook, tool)
    )


def _chains(outlook: _Outlook, tool: CatalogTool) -> tuple[str, ...]:
    chains = outlook.called_by.get(tool.name)
    return (
        (f"Chains that call it will fail there: {join_names(chains, _NAMED)}.",) if chains else ()
    )


def _preview_group_addition(outlook: _Outlook, tool: CatalogTool) -> BulkEffect:
    group, own = outlook.deed.name, outlook.snapshot.own_groups(tool)
    if tool.flaw:
        return BulkEffect(tool, BulkEffectKind.CANNOT, _listed(own), why=tool.flaw)
    if group in own:
        return BulkEffect(
            tool, BulkEffectKind.SAME, _listed(own), why="It is in the group already."
        )
    after = (*_ordered(tool, own), group)
    notes = _now_named(tool, own)
    return BulkEffect(
        tool, BulkEffectKind.CHANGES, _listed(own), _listed(after), notes=notes, groups=after
    )


def _preview_group_removal(outlook: _Outlook, tool: CatalogTool) -> BulkEffect:
    group, own = outlook.deed.name, outlook.snapshot.own_groups(tool)
    if tool.flaw:
        return BulkEffect(tool, BulkEffectKind.CANNOT, _listed(own), why=tool.flaw)
    if group not in own:
        through = [name for name in own if group in line_of(name, outlook.snapshot)]
        if through:
            why = f"It is in it as a parent of {join_names(sorted(through), _NAMED)}."
            return BulkEffect(tool, BulkEffectKind.CANNOT, _listed(own), why=why)
        return BulkEffect(tool, BulkEffectKind.SAME, _listed(own), why="It is not in the group.")
    after = tuple(name for name in _ordered(tool, own) if name != group)
    notes = _now_named(tool, own)
    if not after:
        notes += ("Then it is in no group: only requests for * reach it.",)
    return BulkEffect(
        tool, BulkEffectKind.CHANGES, _listed(own), _listed(after), notes=notes, groups=after
    )


def _now_named(tool: CatalogTool, own: frozenset[str]) -> tuple[str, ...]:
    if tool.definition.raw["group"] is not None or own == tool.definition.groups:
        return ()
    return ("Its groups came from its source; then it names its own.",)


def _tiered(outlook: _Outlook, tool: CatalogTool) -> BulkEffect:
    including = [tier for tier in outlook.tiers if tier.includes_builtin(tool.name)]
    if tool.custom:
        why = "It is a custom tool: tiers limit how many there are, not which."
        return BulkEffect(tool, BulkEffectKind.CANNOT, why=why)
    before = including[0].name if including else "none"
    if tool.name in IN_EVERY_LICENSE:
        return BulkEffect(tool, BulkEffectKind.CANNOT, before, why="Every licence includes it.")
    wanted = _from(outlook.deed.name, outlook.tiers)
    if including == wanted:
        return BulkEffect(
            tool, BulkEffectKind.SAME, before, why=f"It is in {before} and above already."
        )
    open_ = [tier.name for tier in including if tier.builtin_tools is None and tier not in wanted]
    if open_:
        why = f"{join_names(open_, _NAMED)} includes every built-in tool, also future ones."
        return BulkEffect(tool, BulkEffectKind.CANNOT, before, why=why)
    return BulkEffect(tool, BulkEffectKind.CHANGES, before, outlook.deed.name)


_PLANS: dict[Do, Callable[[_Outlook, CatalogTool], BulkEffect]] = {
    Do.ENABLE: lambda outlook, tool: _switched(outlook, tool, True),
    Do.DISABLE: lambda outlook, tool: _switched(outlook, tool, False),
    Do.PUT: _preview_group_addition,
    Do.TAKE: _preview_group_removal,
    Do.TIER: _tiered,
}


def _changed_snapshot(
    deed: Deed, changing: list[BulkEffect], snapshot: Snapshot
) -> Snapshot | None:
    """The catalog after the change, where the change narrows anything."""
    if deed.do == Do.DISABLE:
        new = {line.tool.name: replace(line.tool, status=ToolStatus.DISABLED) for line in changing}
    elif deed.do == Do.TAKE:
        new = {line.tool.name: _in_groups(line) for line in changing}
    elif deed.do == Do.TIER and tier_now(snapshot).name not in _names_from(deed.name):
        return snapshot.changed(tier=_without(snapshot.tier, changing))
    else:
        return None
    return snapshot.changed(tools=MappingProxyType({**snapshot.tools, **new}))


def _in_groups(line: BulkEffect) -> CatalogTool:
    raw = line.tool.definition.raw
    return replace(line.tool, definition=ToolDefinition({**raw, "group": list(line.groups)}))


def _without(tier: LicenseTier, changing: list[BulkEffect]) -> LicenseTier:
    names = {line.tool.name for line in changing}
    narrowed = copy(tier)
    narrowed.builtin_tools = [name for name in tier.builtin_tools or () if name not in names]
    return narrowed


def _called_by(snapshot: Snapshot) -> MappingProxyType[str, list[str]]:
    """The chains that call a tool, in a step or to undo one."""
    found: dict[str, set[str]] = defaultdict(set)
    for tool in snapshot.sorted_tools:
        if tool.definition.type == ToolType.CHAIN:
            for _, called in tool.definition.chain.tools():
                found[called].add(tool.name)
    return MappingProxyType({name: sorted(chains) for name, chains in found.items()})


# --- doing it -------------------------------------------------------------------------------------

type Act = Callable[[Deed, list[BulkEffect], Actor, BulkOutcome], None]


def _each(act: Callable[[Deed, BulkEffect, Tool, Actor], Tool]) -> Act:
    """One action for each tool; an error is the result of its tool, and the others continue."""

    def act_on_all(deed: Deed, lines: list[BulkEffect], by: Actor, account: BulkOutcome) -> None:
        rows = Tool.objects.present().select_related("version", "organization__tier")
        found = rows.in_bulk([line.tool.id for line in lines])
        for line in lines:
            try:
                tool = act(deed, line, found[line.tool.id], by)
            except ToolcribError as refusal:
                account.refused[line.tool.name] = refusal.message
            else:
                account.done[tool.name] = tool.revision

    return act_on_all


def _switch(deed: Deed, line: BulkEffect, tool: Tool, by: Actor) -> Tool:
    return set_enabled(tool=tool, enabled=deed.do == Do.ENABLE, by=by, reason="ui")


def _regroup(deed: Deed, line: BulkEffect, tool: Tool, by: Actor) -> Tool:
    assert tool.version is not None
    definition = amended(tool.version.definition, {"group": list(line.groups)})
    way = "Into" if deed.do == Do.PUT else "Out of"
    return update_tool(tool=tool, definition=definition, by=by, note=f"{way} {deed.name}.")


def _move(deed: Deed, lines: list[BulkEffect], by: Actor, account: BulkOutcome) -> None:
    """Changes the tier as a whole, with the consequences for every organization that has it."""
    names, wanted = [line.tool.name for line in lines], _names_from(deed.name)
    for tier in _tiers() if lines else ():
        if tier.builtin_tools is None:
            continue
        kept = [name for name in tier.builtin_tools if name not in names]
        listed = sorted([*kept, *names]) if tier.name in wanted else kept
        if set(listed) != set(tier.builtin_tools):
            change_tier(tier=tier, by=by, builtin_tools=listed)
    account.done.update(dict.fromkeys(names, 0))


_DEEDS: dict[Do, Act] = {
    Do.ENABLE: _each(_switch),
    Do.DISABLE: _each(_switch),
    Do.PUT: _each(_regroup),
    Do.TAKE: _each(_regroup),
    Do.TIER: _move,
}


# --- words ----------------------------------------------------------------------------------------


def _tiers() -> list[LicenseTier]:
    """The smallest first."""
    return list(LicenseTier.objects.order_by("rank"))


def _from(name: str, tiers: list[LicenseTier]) -> list[LicenseTier]:
    at = next((at for at, tier in enumerate(tiers) if tier.name == name), len(tiers))
    return tiers[at:]


def _names_from(name: str) -> list[str]:
    return [tier.name for tier in _from(name, _tiers())]


def _ordered(tool: CatalogTool, own: frozenset[str]) -> tuple[str, ...]:
    named = tool.definition.raw["group"]
    return tuple(sorted(own) if named is None else named)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
