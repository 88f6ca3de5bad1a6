"""`/usage/`: calls and costs, as charts by day, and as a table by a chosen dimension."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.formats import date_format

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
from tools.web.listing import Column, Filters, Listing, choice_field, text_field
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "home/usage.html"
PERIODS = (7, 30, 90, 365)
_MISSING_NAMES = {"agent": "people", "group": "no group", "tool": "none", "day": "never"}


@dataclass(frozen=True)
class UsageTableRow:
    """A row of the table; `url` is the page of its subject, where there is one."""

    name: str
    url: str
    figures: UsageTotals
    cost: str


_FIGURES = [
    Column("calls", "Calls", attrgetter("figures.calls"), css="number"),
    Column("failures", "Failed", attrgetter("figures.failures"), css="number"),
    Column("denials", "Refused", attrgetter("figures.denials"), css="number"),
    Column("cached", "From the cache", attrgetter("figures.cached"), css="number"),
    Column("cost", "Cost", attrgetter("cost"), css="number"),
]


class UsageFilters(Filters):
    by = choice_field("By", [(name, name.capitalize()) for name in DIMENSIONS[1:]], every="Day")
    since = forms.CharField(label="From", widget=forms.DateInput({"type": "date"}))
    until = forms.CharField(label="To", widget=forms.DateInput({"type": "date"}))
    agent, tool, group = text_field("Agent"), text_field("Tool"), text_field("Group")


class UsageListing(Listing):
    """Days, the latest first, or what the most calls were of. Its charts change with it."""

    view, template, noun, filters = "usage", TEMPLATE, "row", UsageFilters
    page_size, results = 100, f"{TEMPLATE}#results"

    def build(self) -> None:
        self.by, self.flaw = self.values.get("by") or "day", ""
        try:
            loaded = _load_usage(self.request, replace(_usage_query(self.values), by=(self.by,)))
        except Malformed as wrong:
            self.flaw = wrong.message
            self.filter = UsageFilters({"by": self.values.get("by", "")})
            self.values = self.filter.values
            loaded = _load_usage(self.request, UsageQuery(by=(self.by,)))
        self.days, self.ranked = loaded
        days = {"since": f"{self.days.since}", "until": f"{self.days.until}"}
        self.filter.data = {**self.filter.data, **days}
        self.filter.texts |= days  # of its addresses, so that they are the same after midnight
        self.columns = [
            Column(self.by, self.by.capitalize(), lambda row: row.name),
            *_FIGURES,
        ]

    def rows(self) -> Sequence[ReportRow]:
        return self.ranked

    def prepare(self, rows: list[ReportRow]) -> list[UsageTableRow]:
        return _table_rows(rows, self.by)

    def context(self) -> dict[str, Any]:
        days = self.days
        total = sum((figures for _, figures in days.rows), UsageTotals())
        return {
            "found": days,
            "total": total,
            "cost": money(total.cost),
            "most_calls": max((figures.calls for _, figures in days.rows), default=0),
            "most_cost": money(max((figures.cost for _, figures in days.rows), default=total.cost)),
            **usage_charts(days),
            "periods": [(length, self._period(length)) for length in PERIODS],
            "everyone": may(self.caller, "view_execution"),
            "time_zone": snapshot_of(self.request).time_zone.key,
        }

    def _period(self, length: int) -> str:
        """The address for so many days with the same end."""
        return self.address(since=f"{self.days.until - timedelta(days=length - 1)}")


@page()
def usage_page(request: PageRequest) -> HttpResponseBase:
    listing = UsageListing(request)
    response = listing.respond()
    if listing.flaw:
        response.status_code = 400
    return response


def _load_usage(
    request: PageRequest, wanted: UsageQuery
) -> tuple[UsageReport, RankedRows | list[ReportRow]]:
    """Usage by day, and the rows of the table: days the latest first, else the most calls first."""
    if wanted.by == ("day",):
        days = usage_report(request.caller, snapshot_of(request), wanted)
        return days, days.rows[::-1]
    found = usage_ranking(request.caller, snapshot_of(request), wanted)
    return found.days, found.rows


def _usage_query(given: Mapping[str, str]) -> UsageQuery:
    """Raises `Malformed` for an invalid date."""
    return UsageQuery(
        since=_parse_day(given, "since"),
        until=_parse_day(given, "until"),
        agent=given.get("agent"),
        tool=given.get("tool"),
        group=given.get("group"),
    )


def _parse_day(given: Mapping[str, str], name: str) -> date | None:
    try:
        return date.fromisoformat(given[name]) if name in given else None
    except ValueError:
        raise Malformed(f"{name} must be a day such as 2026-01-31.") from None


def _table_rows(rows: list[ReportRow], by: str) -> list[UsageTableRow]:
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
