from typing import Any

import pytest

from tools.live.app import is_own_origin

BESIDE = {"host": "127.0.0.1:8001"}


@pytest.fixture(autouse=True)
def _installed(settings: Any) -> None:
    settings.WEB_PORT = 8000
    settings.CSRF_TRUSTED_ORIGINS = ["https://tools.example"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "http://127.0.0.1:8001"},
        {"origin": "https://tools.example"},
        {"sec-fetch-site": "same-origin"},
        {"host": "[::1]:8001", "origin": "http://[::1]:8000"},
    ],
)
def test_pages_of_the_product_are_its_own(headers: dict[str, str]) -> None:
    assert is_own_origin(BESIDE | headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://localhost:8000"},
        {"origin": "http://127.0.0.1:8000/"},
        {"origin": "http://127.0.0.1:8000@evil.example"},
        {"origin": "http://user@127.0.0.1:8000"},
        {"origin": "http://127.0.0.1:99999"},
        {"origin": "ftp://127.0.0.1:8000"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:8000\r\nx: y"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"host": ""},
    ],
)
def test_others_are_not(headers: dict[str, str]) -> None:
    assert not is_own_origin(BESIDE | headers)
