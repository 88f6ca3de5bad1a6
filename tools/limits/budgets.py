"""Enforces what an agent may use in a day or a month: calls (a quota) and cost (a budget).

A call reserves its maximum use in the statement that accepts it, which cannot overdraw; its actual
use is settled by the statement that ends it. Locks are taken in one order everywhere: allowances by
their id, then their periods, then reservations.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.inserts import fetch_one
from tools import metrics
from tools.authorization.listings import usable_tools
from tools.catalog import model_prices
from tools.catalog.snapshot import CatalogAllowance, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.errors import QuotaExceeded
from tools.limits.allowances import ends_at, starts_on
from tools.models import Allowance, AllowanceUse
from tools.models.agent import AllowanceKind
from tools.models.pipeline_sql import RAISE_ALERT, REFUSED, SETTLE
from tools.policy.questions import EffectiveRequest, Gate, Question, Verdict, passed, refused

THRESHOLDS = (80, 100)  # percent
MOST_SUGGESTED = 3
ONE_CALL = Decimal(1)


@dataclass(frozen=True, slots=True)
class _Shortage:
    """The exhausted allowance, and its use."""

    allowance: CatalogAllowance
    taken: Decimal  # used and reserved
    ends_at: datetime
    now: datetime

    @property
    def left(self) -> Decimal:
        return max(Decimal(0), self.allowance.amount - self.taken)

    @property
    def resets_in_s(self) -> int:
        return max(1, math.ceil((self.ends_at - self.now).total_seconds()))


def applies(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether a call of the tool reserves anything."""
    return bool(_applicable_allowances(caller, tool, snapshot))


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a call reserves of each allowance that applies, by the statement that accepts it."""

    allowances: tuple[CatalogAllowance, ...]
    caller: Caller
    tool: CatalogTool
    asked: EffectiveRequest
    snapshot: Snapshot
    cost: Decimal
    now: datetime = field(default_factory=timezone.now)

    def parameters(self, execution_id: UUID) -> dict[str, Any]:
        """Of `RESERVE_PARTS`."""
        zone = self.snapshot.time_zone
        return {
            "reserved_for": execution_id,
            "allowance_ids": [one.id for one in self.allowances],
            "days": [starts_on(one.period, zone, self.now) for one in self.allowances],
            "amounts": [_amount(one, self.cost) for one in self.allowances],
        }

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """For the statement with `RESERVE_PARTS`. Raises `QuotaExceeded` where it was refused; a
        transaction around it goes on."""
        within = transaction.atomic() if connection.in_atomic_block else nullcontext()
        try:
            with within:
                yield
        except DatabaseError as error:
            cause = error.__cause__
            if not isinstance(cause, psycopg.Error) or cause.diag.sqlstate != REFUSED:
                raise
            short = (cause.diag.message_primary or "").split(",")
        else:
            return
        exhausted = (one for one in self.allowances if str(one.id) in short)
        shortage = _find_shortage(exhausted, self.snapshot, self.now)
        raise _refusal(shortage, self.caller, self.tool, self.asked, self.snapshot)


def plan_reservation(
    *,
    caller: Caller,
    tool: CatalogTool,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    cost: Decimal,
) -> Reservation | None:
    """None where no allowance applies."""
    allowances = _applicable_allowances(caller, tool, snapshot)
    return Reservation(allowances, caller, tool, asked, snapshot, cost) if allowances else None


def peek(question: Question) -> Verdict:
    """The gate's current verdict, without a reservation."""
    caller, tool, snapshot = question.caller, question.tool, question.snapshot
    now = timezone.now()
    short = [
        one
        for one in _applicable_allowances(caller, tool, snapshot)
        if not _has_room(one, _amount(one, model_prices.most(tool.definition)), snapshot, now)
    ]
    if not short:
        return passed(Gate.BUDGET)
    shortage = _find_shortage(short, snapshot, now)
    return refused(Gate.BUDGET, _refusal(shortage, caller, tool, question.asked, snapshot))


def settle(execution_id: UUID, *, spent: Decimal) -> None:
    """Settle the actual cost of a call, in the transaction that ends it. Safe to repeat.

    One indexed statement, also for a call without a reservation: reservations were made when it was
    accepted, regardless of the current catalog.
    """
    record_alerts(_settle(execution_id, settled_parameters(spent)))


def release(execution_id: UUID) -> None:
    """The call never ran: release what it reserved. Safe to repeat."""
    _settle(execution_id, settled_parameters(None))


def settled_parameters(spent: Decimal | None) -> dict[str, Any]:
    """Of `SETTLE_PARTS`; None is for a call that never ran."""
    return {"settled_calls": 0 if spent is None else 1, "settled_cost": spent or Decimal(0)}


type Reached = tuple[list[int] | None, list[int] | None]


def record_alerts(reached: Reached) -> None:
    """Once per period and threshold that is reached: each raises `alerted_percent` with its record,
    so that what a killed process left is alerted by the next call."""
    for use_id, percent in zip(*(part or () for part in reached), strict=True):
        with transaction.atomic():
            found = fetch_one(RAISE_ALERT.text, {"use": use_id, "percent": percent})
            before = found[0] if found else percent
            for threshold in THRESHOLDS:
                if before < threshold <= percent:
                    _record_alert(use_id, threshold)


def _applicable_allowances(
    caller: Caller, tool: CatalogTool, snapshot: Snapshot
) -> tuple[CatalogAllowance, ...]:
    if caller.agent_id is None:
        return ()
    every = snapshot.allowances.get(caller.agent_id, ())
    return tuple(one for one in every if one.tool_name in ("", tool.name))


def _settle(execution_id: UUID, parameters: dict[str, Any]) -> Reached:
    found = fetch_one(SETTLE.text, parameters | {"settled_for": execution_id})
    ids, percents = found or (None, None)
    return ids, percents


def _amount(allowance: CatalogAllowance, cost: Decimal) -> Decimal:
    return ONE_CALL if allowance.kind == AllowanceKind.CALLS else cost


def _has_room(
    allowance: CatalogAllowance, amount: Decimal, snapshot: Snapshot, now: datetime
) -> bool:
    """A free call always fits."""
    starts = starts_on(allowance.period, snapshot.time_zone, now)
    use = AllowanceUse.objects.filter(allowance=allowance.id, starts_on=starts).first()
    taken = use.used + use.held if use else Decimal(0)
    return not amount or taken + amount <= allowance.amount


def _find_shortage(
    short: Iterable[CatalogAllowance], snapshot: Snapshot, now: datetime
) -> _Shortage:
    """The exhausted allowance with the latest reset."""
    zone = snapshot.time_zone
    one = max(short, key=lambda allowance: ends_at(allowance.period, zone, now))
    use = AllowanceUse.objects.filter(
        allowance=one.id, starts_on=starts_on(one.period, zone, now)
    ).first()
    taken = use.used + use.held if use else Decimal(0)
    return _Shortage(one, taken, ends_at(one.period, zone, now), now)


def _refusal(
    shortage: _Shortage,
    caller: Caller,
    tool: CatalogTool,
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> QuotaExceeded:
    allowance, wait_s = shortage.allowance, shortage.resets_in_s
    budget = allowance.kind == AllowanceKind.COST
    cheaper = _cheaper_tools(shortage, caller, tool, asked, snapshot) if budget else []
    what = "budget" if budget else "quota"
    of = f" for the tool {allowance.tool_name}" if allowance.tool_name else ""
    taken = _format_amount(allowance.kind, shortage.taken)
    limit = _format_amount(allowance.kind, allowance.amount)
    suggestion = f" Cheaper tools in its groups: {', '.join(cheaper)}." if cheaper else ""
    return QuotaExceeded(
        f"The {what} of {caller.name}{of} has no room for this call: "
        f"{taken} of {limit} "
        f"a {allowance.period} are used or held. "
        f"It begins anew in {wait_s} s; an administrator can raise it.{suggestion}",
        code=f"{what}_exceeded",
        gate=Gate.BUDGET.value,
        tool=allowance.tool_name or None,
        period=allowance.period,
        limit=limit,
        used=taken,
        resets_in_s=wait_s,
        **({"cheaper": cheaper} if budget else {}),
    )


def _cheaper_tools(
    shortage: _Shortage,
    caller: Caller,
    tool: CatalogTool,
    asked: EffectiveRequest,
    snapshot: Snapshot,
) -> list[str]:
    """Tools the caller may use in this request, in a group of this one, that cost less and fit the
    allowance."""
    groups = snapshot.groups_of(tool)
    found = (
        one
        for one in usable_tools(caller, asked, snapshot)
        if one.definition.cost < tool.definition.cost
        and _fits(one, shortage)
        and not groups.isdisjoint(snapshot.groups_of(one))
    )
    best = sorted(found, key=lambda one: (one.definition.cost, one.name))
    return [one.name for one in best[:MOST_SUGGESTED]]


def _fits(tool: CatalogTool, shortage: _Shortage) -> bool:
    """A limit of one tool does not apply to the others."""
    return bool(shortage.allowance.tool_name) or tool.definition.cost <= shortage.left


def _format_amount(kind: str, amount: Decimal) -> int | str:
    """Calls are counted; money is a decimal string."""
    return int(amount) if kind == AllowanceKind.CALLS else f"{amount.normalize():f}"


def _record_alert(use_id: int, percent: int) -> None:
    """Once per period and threshold: called by the transaction that raised `alerted_percent`."""
    use = AllowanceUse.objects.get(pk=use_id)
    allowance = Allowance.objects.select_related("agent", "organization").get(pk=use.allowance_id)
    metrics.allowance_alerts.labels(allowance.kind, percent).inc()
    record(
        Event.BUDGET_ALERT,
        by=Actor(CallerKind.SYSTEM, "budgets", allowance.organization.slug),
        outcome=Outcome.CHANGED,
        subject=allowance.agent.slug,
        reason=f"{percent}_percent",
        details=_alert_details(allowance, use) | {"percent": percent},
    )


def _alert_details(allowance: Allowance, use: AllowanceUse) -> dict[str, Any]:
    return {
        "kind": allowance.kind,
        "tool": allowance.tool_name or None,
        "period": allowance.period,
        "starts_on": use.starts_on.isoformat(),
        "limit": _format_amount(allowance.kind, allowance.amount),
        "used": _format_amount(allowance.kind, use.used),
    }
