"""Whose address and scheme a request has, with proxies before the server."""

import pytest

from config.server import Proxies

TRUSTED = Proxies(["10.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # a stranger is not believed
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),  # the client's own lie
        ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),  # two proxies
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),  # a client among the proxies
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("10.0.0.1", "1.1.1.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, ; DROP TABLE, 10.0.0.2", "10.0.0.2"),
        ("::1", "198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
    ],
)
def test_the_last_hop_that_is_no_proxy_is_the_client(peer: str, header: str, client: str) -> None:
    assert TRUSTED.client(peer, header) == client


@pytest.mark.parametrize(
    ("peer", "header", "scheme"),
    [
        ("10.0.0.1", "https", "https"),
        ("10.0.0.1", "http, https", "https"),
        ("10.0.0.1", "https, http", "http"),
        ("10.0.0.1", "gopher", "http"),
        ("10.0.0.1", "", "http"),
        ("203.0.113.9", "https", "http"),
    ],
)
def test_the_nearest_proxy_says_the_scheme(peer: str, header: str, scheme: str) -> None:
    assert TRUSTED.scheme(peer, header, "http") == scheme
