"""`/csp-report`: violations of the Content Security Policy that browsers report. The endpoint is
public, so a report only writes a log line and a metric, and above a rate limit only the metric."""

import json
import logging
import threading
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from tools import metrics

log = logging.getLogger(__name__)
REPORTS_PER_MINUTE = 30
DROPPED, MALFORMED, OTHER = "dropped", "malformed", "other"
_LONGEST = 200
_DIRECTIVES = frozenset({
    "base-uri", "connect-src", "default-src", "font-src", "form-action", "frame-ancestors",
    "frame-src", "img-src", "manifest-src", "media-src", "object-src", "script-src",
    "script-src-attr", "script-src-elem", "style-src", "style-src-attr", "style-src-elem",
    "worker-src",
})  # fmt: skip


class _Bucket:
    """A rate limit per minute and process, for all senders together."""

    def __init__(self, most: int) -> None:
        self._most, self._left, self._since = most, most, time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if now - self._since >= 60:
                self._left, self._since = self._most, now
            allowed = self._left > 0
            self._left -= allowed
            return allowed


bucket = _Bucket(REPORTS_PER_MINUTE)


@csrf_exempt
@require_POST
def csp_report(request: HttpRequest) -> HttpResponse:
    if not bucket.take():
        metrics.csp_reports.labels(DROPPED).inc()
        return HttpResponse(status=429, headers={"Retry-After": "60"})
    report = _parse_report(request)
    if report is None:
        metrics.csp_reports.labels(MALFORMED).inc()
        return HttpResponse(status=400)
    directive = _report_text(report, "effective-directive", "violated-directive").partition(" ")[0]
    metrics.csp_reports.labels(directive if directive in _DIRECTIVES else OTHER).inc()
    log.warning(
        "a browser refused %r of %r on %r (%s)",
        _report_text(report, "blocked-uri"),
        directive,
        _without_query(_report_text(report, "document-uri")),
        _without_query(_report_text(report, "source-file")),
    )
    return HttpResponse(status=204)


def _parse_report(request: HttpRequest) -> dict[str, Any] | None:
    try:
        report = json.loads(request.body)["csp-report"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _report_text(report: dict[str, Any], *names: str) -> str:
    found = next((report[name] for name in names if isinstance(report.get(name), str)), "")
    return str(found)[:_LONGEST]


def _without_query(address: str) -> str:
    """Removes the query, which may hold data that must not be logged."""
    return address.partition("?")[0].partition("#")[0]
