"""Settings of models and endpoints: what cannot be meant stops the start."""

from decimal import Decimal

import pytest

from config.env import BadSetting, env_prices, env_url
from config.local import oxigraph


def test_prices_are_decimals_by_model(monkeypatch):
    monkeypatch.setenv("X_PRICES", '{"small": {"input": "0.15", "output": 0.6}}')
    assert env_prices("X_PRICES") == {"small": (Decimal("0.15"), Decimal("0.6"))}
    monkeypatch.delenv("X_PRICES")
    assert env_prices("X_PRICES") == {}


NO_ADDRESSES = ("ftp://host/", "host/v1", "https://", "file:///etc/passwd")
NO_PRICES = (
    "5",
    "[]",
    "{",
    '{"a": 1}',
    '{"a": {"input": "1"}}',
    '{"a": {"input": "x", "output": "1"}}',
    '{"a": {"input": "-1", "output": "1"}}',
    '{"a": {"input": "NaN", "output": "1"}}',
    '{"a": {"input": "1", "output": "1", "cached": "1"}}',
)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((env_url, text, "X must begin with http") for text in NO_ADDRESSES),
        *((env_prices, text, "X must be JSON") for text in NO_PRICES),
    ],
)
def test_prices_and_addresses_that_cannot_be_meant_are_refused(monkeypatch, read, text, message):
    monkeypatch.setenv("X", text)
    with pytest.raises(BadSetting, match=message):
        read("X")


def test_the_default_update_url_is_beside_the_query_url():
    assert oxigraph.update_url_beside("http://h:1/query") == "http://h:1/update"
    assert oxigraph.update_url_beside("http://h/ds/sparql") == "http://h/ds/update"
    assert oxigraph.update_url_beside("http://h/ds") == "http://h/ds"
