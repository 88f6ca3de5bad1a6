"""Reads are rate limited by token and by person, and each answer shows the remaining quota."""

import pytest

from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.limits import rate_limits


@pytest.fixture
def three(organization, settings, monkeypatch):
    """Three reads a minute; Redis is trusted as if it had counted for a whole window."""
    settings.READS_PER_MINUTE = 3
    window = rate_limits.RateWindow()
    window._client.script_load(rate_limits._SCRIPT)
    window._client.set(rate_limits.SINCE, 1)
    monkeypatch.setattr(rate_limits, "window", window)


def test_the_fourth_read_of_a_minute_is_429_and_says_when(three, agent):
    api = Api(factories.token(agent.service_account))
    left = [api.get("/tools").headers["RateLimit"].partition(";t=")[0] for _ in range(3)]
    assert left == ['"read";r=2', '"read";r=1', '"read";r=0']
    answer = api.get("/sessions")
    refusal = check_error(answer, 429, "rate_limited")
    assert (refusal["limit"], refusal["used"]) == (3, 3) and 0 < refusal["resets_in_s"] <= 60
    assert int(answer.headers["Retry-After"]) == refusal["resets_in_s"]
    assert answer.headers["RateLimit-Policy"].endswith(";q=3;w=60")


def test_another_token_of_the_same_agent_has_its_own(three, agent):
    first, second = (Api(factories.token(agent.service_account)) for _ in range(2))
    for _ in range(4):
        first.get("/tools")
    assert first.get("/tools").status_code == 429
    assert second.get("/tools").status_code == 200


def test_evidence_is_read_as_often_and_changes_are_not_counted(three, admin_api):
    for _ in range(3):
        assert admin_api.get("/audit/records").status_code == 200
    assert admin_api.get("/audit/records").status_code == 429
    assert admin_api.post("/groups", {"name": "still"}).status_code == 201


def test_a_call_says_what_is_left_of_its_tool(api, organization):
    factories.tool(organization, rate_limit_per_minute=5)
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 0})
    assert answer.headers["RateLimit"].startswith('"call";r=4;t=')


def test_without_redis_reading_goes_on(settings, monkeypatch, api):
    settings.READS_PER_MINUTE = 1
    monkeypatch.setattr(rate_limits.window, "ask", lambda *_: None)
    assert [api.get("/tools").status_code for _ in range(3)] == [200] * 3
