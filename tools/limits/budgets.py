"""Enforces what an agent may use in a day or a month: calls (a quota) and cost (a budget).

A call reserves its maximum use when it is accepted, in one statement that cannot overdraw; its
actual use is settled at its end. Locks are taken in one order everywhere: allowances by their id,
then their periods, then reservations.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.authorization.listings import usable_tools
from tools.catalog import model_prices
from tools.catalog.snapshot import CatalogAllowance, CatalogTool, Snapshot
from tools.definitions.callers import Caller, CallerKind
from tools.errors import QuotaExceeded
from tools.limits.allowances import ends_at, starts_on
from tools.models import Allowance, AllowanceUse
from tools.models.agent import AllowanceKind
from tools.policy.questions import EffectiveRequest, Gate, Question, Verdict, passed, refused

THRESHOLDS = (80, 100)  # percent
MOST_SUGGESTED = 3
ONE_CALL = Decimal(1)
# Amounts come from the rows as they are now, not from the catalog. A free call always fits.
_RESERVE = """
    WITH wanted AS (
        SELECT * FROM unnest(%(ids)s::uuid[], %(days)s::date[], %(amounts)s::numeric[])
            AS w (id, starts_on, amount)
    ), bounds AS (
        SELECT id, amount FROM tools_allowance
        WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR KEY SHARE
    ), taken AS (
        INSERT INTO tools_allowanceuse AS u (allowance_id, starts_on, used, held, alerted_percent)
        SELECT bounds.id, wanted.starts_on, 0, wanted.amount, 0
        FROM bounds JOIN wanted ON wanted.id = bounds.id
        WHERE wanted.amount <= bounds.amount ORDER BY bounds.id
        ON CONFLICT (allowance_id, starts_on) DO UPDATE SET held = u.held + excluded.held
        WHERE excluded.held = 0 OR u.used + u.held + excluded.held
            <= (SELECT amount FROM bounds WHERE bounds.id = excluded.allowance_id)
        RETURNING u.id, u.allowance_id
    ), kept AS (
        INSERT INTO tools_reservation (execution_id, use_id, amount)
        SELECT %(execution)s::uuid, taken.id, wanted.amount
        FROM taken JOIN wanted ON wanted.id = taken.allowance_id
    )
    SELECT id FROM bounds WHERE id NOT IN (SELECT allowance_id FROM taken)
"""
_SETTLE = """
    WITH found AS MATERIALIZED (
        SELECT r.id, r.use_id, r.amount, u.alerted_percent AS before,
            a.id AS allowance_id, a.amount AS bound,
            CASE a.kind WHEN 'calls' THEN %(calls)s::numeric ELSE %(cost)s::numeric END AS spent
        FROM tools_reservation r
        JOIN tools_allowanceuse u ON u.id = r.use_id
        JOIN tools_allowance a ON a.id = u.allowance_id
        WHERE r.execution_id = %(execution)s::uuid
        ORDER BY a.id FOR UPDATE OF u
    ), gone AS (
        DELETE FROM tools_reservation r USING found WHERE r.id = found.id RETURNING found.*
    )
    UPDATE tools_allowanceuse u
    SET held = u.held - gone.amount, used = u.used + gone.spent,
        alerted_percent = greatest(u.alerted_percent, CASE
            WHEN gone.bound = 0 THEN 0
            WHEN u.used + gone.spent >= gone.bound THEN 100
            WHEN u.used + gone.spent >= gone.bound * 0.8 THEN 80 ELSE 0 END)
    FROM gone WHERE u.id = gone.use_id
    RETURNING u.id, gone.before, u.alerted_percent
"""


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


def reserve(
    execution_id: UUID,
    *,
    caller: Caller,
    tool: CatalogTool,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    cost: Decimal,
) -> None:
    """Reserve what the call may use of every allowance that applies. Raises `QuotaExceeded`.

    Call it in the transaction that writes the execution's row; a refusal must undo all of it.
    """
    allowances = _applicable_allowances(caller, tool, snapshot)
    if not allowances:
        return
    now = timezone.now()
    values: dict[str, Any] = {
        "execution": execution_id,
        "ids": [one.id for one in allowances],
        "days": [starts_on(one.period, snapshot.time_zone, now) for one in allowances],
        "amounts": [_amount(one, cost) for one in allowances],
    }
    with connection.cursor() as cursor:
        cursor.execute(_RESERVE, values)
        short = {row[0] for row in cursor.fetchall()}
    if short:
        shortage = _find_shortage((one for one in allowances if one.id in short), snapshot, now)
        raise _refusal(shortage, caller, tool, asked, snapshot)


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
    for use_id, before, now in _settle(execution_id, calls=1, cost=spent):
        for percent in THRESHOLDS:
            if before < percent <= now:
                _record_alert(use_id, percent)


def release(execution_id: UUID) -> None:
    """The call never ran: release what it reserved. Safe to repeat."""
    _settle(execution_id, calls=0, cost=Decimal(0))


def _applicable_allowances(
    caller: Caller, tool: CatalogTool, snapshot: Snapshot
) -> tuple[CatalogAllowance, ...]:
    if caller.agent_id is None:
        return ()
    every = snapshot.allowances.get(caller.agent_id, ())
    return tuple(one for one in every if one.tool_name in ("", tool.name))


def _settle(execution_id: UUID, *, calls: int, cost: Decimal) -> list[tuple[int, int, int]]:
    """Periods that were charged: id, percent alerted before and now."""
    values: dict[str, Any] = {"execution": execution_id, "calls": calls, "cost": cost}
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE, values)
        return cursor.fetchall()


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
