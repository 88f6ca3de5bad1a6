"""Enforces a tier's limit of custom tools: which tools have a seat, and which lose or regain one.

Every present custom tool takes a seat, switched on or not, but those that the license has put
out. Those are marked where people read why a tool is not in use: in `status_reason`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import attrgetter, or_
from typing import Protocol
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.errors import Forbidden
from tools.models import LicenseTier, Tool, ToolStatus

DISABLED = "Disabled by the licence: "
LEFT_OUT = "Left out by the licence: "  # was was not in use: pending, quarantined, disabled
_MARKS = (DISABLED, LEFT_OUT)
_PUT_OUT = reduce(or_, (Q(status_reason__startswith=mark) for mark in _MARKS))
_BEFORE = " | "  # separates the previous reason, which follows
_LONGEST = 200


class Seated(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def status_reason(self) -> str: ...


@dataclass(frozen=True)
class Moves[AnyTool]:
    """Who leaves, the newest first, and who comes back, the oldest first."""

    out: tuple[AnyTool, ...] = ()
    back: tuple[AnyTool, ...] = ()


def put_out(tool: Seated) -> bool:
    reason = tool.status_reason  # nearly always empty
    return bool(reason) and reason.startswith(_MARKS)


def by_age[AnySeated: Seated](tools: Iterable[AnySeated]) -> list[AnySeated]:
    return sorted(tools, key=attrgetter("created_at", "id"))


def tools_without_seat(snapshot: Snapshot, limit: int) -> frozenset[UUID]:
    """The custom tools without a seat, should the rows not have been set right yet."""
    custom = [tool for tool in snapshot.tools.values() if tool.custom and not put_out(tool)]
    if len(custom) <= limit:
        return frozenset()
    return frozenset(tool.id for tool in by_age(custom)[limit:])


def custom_by_age(snapshot: Snapshot) -> tuple[CatalogTool, ...]:
    """All of them; sorted once while nothing of them changes."""
    custom = (tool for tool in snapshot.tools.values() if tool.custom)
    return snapshot.settle("custom by age", lambda: tuple(by_age(custom)))


def seated(organization_id: UUID) -> QuerySet[Tool]:
    return _with_seat().filter(organization_id=organization_id)


def counts(organization_ids: Iterable[UUID]) -> dict[UUID, int]:
    """How many seats are taken, by organization; those with none are left out."""
    rows = _with_seat().filter(organization_id__in=organization_ids).order_by()
    return dict(rows.values_list("organization_id").annotate(Count("pk")))


def _with_seat() -> QuerySet[Tool]:
    return Tool.objects.custom().exclude(_PUT_OUT)


def anybody_out(organization_id: UUID) -> bool:
    rows = Tool.objects.custom().filter(organization_id=organization_id)
    return rows.filter(_PUT_OUT).exists()


def disabled(organization_id: UUID) -> QuerySet[Tool]:
    """Those that only the license keeps from use, the oldest first."""
    rows = Tool.objects.custom().filter(organization_id=organization_id)
    return rows.filter(status=ToolStatus.DISABLED, status_reason__startswith=DISABLED).order_by(
        "created_at", "id"
    )


def check_room(organization_id: UUID, tier: LicenseTier, *, beside: Tool | None = None) -> None:
    """Raises `Forbidden` when no seat is left, for a new tool or for `beside` itself.

    Call it while the organization's row is locked: then concurrent calls count correctly.
    """
    if tier.max_custom_tools is None:
        return
    others = seated(organization_id)
    taken = (others.exclude(pk=beside.pk) if beside else others).count()
    if taken >= tier.max_custom_tools:
        raise Forbidden(
            f"The {tier.name} licence allows {tier.max_custom_tools} custom tools, and there are "
            f"{taken}{' others' if beside else ''}. Delete one, or move to a higher tier.",
            code="license_tool_limit",
            limit=tier.max_custom_tools,
            used=taken,
        )


def moves[AnyTool: Seated](tools: Iterable[AnyTool], tier: LicenseTier) -> Moves[AnyTool]:
    """The effect of a tier's limit on an organization's present custom tools."""
    return moves_of(by_age(tools), tier)


def moves_of[AnyTool: Seated](ordered: Iterable[AnyTool], tier: LicenseTier) -> Moves[AnyTool]:
    """The same of tools in the order of their age."""
    inside: list[AnyTool] = []
    outside: list[AnyTool] = []
    for tool in ordered:
        (outside if put_out(tool) else inside).append(tool)
    limit = tier.max_custom_tools
    if limit is None:
        return Moves(back=tuple(outside))
    return Moves(tuple(reversed(inside[limit:])), tuple(outside[: max(0, limit - len(inside))]))


def moves_by_organization(tiers: Mapping[UUID, LicenseTier]) -> dict[UUID, Moves[Tool]]:
    """The effect of their tiers' limits on the custom tools of organizations, without those in
    which no tool changes: one query, and a second one where some do."""
    rows = Tool.objects.custom().filter(organization_id__in=tiers)
    counted = rows.order_by().values_list("organization_id").annotate(
        inside=Count("pk", filter=~_PUT_OUT), outside=Count("pk", filter=_PUT_OUT)
    )  # fmt: skip
    moving = [pk for pk, inside, outside in counted if _moves(tiers[pk], inside, outside)]
    tools: defaultdict[UUID, list[Tool]] = defaultdict(list)
    for tool in rows.filter(organization_id__in=moving):
        tools[tool.organization_id].append(tool)
    return {pk: moves(tools[pk], tiers[pk]) for pk in moving}


def _moves(tier: LicenseTier, inside: int, outside: int) -> bool:
    limit = tier.max_custom_tools
    return outside > 0 if limit is None else inside > limit or (inside < limit and outside > 0)


def carry_out(wanted: Moves[Tool], tier: LicenseTier, revision: int, by: Actor) -> None:
    """Writes the moves down, an audit record for each tool that changes its state."""
    for tool in wanted.out:
        in_use = tool.status == ToolStatus.ACTIVE
        _write(tool, ToolStatus.DISABLED if in_use else None, reason_for(tool, tier), revision)
        if in_use:
            _record(Event.TOOL_DISABLE, tool, by, tier, ToolStatus.ACTIVE)
    for tool in wanted.back:
        was_in_use = returns_to_use(tool)
        before = tool.status_reason.partition(_BEFORE)[2]
        _write(tool, ToolStatus.ACTIVE if was_in_use else None, before, revision)
        if was_in_use:
            _record(Event.TOOL_ENABLE, tool, by, tier, ToolStatus.DISABLED)


def returns_to_use(tool: Seated) -> bool:
    """Whether the license alone keeps it from use: never one that needs an approval first."""
    return tool.status_reason.startswith(DISABLED) and tool.status == ToolStatus.DISABLED


def reason_for(tool: Tool, tier: LicenseTier) -> str:
    mark = DISABLED if tool.status == ToolStatus.ACTIVE else LEFT_OUT
    limit = tier.max_custom_tools
    reason = f"{mark}{tier.name} allows {limit or 'no'} custom tool{'' if limit == 1 else 's'}"
    return (f"{reason}{_BEFORE}{tool.status_reason}" if tool.status_reason else reason)[:_LONGEST]


def _write(tool: Tool, status: ToolStatus | None, reason: str, revision: int) -> None:
    tool.status = status or tool.status
    tool.status_reason, tool.revision = reason, revision
    tool.save(update_fields=["status", "status_reason", "revision", "updated_at"])


def _record(event: Event, tool: Tool, by: Actor, tier: LicenseTier, before: ToolStatus) -> None:
    record(
        event,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        reason="license",
        details={
            "tier": tier.name,
            "max_custom_tools": tier.max_custom_tools,
            **difference({"status": before}, {"status": tool.status}),
        },
    )
