"""`/usage/`: calls and costs, as charts by day, and as a table by a chosen dimension."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.formats import date_format
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import may
from tools.errors import Malformed
from tools.shapes.scalars import money
from tools.ui.charts import Chart, stacked_chart
from tools.usage.usage_reports import (
    DIMENSIONS,
    RankedRows,
    ReportRow,
    UsageQuery,
    UsageReport,
    UsageTotals,
    usage_ranking,
    usage_report,
)
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "home/usage.html"
PAGE_SIZE = 100
PERIODS = (7, 30, 90, 365)
FILTERS = ("agent", "tool", "group")
_MISSING_NAMES = {"agent": "people", "group": "no group", "tool": "none", "day": "never"}


@dataclass(frozen=True)
class UsageTableRow:
    """A row of the table; `url` is the page of its subject, where there is one."""

    name: str
    url: str
    figures: UsageTotals
    cost: str


@require_safe
@page
def usage_page(request: PageRequest) -> HttpResponse:
    given = _parse_query(request.GET)
    by, flaw, kept = given["by"], "", given
    try:
        days, rows = _load_usage(request, replace(_usage_query(given), by=(by,)))
    except Malformed as wrong:
        flaw, kept = wrong.message, {"by": by}
        days, rows = _load_usage(request, UsageQuery(by=(by,)))
    shown = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    total = sum((figures for _, figures in days.rows), UsageTotals())
    context = {
        "flaw": flaw,
        "given": given,
        "by": by,
        "dimensions": DIMENSIONS,
        "found": days,
        "shown": shown,
        "lines": _table_rows(shown, by),
        "links": _page_links(kept, days, shown),
        "total": total,
        "cost": money(total.cost),
        "most_calls": max((figures.calls for _, figures in days.rows), default=0),
        "most_cost": money(max((figures.cost for _, figures in days.rows), default=total.cost)),
        **usage_charts(days),
        "periods": [(length, _period_query(given, length, days.until)) for length in PERIODS],
        "everyone": may(request.caller, "view_execution"),
        "time_zone": snapshot_of(request).time_zone.key,
    }
    return render(request, TEMPLATE, context, status=400 if flaw else 200)


def _load_usage(
    request: PageRequest, wanted: UsageQuery
) -> tuple[UsageReport, RankedRows | list[ReportRow]]:
    """Usage by day, and the rows of the table: days the latest first, else the most calls first."""
    if wanted.by == ("day",):
        days = usage_report(request.caller, snapshot_of(request), wanted)
        return days, days.rows[::-1]
    found = usage_ranking(request.caller, snapshot_of(request), wanted)
    return found.days, found.rows


def _parse_query(query: QueryDict) -> dict[str, str]:
    names = ("by", "since", "until", *FILTERS)
    given = {name: query.get(name, "").strip()[:128] for name in names}
    return given | {"by": given["by"] if given["by"] in DIMENSIONS else "day"}


def _usage_query(given: dict[str, str]) -> UsageQuery:
    """Raises `Malformed` for an invalid date."""
    return UsageQuery(
        since=_parse_day(given, "since"),
        until=_parse_day(given, "until"),
        agent=given["agent"] or None,
        tool=given["tool"] or None,
        group=given["group"] or None,
    )


def _parse_day(given: dict[str, str], name: str) -> date | None:
    try:
        return date.fromisoformat(given[name]) if given[name] else None
    except ValueError:
        raise Malformed(f"{name} must be a day such as 2026-01-31.") from None


def _period_query(given: dict[str, str], length: int, until: date) -> str:
    """The query string for a period of `length` days with the same end."""
    kept = {name: given[name] for name in ("by", *FILTERS) if given[name]}
    since = until - timedelta(days=length - 1)
    return f"?{urlencode(kept | {'since': since.isoformat(), 'until': until.isoformat()})}"


def _page_links(given: dict[str, str], days: UsageReport, shown: Page[ReportRow]) -> dict[str, str]:
    """Links for the same dates, also after midnight."""
    kept = {name: value for name, value in given.items() if value}
    kept |= {"since": days.since.isoformat(), "until": days.until.isoformat()}

    def address(number: int) -> str:
        return f"?{urlencode(kept | {'page': number})}#lines"

    return {
        "previous": address(shown.number - 1) if shown.has_previous() else "",
        "next": address(shown.number + 1) if shown.has_next() else "",
    }


def _table_rows(rows: Page[ReportRow], by: str) -> list[UsageTableRow]:
    return [
        UsageTableRow(
            _value_name(values[by], by), _value_url(values[by], by), figures, money(figures.cost)
        )
        for values, figures in rows
    ]


def _value_name(value: Any, by: str) -> str:
    if value is None:
        return _MISSING_NAMES[by]
    return date_format(value, "j M Y") if by == "day" else str(value)


def _value_url(value: Any, by: str) -> str:
    if by not in ("agent", "tool") or not value:
        return ""
    return f"{reverse('executions')}?{urlencode({by: value})}"


def usage_charts(days: UsageReport) -> dict[str, Chart]:
    """Charts of calls by result, and of costs; a day without calls has an empty column."""
    known = {values["day"]: figures for values, figures in days.rows}
    every = [days.since + timedelta(days=at) for at in range((days.until - days.since).days + 1)]
    of_days = [(date_format(day, "j M Y"), known.get(day, UsageTotals())) for day in every]
    calls = [
        (
            f"{day}: {one.calls} calls, {one.failures} failed, {one.denials} refused",
            [
                ("went", one.calls - one.failures - one.denials),
                ("failed", one.failures),
                ("refused", one.denials),
            ],
        )
        for day, one in of_days
    ]
    costs = [(f"{day}: {money(one.cost)}", [("cost", float(one.cost))]) for day, one in of_days]
    return {"calls_chart": stacked_chart(calls), "cost_chart": stacked_chart(costs)}
