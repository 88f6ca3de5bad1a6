"""Periods of quotas and budgets: days and months in the organization's time zone."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tools.models.agent import AllowancePeriod


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
