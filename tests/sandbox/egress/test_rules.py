"""Which rule lets a request through: hosts, ports, methods and paths."""

import random
import time
from unicodedata import normalize
from urllib.parse import quote, unquote

import pytest

from sandbox.egress.rules import grammar
from sandbox.egress.rules.egress_policy import Denied, EgressPolicy, HostRule
from sandbox.egress.rules.grammar import Url, parse_authority
from sandbox.egress.rules.host_rules import MOST_RULES, Rules
from sandbox.errors import SpecInvalid


def verdict(*rules: HostRule, url: str = "https://a.example/", method: str = "GET") -> str:
    """The code, or `ok`."""
    try:
        Rules(EgressPolicy(rules)).admit(method, Url.parse(url))
    except Denied as denied:
        return str(denied.code)
    return "ok"


def tunnel(*rules: HostRule, to: str = "a.example:443") -> str:
    try:
        Rules(EgressPolicy(rules)).admit_tunnel(*parse_authority(to))
    except Denied as denied:
        return str(denied.code)
    return "ok"


def test_no_rule_no_host():
    assert verdict() == tunnel() == "HOST_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("pattern", "host", "allowed"),
    [
        ("a.example", "a.example", True),
        ("A.Example.", "a.example", True),
        ("a.example", "b.a.example", False),
        ("a.example", "xa.example", False),
        ("a.example", "a.example.evil", False),
        ("*.example", "a.example", True),
        ("*.example", "a.b.example", True),
        ("*.example", "example", False),
        ("*.example", "xexample", False),
        ("*.a.example", "xa.example", False),
        ("*.example", "a.example.evil", False),
        ("*", "any.name", True),
        ("*", "1.1.1.1", False),
        ("*", "[2606:4700::1111]", False),
        ("*.1.example", "2.1.example", True),
        ("1.1.1.1", "1.1.1.1", True),
        ("1.1.1.1", "1.1.1.2", False),
        ("2606:4700::1111", "[2606:4700::1111]", True),
        ("[2606:4700::1111]", "[2606:4700::1111]", True),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("*.bücher.example", "a.xn--bcher-kva.example", True),
    ],
)
def test_a_host_matches_on_the_border_of_a_label(pattern, host, allowed):
    expected = "ok" if allowed else "HOST_NOT_ALLOWED"
    assert verdict(HostRule(pattern), url=f"https://{host}/") == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/", "ok"),
        ("http://a.example/", "ok"),
        ("http://a.example:443/", "ok"),
        ("https://a.example:8443/", "PORT_NOT_ALLOWED"),
    ],
)
def test_only_the_ports_of_a_rule(url, expected):
    assert verdict(HostRule("a.example"), url=url) == expected


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "TRACK", "get", "G ET", "GET\r\n", "", "É"])
def test_some_methods_are_never_allowed(method):
    assert verdict(HostRule("a.example"), method=method) == "METHOD_NOT_ALLOWED"


def test_only_the_methods_of_a_rule():
    rule = HostRule("a.example", methods=("GET", "HEAD"))
    assert [verdict(rule, method=one) for one in ("GET", "HEAD", "POST")] == [
        "ok",
        "ok",
        "METHOD_NOT_ALLOWED",
    ]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1", True), ("/v1/", True), ("/v1/a", True), ("/v1?x=/../y", True), ("/v1/a;b", True),
        ("/v1/%C3%BC", True), ("/v1/%61", True), ("/v1//a", True), ("/v1/...a", True),
        ("/v1/a..b", True), ("/v1/;a", True),
        ("/", False), ("/v", False), ("/v10", False), ("/V1", False), ("//v1", False),
        ("/%761", False), ("/v1/../x", False), ("/v1/./x", False), ("/v1/..", False),
        ("/v1/.", False), ("/v1/...", False), ("/v1/..;/x", False), ("/v1/..;a=b/x", False),
        ("/v1/.;/x", False), ("/v1/%2e%2e/x", False), ("/v1/%2E./x", False), ("/v1/..%2fx", False),
        ("/v1/..%5cx", False), ("/v1%2fx", False), ("/v1/%252e%252e/x", False), ("/v1/%25", False),
        ("/v1/%00", False), ("/v1/%0a", False), ("/v1/%7f", False), ("/v1/%", False),
        ("/v1/%2", False), ("/v1/%zz", False), ("/v1/%c0%ae%c0%ae/x", False), ("/v1/%ff", False),
        ("/v1/%ed%a0%80", False), ("/v1/%ef%bc%8e%ef%bc%8e/x", False), ("/v1/%e2%80%a4", False),
        ("/v1/%ef%bc%8f", False), ("/v1/..%3b/x", False), ("/v1/..%20/x", False),
        ("/v1/%20../x", False),
    ],
)  # fmt: skip
def test_a_path_matches_on_the_border_of_a_segment_and_has_one_reading(path, allowed):
    rule = HostRule("a.example", paths=("/v1",))
    expected = "ok" if allowed else "PATH_NOT_ALLOWED"
    assert verdict(rule, url=f"https://a.example{path}") == expected


def test_a_prefix_with_a_slash_wants_it():
    rule = HostRule("a.example", paths=("/v1/",))
    assert verdict(rule, url="https://a.example/v1/x") == "ok"
    assert verdict(rule, url="https://a.example/v1") == "PATH_NOT_ALLOWED"
    assert verdict(HostRule("a.example", paths=("/",)), url="https://a.example/x") == "ok"


def test_without_prefixes_a_path_may_look_as_it_likes():
    assert verdict(HostRule("a.example"), url="https://a.example/a%2Fb/../%2e") == "ok"


def test_the_most_exact_host_decides_alone():
    wide, narrow = HostRule("*"), HostRule("a.example", methods=("GET",))
    suffix = HostRule("*.example", ports=(8080,))
    for rules in ((wide, narrow, suffix), (suffix, narrow, wide)):
        assert verdict(*rules, method="POST") == "METHOD_NOT_ALLOWED"
        assert verdict(*rules, url="https://a.example:8080/") == "PORT_NOT_ALLOWED"
        assert verdict(*rules, url="https://b.example/") == "PORT_NOT_ALLOWED"
        assert verdict(*rules, url="https://other.net/", method="POST") == "ok"


def test_rules_for_one_host_add_up():
    rules = (
        HostRule("a.example", methods=("GET",)),
        HostRule("a.example", methods=("POST",), paths=("/in",)),
        HostRule("a.example", ports=(8080,), methods=("PUT",)),
    )
    assert verdict(*rules, url="https://a.example/x") == "ok"
    assert verdict(*rules, url="https://a.example/in", method="POST") == "ok"
    assert verdict(*rules, url="https://a.example/x", method="POST") == "PATH_NOT_ALLOWED"
    assert verdict(*rules, url="https://a.example/x", method="PUT") == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize(
    "parts",
    [{"methods": ("GET",)}, {"paths": ("/v1",)}, {"headers": (("X-Key", "secret"),)}],
)
def test_no_tunnel_leads_where_each_request_must_be_seen(parts):
    assert tunnel(HostRule("a.example", **parts)) == "TUNNEL_NOT_ALLOWED"
    assert tunnel(HostRule("a.example", **parts), HostRule("*")) == "TUNNEL_NOT_ALLOWED"
    assert tunnel(HostRule("a.example"), HostRule("a.example", **parts)) == "TUNNEL_NOT_ALLOWED"


def test_a_tunnel_to_an_open_host_is_let_through_but_not_for_plain_http():
    assert tunnel(HostRule("a.example")) == "ok"
    assert tunnel(HostRule("a.example"), to="a.example:80") == "TUNNEL_NOT_ALLOWED"
    assert tunnel(HostRule("a.example"), to="a.example:22") == "PORT_NOT_ALLOWED"
    assert tunnel(HostRule("a.example"), to="b.example:443") == "HOST_NOT_ALLOWED"


@pytest.mark.parametrize(
    "rule",
    [
        HostRule(""), HostRule("*."), HostRule("**"), HostRule("*a.example"), HostRule("a.*"),
        HostRule("*.*.a"), HostRule("a b"), HostRule("http://a"), HostRule("a:443"),
        HostRule("a/b"), HostRule("127.1"), HostRule("*.1.2.3.4"), HostRule("*.127.1"),
        HostRule("10.0.0.0/8"), HostRule("::1%lo"), HostRule("a_b"), HostRule("ＡＢ.example"),
        HostRule("a", ports=()), HostRule("a", ports=(0,)), HostRule("a", ports=(65536,)),
        HostRule("a", methods=("get",)), HostRule("a", methods=("TRACE",)),
        HostRule("a", methods=("CONNECT",)), HostRule("a", methods=("",)),
        HostRule("a", paths=("v1",)), HostRule("a", paths=("/v1?x",)), HostRule("a", paths=("",)),
        HostRule("a", paths=("/a/../b",)), HostRule("a", paths=("/%2e",)),
        HostRule("a", paths=("/ü",)),
        HostRule("a", paths=("/a#b",)), HostRule("a", paths=("/a\n",)),
        HostRule("a", headers=(("Host", "b"),)), HostRule("a", headers=(("content-length", "1"),)),
        HostRule("a", headers=(("A:", "b"),)), HostRule("a", headers=(("", "b"),)),
        HostRule("a", headers=(("A", "b\r\nC: d"),)), HostRule("a", headers=(("A", " b"),)),
        HostRule("a", headers=(("A", "ü"),)), HostRule("a", headers=(("A", "b" * 9000),)),
        HostRule("a", headers=(("A", "b"),) * 33),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_meant_is_refused(rule):
    with pytest.raises(SpecInvalid) as caught:
        Rules(EgressPolicy((rule,)))
    assert "C: d" not in str(caught.value)


def test_a_policy_has_a_bounded_number_of_rules():
    Rules(EgressPolicy((HostRule("a"),) * MOST_RULES))
    with pytest.raises(SpecInvalid):
        Rules(EgressPolicy((HostRule("a"),) * (MOST_RULES + 1)))


def test_no_plain_path_can_climb_out_of_its_prefix():
    """A server may unescape, fold, cut parameters and resolve dots, in this order."""
    chance = random.Random(20261122)
    pieces = ["/", "..", ".", ";", "%2e", "%2f", "%25", "%c0%ae", "a", "v1", "\\", "%5c", " ", "//"]
    pieces += [quote("．"), quote("／"), "%3b", "%20", "%00"]
    until, plain = time.monotonic() + 0.5, 0
    while time.monotonic() < until:
        path = "/v1/" + "".join(chance.choices(pieces, k=chance.randrange(8)))
        if grammar.is_plain(path) and grammar.has_prefix(path, "/v1"):
            plain += 1
            assert _as_a_sloppy_server_reads_it(path)[:1] == ["v1"], path
    assert plain > 100


def _as_a_sloppy_server_reads_it(path: str) -> list[str]:
    text = normalize("NFKC", unquote(unquote(path))).replace("\\", "/")
    segments: list[str] = []
    for segment in text.split("/"):
        name = segment.partition(";")[0].rstrip(" ")
        if name == "..":
            del segments[-1:]
        elif name not in {"", "."}:
            segments.append(name)
    return segments
