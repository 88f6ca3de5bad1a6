"""The first door, as a tool uses it: `sandbox_http` against a web server on loopback."""

import gzip
import threading
import zlib
from ipaddress import ip_network

import pytest

from sandbox.egress.rules import addresses
from sandbox.egress.rules.egress_policy import HostRule
from sandbox.inside import sandbox_http
from tests.sandbox.egress.conftest import NAME, placed, python, refused
from tests.stubs.web import Held, Raw, Reply, endless, serving, zipped


def test_an_allowed_host_answers_under_its_name(place, web, rule):
    web.replies["/a"] = Reply(201, [("X-Kind", "plain")], b"hello")
    with place.run(rule(web)) as visit:
        answer = sandbox_http.get(web.url("/a?b=c#d", host=NAME))
        assert (answer.status, answer.body, answer.headers["x-kind"]) == (201, b"hello", "plain")
        attempt = visit.only_attempt()
    assert (web.seen[0].target, web.seen[0].headers["host"]) == ("/a?b=c", f"{NAME}:{web.port}")
    assert (attempt.door, attempt.method, attempt.host) == ("helper", "GET", NAME)
    assert (attempt.address, attempt.code, attempt.status) == ("127.0.0.1", "", 201)
    assert attempt.bytes_received > 5 and attempt.bytes_sent > 50


def test_https_is_spoken_by_the_broker_with_the_operators_authority(place, secure_web, rule):
    secure_web.replies["/"] = Reply(body=b"secret")
    with place.run(rule(secure_web)):
        assert sandbox_http.get(secure_web.url(host=NAME)).body == b"secret"


def test_a_certificate_for_another_name_is_refused(place, secure_web):
    place.names.answers["other.example"] = [["127.0.0.1"]]
    with place.run(HostRule("other.example", ports=(secure_web.port,))):
        error = refused("TLS_FAILED", secure_web.url(host="other.example"))
    assert "certificate" in error.message
    assert secure_web.seen == []


def test_plain_http_behind_an_https_url_is_refused(place, web, rule):
    with place.run(rule(web)):
        refused("TLS_FAILED", web.url(host=NAME).replace("http:", "https:"))


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    ("code", "url"),
    [
        ("HOST_NOT_ALLOWED", "http://evil.example:{port}/"),
        ("HOST_NOT_ALLOWED", "http://sub.good.example:{port}/"),
        ("HOST_NOT_ALLOWED", "http://127.0.0.1:{port}/"),
        ("HOST_INVALID", "http://evil.example\0.good.example:{port}/"),
        ("HOST_INVALID", "http://127.1:{port}/"),
        ("HOST_INVALID", "http://user:pass@good.example:{port}/"),
        ("HOST_INVALID", "http://good.example:{port}@evil.example/"),
        ("HOST_INVALID", "http://good.example\\@evil.example:{port}/"),
        ("HOST_INVALID", "http://\ud800.example:{port}/"),
        ("REQUEST_INVALID", "gopher://good.example:{port}/"),
        ("PORT_NOT_ALLOWED", "http://good.example:1/"),
    ],
)
def test_what_is_not_allowed_never_leaves_and_is_written_down(place, web, rule, code, url):
    with place.run(rule(web)) as visit:
        refused(code, url.format(port=web.port))
        tally = visit.tally()
    assert (tally.requests, tally.refused, tally.attempts[0].code) == (1, 1, code)
    assert "pass" not in tally.attempts[0].host and "\0" not in tally.attempts[0].host
    assert web.connections == 0
    assert place.names.asked == []


def test_a_refused_method_path_or_header_never_leaves(place, web, rule):
    with place.run(rule(web, methods=("GET",), paths=("/v1",))):
        refused("METHOD_NOT_ALLOWED", "POST", web.url("/v1", host=NAME))
        refused("METHOD_NOT_ALLOWED", "TRACE", web.url("/v1", host=NAME))
        refused("PATH_NOT_ALLOWED", web.url("/v1/../admin", host=NAME))
        refused("PATH_NOT_ALLOWED", web.url("/v10", host=NAME))
        refused("REQUEST_INVALID", web.url("/v1", host=NAME), headers={"x\r\ny": "z"})
        refused("REQUEST_INVALID", web.url("/v1", host=NAME), headers={"x": "y\r\nz: 1"})
    assert web.seen == []


def test_a_name_without_an_address_and_one_at_a_private_address(place, web):
    place.names.answers["inside.example"] = [["10.0.0.5", "169.254.169.254"]]
    with place.run(HostRule("*", ports=(web.port,))):
        refused("NAME_NOT_RESOLVED", web.url(host="nobody.example"))
        error = refused("ADDRESS_NOT_ALLOWED", web.url(host="inside.example"))
    assert "10.0.0.5" not in error.message


def test_the_bad_ones_of_several_addresses_are_left_out(place, web, rule):
    place.names.answers[NAME] = [["10.0.0.5", "::1", "127.0.0.1"]]
    web.replies["/"] = Reply(body=b"reached")
    with place.run(rule(web)) as visit:
        assert sandbox_http.get(web.url(host=NAME)).body == b"reached"
        assert visit.only_attempt().address == "127.0.0.1"


def test_an_address_listed_by_a_rule_is_reached_in_its_one_spelling():
    opened = (ip_network("::1/128"),)
    with serving(address="::1") as web, placed(opened=opened) as place:
        web.replies["/"] = Reply(body=b"six")
        with place.run(HostRule("::1", ports=(web.port,))):
            assert sandbox_http.get(f"http://[::1]:{web.port}/").body == b"six"
            refused("HOST_INVALID", f"http://[0::1]:{web.port}/")
    assert web.seen[0].headers["host"] == f"[::1]:{web.port}"


def test_a_name_is_asked_for_once_so_that_it_cannot_change_its_mind(place, web, rule):
    place.names.answers[NAME] = [["127.0.0.1"], ["10.0.0.5"]]
    web.replies["/"] = Reply(body=b"first")
    with place.run(rule(web)):
        assert sandbox_http.get(web.url(host=NAME)).body == b"first"
        assert place.names.asked == [NAME]
        refused("ADDRESS_NOT_ALLOWED", web.url(host=NAME))
    assert place.names.asked == [NAME, NAME]


def test_a_closed_port_is_a_failed_connection(place, rule):
    with serving() as gone:
        port, url = rule(gone), gone.url(host=NAME)
    with place.run(port):
        refused("CONNECT_FAILED", url)


def test_a_credential_goes_out_and_takes_the_place_of_the_tools_own(place, secure_web, rule):
    secure_web.replies["/"] = Reply(body=b"ok")
    with place.run(rule(secure_web, headers=(("Authorization", "Bearer real"),))):
        url = secure_web.url(host=NAME)
        answer = sandbox_http.get(url, headers={"authorization": "Bearer mine"})
    assert secure_web.seen[0].headers["authorization"] == "Bearer real"
    assert "real" not in str(answer)


def test_no_look_alike_of_a_credential_or_of_framing_gets_through(place, web, rule):
    web.replies["/"] = Reply()
    mine = {"X_Key": "mine", "Transfer_Encoding": "chunked", "X_Other": "1"}
    with place.run(rule(web, headers=(("X-Key", "real"),))):
        sandbox_http.get(web.url(host=NAME), headers=mine)
    seen = web.seen[0].headers
    assert (seen["x-key"], seen["x_other"]) == ("real", "1")
    assert not {"x_key", "transfer_encoding"} & seen.keys()


def test_a_credential_is_not_sent_over_plain_http_to_a_public_address(monkeypatch, web, rule):
    """Loopback stands for the public internet here: it is let through, but was not opened."""
    monkeypatch.setattr(addresses, "special", lambda address: "")
    monkeypatch.setattr(addresses, "is_own_address", lambda address: False)
    web.replies["/"] = Reply()
    with placed(opened=()) as place, place.run(rule(web, headers=(("X-Key", "real"),))):
        assert sandbox_http.get(web.url(host=NAME), headers={"x-key": "mine"}).status == 200
    assert web.seen[0].headers["x-key"] == "mine"


def test_headers_of_the_connection_and_a_foreign_host_do_not_get_through(place, web, rule):
    web.replies["/"] = Reply(headers=[("Keep-Alive", "9"), ("Connection", "X-Hop"), ("X-Hop", "1")])
    sent = {"Host": "evil.example", "Upgrade": "websocket", "Connection": "x-mine", "X-Mine": "1"}
    with place.run(rule(web)):
        answer = sandbox_http.get(web.url(host=NAME), headers=sent)
    seen = web.seen[0].headers
    assert (seen["host"], seen["connection"]) == (f"{NAME}:{web.port}", "close")
    assert not {"upgrade", "x-mine"} & seen.keys()
    assert not {"keep-alive", "connection", "x-hop"} & answer.headers.keys()


def test_a_redirect_is_followed_only_when_asked_for(place, web, rule):
    web.replies["/"] = Reply(302, [("Location", "/next")])
    web.replies["/next"] = Reply(body=b"there")
    with place.run(rule(web)) as visit:
        url = web.url(host=NAME)
        assert sandbox_http.get(url).status == 302
        answer = sandbox_http.get(url, redirects=1)
        assert (answer.body, answer.url) == (b"there", web.url("/next", host=NAME))
        assert visit.tally().requests == 3


def test_a_redirect_off_the_list_is_refused(place, web, rule):
    web.replies["/"] = Reply(302, [("Location", "http://169.254.169.254/latest")])
    with place.run(rule(web)) as visit:
        refused("HOST_NOT_ALLOWED", web.url(host=NAME), redirects=5)
        assert [one.code for one in visit.tally().attempts] == ["", "HOST_NOT_ALLOWED"]


def test_a_circle_of_redirects_ends(place, web, rule):
    web.replies["/"] = Reply(302, [("Location", "/")])
    with place.run(rule(web)):
        refused("TOO_MANY_REDIRECTS", web.url(host=NAME), redirects=3)
    assert len(web.seen) == 4


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [(303, "POST", ("GET", b"")), (302, "POST", ("GET", b"")), (307, "POST", ("POST", b"text"))],
)
def test_a_redirect_keeps_or_changes_the_method_as_its_status_says(
    place, web, rule, status, method, then
):
    web.replies["/"] = Reply(status, [("Location", "/next")])
    with place.run(rule(web)):
        sandbox_http.request(method, web.url(host=NAME), body=b"text", redirects=1)
    assert (web.seen[1].method, web.seen[1].body) == then


def test_neither_credential_nor_authorization_follow_to_another_host(place, web, rule):
    place.names.answers["other.example"] = [["127.0.0.1"]]
    web.replies["/"] = Reply(302, [("Location", web.url("/next", host="other.example"))])
    rules = (
        rule(web, headers=(("X-Key", "real"),)),
        HostRule("other.example", ports=(web.port,)),
    )
    mine = {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Other": "kept"}
    with place.run(*rules):
        sandbox_http.get(web.url(host=NAME), headers=mine, redirects=1)
    first, second = (seen.headers for seen in web.seen)
    assert (first["x-key"], first["authorization"]) == ("real", "Bearer mine")
    assert not {"x-key", "authorization", "cookie"} & second.keys()
    assert second["x-other"] == "kept"


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_a_body_arrives_as_it_was_sent(place, web, rule, size):
    web.replies["/"] = lambda seen: Reply(body=b"%d" % len(seen.body))
    with place.run(rule(web)):
        answer = sandbox_http.request("POST", web.url(host=NAME), body=b"b" * size)
    assert answer.body == b"%d" % size


def test_packed_bodies_are_unpacked(place, web, rule):
    text = b"tool " * 5000
    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "/gzip": zipped(text),
        "/twice": Reply(
            headers=[("Content-Encoding", "x-gzip")], body=gzip.compress(text[:9], mtime=0) * 2
        ),
        "/zlib": Reply(headers=[("Content-Encoding", "deflate")], body=zlib.compress(text)),
        "/raw": Reply(
            headers=[("Content-Encoding", "deflate")], body=raw.compress(text) + raw.flush()
        ),
    }
    web.replies.update(bodies)
    with place.run(rule(web)):
        found = {path: sandbox_http.get(web.url(path, host=NAME)).body for path in bodies}
    assert found == {"/gzip": text, "/twice": text[:9] * 2, "/zlib": text, "/raw": text}


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"cut off" * 1000, mtime=0)[:-9]])
def test_a_body_that_is_not_packed_as_it_says_is_refused(place, web, rule, body):
    web.replies["/"] = Reply(headers=[("Content-Encoding", "gzip")], body=body)
    with place.run(rule(web)):
        refused("RESPONSE_INVALID", web.url(host=NAME))


def test_a_bomb_is_noticed_before_it_is_large(place, web, rule):
    web.replies["/"] = zipped(b"\0" * 40_000_000)
    with place.run(rule(web)):
        error = refused("TOO_LARGE", web.url(host=NAME))
        assert "times" in error.message
        web.replies["/"] = Reply(body=b"x" * 2000)
        refused("TOO_LARGE", web.url(host=NAME), max_bytes=1999)
        assert len(sandbox_http.get(web.url(host=NAME), max_bytes=2000).body) == 2000


def test_an_endless_answer_ends_at_the_runs_limit(place, web, rule):
    web.replies["/"] = endless()
    with place.run(rule(web), response_bytes=1_000_000) as visit:
        refused("TOO_LARGE", web.url(host=NAME))
        web.lost()
        assert visit.only_attempt().bytes_received < 1_100_000
        refused("EGRESS_UNAVAILABLE", web.url(host=NAME))


def test_the_limits_are_sums_over_the_run(place, web, rule):
    web.replies["/"] = Reply(body=b"x" * 600)
    with place.run(rule(web), response_bytes=1000):
        assert sandbox_http.get(web.url(host=NAME)).status == 200
        refused("TOO_LARGE", web.url(host=NAME))
    with place.run(rule(web), request_bytes=100_000):
        refused("TOO_LARGE", "PUT", web.url(host=NAME), body=b"x" * 100_000)


def test_the_number_of_requests_is_limited_and_refused_ones_count(place, web, rule):
    web.replies["/"] = Reply()
    with place.run(rule(web), requests=3) as visit:
        refused("HOST_NOT_ALLOWED", "http://evil.example/")
        for _ in range(2):
            assert sandbox_http.get(web.url(host=NAME)).status == 200
        for _ in range(5):
            refused("REQUEST_LIMIT", web.url(host=NAME))
        tally = visit.tally()
    assert (tally.requests, tally.refused, len(web.seen)) == (8, 6, 2)
    assert tally.attempts[-1].host == NAME


def test_all_attempts_are_counted_and_the_first_200_described(place):
    with place.run(requests=1000) as visit:
        for _ in range(250):
            refused("HOST_NOT_ALLOWED", "http://evil.example/")
        tally = visit.tally()
    assert (tally.requests, tally.refused, len(tally.attempts)) == (250, 250, 200)


def test_threads_share_the_door(place, web, rule):
    web.replies["/"] = lambda seen: Reply(body=seen.target.encode() * 20_000)
    bodies = {}

    def fetch(number):
        url = web.url(f"/?{number}", host=NAME)
        bodies[number] = sandbox_http.request("POST", url, body=b"u" * 200_000).body

    with place.run(rule(web)) as visit:
        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert visit.tally().refused == 0
    assert bodies == {number: b"/?%d" % number * 20_000 for number in range(8)}


def test_too_many_at_a_time_are_refused(place, web, rule):
    held = web.replies["/"] = Held(Reply(body=b"late"))
    answers = []
    with place.run(rule(web), connections=1) as visit:
        url = web.url(host=NAME)
        waiting = threading.Thread(target=lambda: answers.append(sandbox_http.get(url).body))
        waiting.start()
        web.received()
        refused("CONNECTION_LIMIT", url)
        held.let_go()
        waiting.join()
        assert visit.tally().refused == 1
    assert answers == [b"late"]


def test_a_request_ends_in_the_time_of_the_run_or_its_own(place, web, rule):
    held = web.replies["/"] = Held(Reply())
    with place.run(rule(web), request_s=0.05):
        refused("TIMEOUT", web.url(host=NAME), timeout_s=20)
    with place.run(rule(web)):
        refused("TIMEOUT", web.url(host=NAME), timeout_s=0.05)
    held.let_go()


def test_a_resolver_that_hangs_does_not_hold_up_the_run(place, web, rule):
    place.names.hold.clear()
    with place.run(rule(web), request_s=0.05):
        refused("TIMEOUT", web.url(host=NAME))
    place.names.hold.set()


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut off",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"",
    ],
)
def test_an_answer_with_two_readings_or_none_is_refused(place, web, rule, raw):
    web.replies["/"] = Raw([raw])
    with place.run(rule(web)):
        refused("RESPONSE_INVALID", web.url(host=NAME))


def test_an_answer_in_crumbs_is_whole(place, web, rule):
    web.replies["/"] = Reply(body=[b"a"] * 20_000)
    with place.run(rule(web)):
        assert sandbox_http.get(web.url(host=NAME)).body == b"a" * 20_000


def test_cookies_stay_apart_and_other_headers_are_joined(place, web, rule):
    cookies = [("Set-Cookie", "a=1; Expires=Mon, 1 Jan"), ("Set-Cookie", "b=2")]
    web.replies["/"] = Reply(headers=[*cookies, ("Vary", "a"), ("Vary", "b")])
    with place.run(rule(web)):
        headers = sandbox_http.get(web.url(host=NAME)).headers
    assert headers["set-cookie"].splitlines() == ["a=1; Expires=Mon, 1 Jan", "b=2"]
    assert headers["vary"] == "a, b"


def test_letters_of_other_alphabets_are_written_as_urls_have_them(place, web, rule):
    place.names.answers["xn--bcher-kva.example"] = [["127.0.0.1"]]
    with place.run(HostRule("bücher.example", ports=(web.port,))):
        sandbox_http.get(web.url("/grün?q=a b", host="bücher.example"))
    assert web.seen[0].target == "/gr%C3%BCn?q=a%20b"
    assert web.seen[0].headers["host"] == f"xn--bcher-kva.example:{web.port}"


def test_without_a_door_there_is_no_network():
    code = """
from sandbox.inside import sandbox_http
try:
    sandbox_http.get("http://good.example/")
except sandbox_http.EgressError as error:
    print(error.code)
"""
    assert python("-c", code).stdout == "NETWORK_OFF\n"


SANDBOX = pytest.mark.part("sandbox")


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"x": 1}},
        {"timeout_s": 0},
        pytest.param({"timeout_s": -1}, marks=SANDBOX),
        pytest.param({"timeout_s": float("nan")}, marks=SANDBOX),
        {"timeout_s": float("inf")},
        pytest.param({"timeout_s": 1e12}, marks=SANDBOX),
    ],
)
def test_what_cannot_be_asked_is_the_tools_own_mistake(place, web, rule, wrong):
    with place.run(rule(web)):
        refused("REQUEST_INVALID", web.url(host=NAME), **wrong)
        assert sandbox_http.get(web.url(host=NAME)).status == 404
