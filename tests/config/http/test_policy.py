"""Where pages hear of changes, and that they may reach it and nothing else."""

from typing import Any

import pytest
from django.test import Client, RequestFactory

from config.env import BadSetting, env_live
from config.http.browser_security import live_url
from tests.ui.pages import text


@pytest.mark.parametrize(
    ("values", "host", "address"),
    [
        ({"LIVE_PORT": 8001}, "127.0.0.1:8000", "http://127.0.0.1:8001/live/"),
        ({"LIVE_PORT": 8001}, "[::1]:8000", "http://[::1]:8001/live/"),
        ({"LIVE_PORT": 8001}, "evil.example", ""),
        ({"LIVE_PORT": 0}, "127.0.0.1:8000", ""),
        ({"HTTPS": True, "LIVE_PORT": 8001}, "127.0.0.1:8000", "/live/"),
        ({"LIVE_URL": "off", "LIVE_PORT": 8001}, "127.0.0.1:8000", ""),
        ({"LIVE_URL": "https://l.example/live/"}, "127.0.0.1:8000", "https://l.example/live/"),
    ],
)
def test_a_page_names_the_address_of_its_live_updates(
    settings: Any, values: dict[str, Any], host: str, address: str
) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1", "[::1]"]
    for name, value in values.items():
        setattr(settings, name, value)
    assert live_url(RequestFactory().get("/", headers={"host": host})) == address


def test_a_file_of_ours_has_the_policy_and_is_framed_nowhere(db: None) -> None:
    answer = Client().get("/static/css/base.css")
    assert answer.status_code == 200 and b"".join(answer.streaming_content)
    assert "default-src" in answer["Content-Security-Policy"]
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in answer["Permissions-Policy"]


def test_the_policy_lets_a_page_reach_it(admin_client: Client, settings: Any) -> None:
    settings.LIVE_PORT = 8001
    answer = admin_client.get("/inbox/", headers={"host": "127.0.0.1:8000"})
    assert "connect-src 'self' http://127.0.0.1:8001;" in answer["Content-Security-Policy"] + ";"
    assert 'data-live-at="http://127.0.0.1:8001/live/"' in text(answer)


def test_where_it_is_our_own_path_the_policy_says_no_more(
    admin_client: Client, settings: Any
) -> None:
    settings.LIVE_URL = "/live/"
    answer = admin_client.get("/inbox/")
    assert "connect-src 'self';" in answer["Content-Security-Policy"] + ";"


def test_the_login_page_names_no_address_of_live_updates(
    client: Client, settings: Any, db: None
) -> None:
    settings.LIVE_PORT = 8001
    assert "data-live-at" not in text(client.get("/login/"))


@pytest.mark.parametrize(
    "wrong",
    ["ftp://x/", "https://", "//x/live/", "nowhere", "/live/; script-src *", "https://x/ y"],
)
def test_a_place_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("LIVE_URL", wrong)
    with pytest.raises(BadSetting):
        env_live("LIVE_URL")
