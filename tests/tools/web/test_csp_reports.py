"""Content security policy reports of browsers become a log line and a metric, whatever is sent."""

import json
import logging
from typing import Any

import pytest
from django.test import Client

from tools import metrics
from tools.web import csp_reports

REPORT = {
    "csp-report": {
        "effective-directive": "style-src-elem",
        "blocked-uri": "inline",
        "document-uri": "http://127.0.0.1:8000/tools/x/?q=secret#s",
    }
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csp_reports, "bucket", csp_reports._Bucket(csp_reports.REPORTS_PER_MINUTE))


def sent(body: Any, **options: Any) -> int:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    client = Client(enforce_csrf_checks=True)
    return client.post("/csp-report", data, "application/csp-report", **options).status_code


def count(directive: str) -> float:
    return metrics.csp_reports.labels(directive)._value.get()


def test_a_report_is_a_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    before = count("style-src-elem")
    with caplog.at_level(logging.WARNING, "tools.web.csp_reports"):
        assert sent(REPORT) == 204
    assert count("style-src-elem") == before + 1
    assert "'inline' of 'style-src-elem' on 'http://127.0.0.1:8000/tools/x/'" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_no_directive_is_counted_as_other() -> None:
    before = count("other")
    assert sent({"csp-report": {"effective-directive": "x" * 9_000, "blocked-uri": 7}}) == 204
    assert count("other") == before + 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\x00", b"[]", b"7", b'{"csp-report": 7}', b"[" * 16_000, b"\xff"],
)
def test_what_is_no_report_is_refused(body: bytes) -> None:
    before = count("malformed")
    assert sent(body) == 400
    assert count("malformed") == before + 1


@pytest.mark.parametrize("length", ["-1", "x", "", "9" * 30])
def test_a_length_that_cannot_be_meant_is_refused(length: str) -> None:
    assert sent(b"{}", CONTENT_LENGTH=length) in (400, 413)


def test_a_report_that_is_too_large_is_refused() -> None:
    assert sent(b"x" * 20_000) == 413


def test_reports_above_the_rate_limit_are_counted_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = count("dropped")
    answers = [sent(REPORT) for _ in range(csp_reports.REPORTS_PER_MINUTE + 5)]
    assert answers[0] == 204 and answers[-1] == 429
    logged = [one for one in caplog.records if one.name == "tools.web.csp_reports"]
    assert len(logged) == csp_reports.REPORTS_PER_MINUTE and count("dropped") == before + 5


def test_a_report_leaves_no_evidence(db: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert sent(REPORT) == 204


def test_the_policy_of_a_page_says_where_reports_go(admin_client: Client) -> None:
    assert "report-uri /csp-report" in admin_client.get("/inbox/")["Content-Security-Policy"]
