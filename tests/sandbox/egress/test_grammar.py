"""What is accepted as a host has one reading; every trick to get two is refused."""

import random
import socket
import string
import time
from ipaddress import ip_address

import pytest

from sandbox.egress.rules.grammar import (
    BadHost,
    BrokenGrammar,
    Host,
    Url,
    parse_authority,
    parse_host,
)

FUZZ_S = 1.0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("a", "a"),
        ("a-b.c1", "a-b.c1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("中国.example", "xn--fiqs8s.example"),
        ("1.2.3.4", "1.2.3.4"),
        ("1password.com", "1password.com"),
        ("0x.org", "0x.org"),
        ("[2606:4700::1111]", "2606:4700::1111"),
        ("[::1]", "::1"),
        ("l" * 63 + ".com", "l" * 63 + ".com"),
        (".".join(["l" * 49] * 5) + ".abc", ".".join(["l" * 49] * 5) + ".abc"),
    ],
)
def test_a_host_is_read_into_its_one_spelling(written, read):
    host = parse_host(written)
    assert host.text == read
    assert parse_host(str(host)) == host


@pytest.mark.parametrize(
    "written",
    [
        # No host's name.
        "", ".", "..", "a..b", ".a", "a.b..", " a", "a ", "a b", "a\t", "a\n", "a\r\nb", "a\0b",
        "a\0.good.example", "good.example\0", "a_b.com", "-a.com", "a-.com", "a.-b", "a@b", "a:b",
        "a/b", "a\\b", "a%2eb", "a%00b", "a?b", "a#b", "*", "*.a", "a,b", "a;b", "a+b", "a!b",
        "a'b", 'a"b', "<a>", "{a}", "a|b", "a~b", "a^b", "a`b", "a=b", "a&b", "$a", "(a)",
        "l" * 64, "l" * 64 + ".com", ".".join(["l" * 49] * 5) + ".abcd", "l." * 127 + "l",
        "x" * 300,
        # Dots, letters and digits of other scripts that some reader folds into plain ones.
        "a。b", "a．b", "a｡b", "a․b", "ｅxample.com", "ⓔxample.com", "℀.com", "ﬁ.com", "①②⑦.⓪.⓪.①",
        "１２７.0.0.1", "١٢٧.0.0.1", "exa\u00admple.com", "exa\u200bmple.com", "exa\u200dmple.com",
        "\u202eelpmaxe.com", "BÜCHER.example", "İ.com", "\u0345.com", "\ud800.com", "\udcff",
        # An address in any spelling but its own.
        "127.1", "127.0.1", "0", "1", "0177.0.0.1", "0x7f.0.0.1", "0x7F.1", "0X7f000001",
        "127.0.0.01",
        "2130706433", "017700000001", "0x7f000001", "127.0.0.0x1", "127.0.0.1.", "1.2.3.4.5",
        "256.1.1.1", "1.2.3.256", "4294967296", "0x", "a.0x", "a.1", "1.2.3", "00.0.0.0", "1..2",
        "١.1", "1.2.3.4x.5",
        "[127.0.0.1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "[::01]", "[::1%eth0]", "[::1%25eth0]", "[fe80::1%1]", "[::1", "::1]", "::1", "[]", "[:]",
        "[::1].", "[[::1]]", "[::1]x", "[1::2::3]", "[12345::]", "[::G]", "[2606:4700::1111 ]",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(written):
    with pytest.raises(BadHost):
        parse_host(written)


def test_no_name_that_passes_is_an_address_to_the_system():
    for name in ("1password.com", "0x.org", "xn--0-1.com", "127.0.0.1.example", "0x7f.example"):
        parse_host(name)
        with pytest.raises(OSError, match="illegal IP"):
            socket.inet_aton(name)


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [("a.b:443", "a.b", 443), ("[::1]:8080", "::1", 8080), ("A.B.:1", "a.b", 1)],
)
def test_an_authority_has_a_host_and_a_port(written, host, port):
    address = ip_address(host) if ":" in host else None
    assert parse_authority(written) == (parse_host(str(Host(host, address))), port)


@pytest.mark.parametrize(
    "written",
    [
        "a", "a:", "a:0", "a:65536", "a:080", "a:+1", "a: 1", "a:1 ", "a:1:2", "a:٣", "a:0x50",
        ":80", "@a:1", "u@a:1", "u:p@a:1", "[::1]", "[::1]1", "[::1]:", "a:1/", "a:1#", "a:1\n",
        "a:-1",
    ],
)  # fmt: skip
def test_an_authority_that_can_be_misread_is_refused(written):
    with pytest.raises(BadHost):
        parse_authority(written)


@pytest.mark.parametrize(
    ("written", "host", "port", "target"),
    [
        ("http://a.b", "a.b", 80, "/"),
        ("HTTPS://A.b/", "a.b", 443, "/"),
        ("http://a.b:8080/c/d?e=f&g", "a.b", 8080, "/c/d?e=f&g"),
        ("https://a.b?c", "a.b", 443, "/?c"),
        ("http://[::1]/x", "::1", 80, "/x"),
        ("http://a.b/@c:1//%2e?http://d@e/", "a.b", 80, "/@c:1//%2e?http://d@e/"),
    ],
)
def test_a_url_is_read_into_its_parts(written, host, port, target):
    url = Url.parse(written)
    assert (url.host.text, url.port, url.target) == (host, port, target)


@pytest.mark.parametrize(
    "written",
    [
        "", "a.b", "//a.b/", "http:/a.b", "http:a.b", "http:///a.b", "ftp://a.b/", "file:///etc/passwd",
        "javascript:alert(1)", " http://a.b/", "http://a.b /", "http://a.b/ c", "http://a.b/\n",
        "http://a.b\n/", "\nhttp://a.b/", "http://a.b/#c", "http://a.b#c", "http://a.b/\\c",
        "http://a.b\\c/", "http://a.b\\@c/", "http://u@a.b/", "http://u:p@a.b/", "http://a.b@/",
        "http://a.b/\x7f", "http://a.b/ü", "http://a.b/\0", "http://a.b:x/", "http://a.b:/",
        "http://a.b%00.c/", "http://a.b/" + "c" * 17_000, "http+unix://a.b/", "https//a.b/",
    ],
)  # fmt: skip
def test_a_url_that_can_be_misread_is_refused(written):
    with pytest.raises(BrokenGrammar):
        Url.parse(written)


def test_the_host_header_names_the_port_only_where_it_must():
    written = ("http://a.b:80/", "http://a.b:443/", "https://a.b:443/", "https://[::1]:1/")
    found = [Url.parse(one).authority for one in written]
    assert found == ["a.b", "a.b:443", "a.b", "[::1]:1"]


def test_whatever_is_thrown_at_it_has_one_reading_or_none():
    chance = random.Random(20261122)
    alphabet = (
        string.ascii_letters + string.digits + ".-_:[]@%/\\?# \0\n\rxX" + "üß中。．①ｅ\u200b\ud800"
    )
    seeds = ["good.example", "127.0.0.1", "0x7f.1", "[::1]", "xn--bcher-kva.de", "a:80", "1.2.3.4"]
    accepted, until = 0, time.monotonic() + FUZZ_S
    while time.monotonic() < until:
        text = list(chance.choice(seeds) if chance.random() < 0.8 else "")
        for _ in range(chance.randrange(4)):
            text.insert(chance.randint(0, len(text)), chance.choice(alphabet))
        accepted += check_one_reading("".join(text))
    assert accepted > 100


def check_one_reading(text: str) -> bool:
    """True for what is accepted; raises anything but a refusal."""
    try:
        host = parse_host(text)
    except BadHost:
        return False
    assert parse_host(str(host)) == host
    assert host.text.isascii() and host.text == host.text.lower()
    assert not set(host.text) - set(string.ascii_lowercase + string.digits + ".-:")
    assert parse_authority(f"{host}:443") == (host, 443)
    assert Url.parse(f"https://{host}/").host == host
    assert (host.address is None) == (not _is_address_to_the_system(host.text))
    return True


def _is_address_to_the_system(text: str) -> bool:
    try:
        if ":" in text:
            socket.inet_pton(socket.AF_INET6, text)
        else:
            socket.inet_aton(text)
    except OSError:
        return False
    return True
