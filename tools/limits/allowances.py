"""Quotas and budgets of an agent: configured by people, read with their current use. Their periods
are days and months in the organization's time zone."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.errors import Malformed, NotFound
from tools.models import Agent, Allowance, AllowanceUse, Organization, Tool
from tools.models.agent import AllowanceKind, AllowancePeriod

MOST_QUOTAS = 200
AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)
Key = tuple[str, str, str]  # tool ("" for all), kind, period


@dataclass(frozen=True, slots=True)
class AllowanceStatus:
    """One allowance, and what is used and reserved of it in the current period."""

    tool_name: str
    kind: str
    period: str
    amount: Decimal
    used: Decimal
    held: Decimal
    resets_at: datetime

    @property
    def is_budget(self) -> bool:
        return _is_budget((self.tool_name, self.kind, self.period))


def allowances_of(agent: Agent) -> list[AllowanceStatus]:
    """The budget of a day before that of a month."""
    return allowances_of_many([agent])[agent.pk]


def allowances_of_many(agents: Collection[Agent]) -> dict[UUID, list[AllowanceStatus]]:
    """By the agent, with two queries, however many there are."""
    now = timezone.now()
    zones = {agent.pk: ZoneInfo(agent.organization.time_zone) for agent in agents}
    rows = list(Allowance.objects.filter(agent__in=zones).order_by("tool_name", "kind", "period"))
    begun = {starts_on(period, zone, now) for period in AllowancePeriod for zone in zones.values()}
    uses = AllowanceUse.objects.filter(allowance__in=rows, starts_on__in=begun) if rows else []
    by_row = {(use.allowance_id, use.starts_on): use for use in uses}
    found: dict[UUID, list[AllowanceStatus]] = {agent.pk: [] for agent in agents}
    for row in rows:
        zone = zones[row.agent_id]
        use = by_row.get((row.pk, starts_on(row.period, zone, now)))
        found[row.agent_id].append(_status_of(row, use, zone, now))
    return found


def starts_on(period: str, zone: ZoneInfo, at: datetime) -> date:
    """The first day of the period that `at` lies in."""
    today = at.astimezone(zone).date()
    return today if period == AllowancePeriod.DAY else today.replace(day=1)


def ends_at(period: str, zone: ZoneInfo, at: datetime) -> datetime:
    """Local midnight at which the next period begins, in UTC: a day has 23, 24 or 25 hours."""
    first = starts_on(period, zone, at)
    if period == AllowancePeriod.DAY:
        return midnight(first + timedelta(days=1), zone)
    return midnight((first + timedelta(days=31)).replace(day=1), zone)


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a local day begins, in UTC; where clocks skip midnight, the moment they do."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)


def _status_of(
    row: Allowance, use: AllowanceUse | None, zone: ZoneInfo, now: datetime
) -> AllowanceStatus:
    return AllowanceStatus(
        tool_name=row.tool_name,
        kind=row.kind,
        period=row.period,
        amount=row.amount,
        used=use.used if use else Decimal(0),
        held=use.held if use else Decimal(0),
        resets_at=ends_at(row.period, zone, now),
    )


@transaction.atomic
def set_allowances(*, agent: Agent, by: Actor, changes: Mapping[str, Any]) -> bool:
    """`budget` sets the one limit on the cost of all tools, None removes it. `quotas` replaces
    every other limit; those on the cost of all tools too, where the list names one. Whether
    something changed.

    What is used stays counted when an amount changes. Raises `Malformed`, `NotFound`.
    """
    Organization.objects.next_revision(agent.organization_id)
    rows = {_key(row): row for row in _lock_allowances(agent)}
    held = {key: row.amount for key, row in rows.items()}
    wanted = _amounts_after(held, changes)
    if wanted == held:
        return False
    _check_tools(agent, {key[0] for key in wanted.keys() - rows.keys()} - {""})
    _remove([row for key, row in rows.items() if key not in wanted])
    for key, amount in wanted.items():
        _write(agent, key, amount, rows.get(key))
    record(
        Event.ALLOWANCE_CHANGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=agent.slug,
        details=dict(difference(_describe_all(held), _describe_all(wanted))),
    )
    return True


def _describe_all(amounts: Mapping[Key, Decimal]) -> dict[str, Any]:
    return {
        "allowances": [_describe_amount(key, amount) for key, amount in sorted(amounts.items())]
    }


def _lock_allowances(agent: Agent) -> list[Allowance]:
    """Locks these rows, as the acceptance of calls does; new calls wait until the end."""
    return list(Allowance.objects.filter(agent=agent).order_by("pk").select_for_update())


def _amounts_after(held: dict[Key, Decimal], changes: Mapping[str, Any]) -> dict[Key, Decimal]:
    wanted = dict(held)
    listed = _parse_quotas(changes.get("quotas") or [])
    names_budget = any(map(_is_budget, listed))
    if names_budget and "budget" in changes:
        raise Malformed(
            "The cost of all tools is bound twice: give it as budget, or among the quotas.",
            code="allowance_twice",
        )
    if "quotas" in changes:
        kept = {} if names_budget else {key: wanted[key] for key in filter(_is_budget, wanted)}
        wanted = kept | listed
    if "budget" in changes:
        wanted = {key: amount for key, amount in wanted.items() if not _is_budget(key)}
        if budget := changes["budget"]:
            wanted["", AllowanceKind.COST.value, budget["period"]] = budget["amount"]
    return wanted


def _parse_quotas(quotas: Iterable[Mapping[str, Any]]) -> dict[Key, Decimal]:
    found: dict[Key, Decimal] = {}
    for quota in quotas:
        key = (quota["tool"] or "", str(quota["kind"]), str(quota["period"]))
        if key in found:
            raise Malformed(
                f"Two of the quotas are for {_key_in_words(key)}.", code="allowance_twice"
            )
        if quota["kind"] == AllowanceKind.CALLS and quota["amount"] % 1:
            raise Malformed(f"Calls are whole: the quota for {_key_in_words(key)} is not.")
        found[key] = quota["amount"]
    return found


def _check_tools(agent: Agent, names: set[str]) -> None:
    there = Tool.objects.present().filter(organization=agent.organization_id, name__in=names)
    missing = names - set(there.values_list("name", flat=True)) if names else set()
    if missing:
        raise NotFound(
            f"There is no tool {', '.join(sorted(missing))} to bound.", code="tool_not_found"
        )


def _remove(rows: list[Allowance]) -> None:
    """Deletes them with the reservations of open calls, which settle without them."""
    uses = AllowanceUse.objects.filter(allowance__in=rows).order_by("allowance_id")
    if rows:
        list(uses.select_for_update())  # in the order in which ending calls lock them
        Allowance.objects.filter(pk__in=[row.pk for row in rows]).delete()


def _write(agent: Agent, key: Key, amount: Decimal, row: Allowance | None) -> None:
    if row is None:
        tool_name, kind, period = key
        Allowance.objects.create(
            organization_id=agent.organization_id,
            agent=agent,
            tool_name=tool_name,
            kind=kind,
            period=period,
            amount=amount,
        )
    elif row.amount != amount:
        Allowance.objects.filter(pk=row.pk).update(amount=amount)
        # The new limit changes the used share, so alerts are sent again.
        AllowanceUse.objects.filter(allowance=row).update(alerted_percent=0)


def _key(row: Allowance) -> Key:
    return (row.tool_name, row.kind, row.period)


def _is_budget(key: Key) -> bool:
    return key[:2] == ("", AllowanceKind.COST)


def _key_in_words(key: Key) -> str:
    return f"{key[1]} a {key[2]} of {key[0] or 'all tools'}"


def _describe_amount(key: Key, amount: Decimal) -> dict[str, str | None]:
    return {"tool": key[0] or None, "kind": key[1], "period": key[2], "amount": f"{amount:f}"}
