"""`/home/`: running, held and failed calls, charts of recent calls, and the system's health."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format

from tools.accounts.user_permissions import may
from tools.definitions.results import Status
from tools.execution.outputs import readable_executions
from tools.models import Execution
from tools.shapes.scalars import money
from tools.ui.charts import Chart, line_chart, stacked_chart
from tools.ui.display import format_duration
from tools.ui.executions.executions import FAILED, LARGE_FIELDS
from tools.ui.home.health import health_components
from tools.usage import recent_activity
from tools.usage.recent_activity import MOST_COUNTED, Series, UsageStatistics
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "home/home.html"
ROWS = 5
SPANS = {"24h": "24 hours", "14d": "14 days"}


@dataclass(frozen=True)
class StatusCount:
    """A number of calls; `url` leads to them."""

    label: str
    number: str
    url: str
    tone: str


@dataclass(frozen=True)
class ChartPanel:
    """A chart with its title and legend, and a table of its values."""

    title: str
    about: str
    key: tuple[tuple[str, str], ...]  # (kind, label) of the legend
    chart: Chart
    columns: tuple[str, ...]
    rows: list[tuple[str, list[str]]]


@page()
def home_page(request: PageRequest) -> HttpResponse:
    part = request.GET.get("part", "")
    if request.htmx and part == "now":
        return _render_current(request)
    figures = _chart_context(request)
    if request.htmx and part == "figures":
        return render(request, f"{TEMPLATE}#usage_charts", figures)
    context = {
        **figures,
        **_current_context(request),
        "lines": list(health_components(request)),
        "begun": readable_executions(request.caller).order_by().exists(),
        "everyone": may(request.caller, "view_execution"),
    }
    return render(request, TEMPLATE, context)


def _render_current(request: PageRequest) -> HttpResponse:
    shown = _current_context(request)
    if request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # nothing changed: the page keeps its scroll position
    return render(request, f"{TEMPLATE}#now", shown)


def _current_context(request: PageRequest) -> dict[str, Any]:
    failures = _load_rows(recent_activity.failed_recently(request.caller))
    longest = _load_rows(recent_activity.longest_running(request.caller))
    counts = _status_counts(recent_activity.activity_counts(request.caller))
    seen = [counts, [row.pk for row in failures], [(row.pk, _age_text(row)) for row in longest]]
    return {
        "counts": counts,
        "failures": [(row, "") for row in failures],
        "longest": [(row, _age_text(row)) for row in longest],
        "seen": hashlib.sha256(repr(seen).encode()).hexdigest()[:16],
    }


def _age_text(row: Execution) -> str:
    """The age in whole minutes, so that it does not change at every reload."""
    ran = timezone.now() - (row.started_at or row.created_at)
    hours, minutes = divmod(int(ran.total_seconds() // 60), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else "under a minute"


def _load_rows(found: Any) -> list[Execution]:
    return list(found.select_related("agent", "user").defer(*LARGE_FIELDS)[:ROWS])


def _status_counts(now: recent_activity.ActivityCounts) -> list[StatusCount]:
    """Counts of calls. The list of failures begins at a full minute, so that its URL is stable."""
    since = (timezone.now() - timedelta(hours=recent_activity.HOURS)).replace(
        second=0, microsecond=0
    )
    failed = {"status": FAILED, "since": since.isoformat()}
    return [
        _status_count("Running", now.running, {"status": Status.RUNNING}),
        _status_count("Waiting", now.waiting, {"status": Status.PENDING}),
        _status_count(
            "Held for a person",
            now.awaiting_approval,
            {"status": Status.REQUIRES_CONFIRMATION},
            "warn",
        ),
        _status_count("Failed in 24 hours", now.failed, failed, "bad"),
    ]


def _status_count(label: str, number: int, query: dict[str, str], tone: str = "") -> StatusCount:
    more = number > MOST_COUNTED
    shown = f"{intcomma(MOST_COUNTED)}+" if more else intcomma(number)
    url = f"{reverse('executions')}?{urlencode(query)}"
    return StatusCount(label, shown, url, tone if number else "")


def _chart_context(request: PageRequest) -> dict[str, Any]:
    over = request.GET.get("over", "")
    over = over if over in SPANS else "24h"
    zone = snapshot_of(request).time_zone
    read = recent_activity.usage_by_day if over == "14d" else recent_activity.usage_by_hour
    series = _name_series(read(request.caller, zone))
    every = [figures for _, figures in series]
    return {
        "over": over,
        "spans": SPANS.items(),
        "time_zone": zone.key,
        "kept_minutes": round(recent_activity.CACHE_S / 60),
        "first": series[0][0],
        "last": series[-1][0],
        "calls": sum(figures.calls for figures in every),
        "pictures": [
            _calls_chart(series),
            _refusals_chart(series),
            _latency_chart(series),
            _cost_chart(series),
        ],
    }


type NamedSeries = Sequence[tuple[str, UsageStatistics]]


def _name_series(series: Series) -> NamedSeries:
    return [(_interval_name(begins), figures) for begins, figures in series]


def _interval_name(begins: datetime | date) -> str:
    return date_format(begins, "j M H:i" if isinstance(begins, datetime) else "j M Y")


def _calls_chart(series: NamedSeries) -> ChartPanel:
    bars = [
        (
            f"{name}: {one.calls} calls, {one.failures} failed, {one.denials} refused",
            [
                ("went", one.calls - one.failures - one.denials),
                ("failed", one.failures),
                ("refused", one.denials),
            ],
        )
        for name, one in series
    ]
    total, failed = sum(one.calls for _, one in series), sum(one.failures for _, one in series)
    return ChartPanel(
        "Calls",
        f"{intcomma(total)} calls, {intcomma(failed)} failed",
        (("went", "went well or are open"), ("failed", "failed"), ("refused", "refused")),
        stacked_chart(bars),
        ("Calls", "Failed"),
        _table_rows(series, lambda one: [intcomma(one.calls), intcomma(one.failures)]),
    )


def _refusals_chart(series: NamedSeries) -> ChartPanel:
    bars = [
        (f"{name}: {intcomma(one.denials)} refused", [("refused", one.denials)])
        for name, one in series
    ]
    total = sum(one.denials for _, one in series)
    return ChartPanel(
        "Refusals",
        f"{intcomma(total)} refused by a gate",
        (),
        stacked_chart(bars),
        ("Refused", "Of"),
        _table_rows(series, lambda one: [intcomma(one.denials), intcomma(one.calls)]),
    )


def _latency_chart(series: NamedSeries) -> ChartPanel:
    points = [
        (
            f"{name}: median {format_duration(one.median_ms)}, p95 {format_duration(one.p95_ms)}",
            (one.median_ms, one.p95_ms),
        )
        for name, one in series
    ]
    most = max((one.p95_ms for _, one in series if one.p95_ms is not None), default=None)
    return ChartPanel(
        "Latency",
        "Nothing ran" if most is None else f"p95 at most {format_duration(most)}",
        (("median", "median"), ("p95", "p95")),
        line_chart(points, ("median", "p95")),
        ("Median", "p95"),
        _table_rows(
            series, lambda one: [format_duration(one.median_ms), format_duration(one.p95_ms)]
        ),
    )


def _cost_chart(series: NamedSeries) -> ChartPanel:
    bars = [(f"{name}: {money(one.cost)}", [("cost", float(one.cost))]) for name, one in series]
    total = sum((one.cost for _, one in series), UsageStatistics().cost)
    return ChartPanel(
        "Cost",
        f"{money(total)} spent",
        (),
        stacked_chart(bars),
        ("Cost",),
        _table_rows(series, lambda one: [money(one.cost)]),
    )


def _table_rows(
    series: NamedSeries, cells: Callable[[UsageStatistics], list[str]]
) -> list[tuple[str, list[str]]]:
    """The rows of the table, the latest first."""
    return [(name, cells(one)) for name, one in reversed(series)]
