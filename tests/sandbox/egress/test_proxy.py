"""The second door: what programs that know an HTTP proxy get from it."""

import contextlib
import http.client
import shutil
import socket
import subprocess
import threading

import pytest

from sandbox.inside import sandbox_http
from tests.sandbox.egress.conftest import NAME, refused
from tests.stubs.web import Held, Raw, Reply, endless


def program(visit) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", visit.proxy_port, timeout=10)


def exchange(visit, request: bytes) -> bytes:
    """All that comes back for these bytes."""
    with visit.knock() as client:
        client.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            return b"".join(iter(lambda: client.recv(65536), b""))
        return b"reset"


def test_a_program_gets_its_answers_one_after_the_other_on_one_connection(place, web, rule):
    web.replies["/a"] = Reply(body=b"first")
    web.replies["/b"] = Reply(body=[b"se", b"cond"])
    with place.run(rule(web)) as visit, contextlib.closing(program(visit)) as client:
        bodies = []
        for path in ("/a", "/b", "/a"):
            client.request("GET", web.url(path, host=NAME))
            bodies.append(client.getresponse().read())
        attempts = visit.tally().attempts
    assert bodies == [b"first", b"second", b"first"]
    assert [(one.door, one.host, one.status) for one in attempts] == [("proxy", NAME, 200)] * 3
    assert web.seen[0].headers["host"] == f"{NAME}:{web.port}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_finds_its_way(place, web, rule):
    web.replies["/up"] = lambda seen: Reply(body=b"%d" % len(seen.body))
    with place.run(rule(web)) as visit:
        proxy = {"http_proxy": f"http://127.0.0.1:{visit.proxy_port}"}
        words = ["curl", "-sS", "--data-binary", "@-", web.url("/up", host=NAME)]
        done = subprocess.run(
            words, env=proxy, input=b"x" * 1_500_000, capture_output=True, check=False
        )
    assert done.stdout == b"1500000", done.stderr


def test_a_chunked_body_goes_on_chunked(place, web, rule):
    web.replies["/"] = lambda seen: Reply(body=seen.body)
    with place.run(rule(web)) as visit, contextlib.closing(program(visit)) as client:
        client.request(
            "POST", web.url(host=NAME), body=iter([b"a" * 10, b"b"]), encode_chunked=True
        )
        assert client.getresponse().read() == b"a" * 10 + b"b"
    assert web.seen[0].headers["transfer-encoding"] == "chunked"


def test_a_body_in_crumbs_is_whole(place, web, rule):
    web.replies["/"] = lambda seen: Reply(body=b"%d" % len(seen.body))
    head = f"POST {web.url(host=NAME)} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    head += "Connection: close\r\n\r\n" + "1\r\na\r\n" * 20_000 + "0\r\n\r\n"
    with place.run(rule(web)) as visit:
        assert exchange(visit, head.encode()).endswith(b"20000")


def test_a_head_request_keeps_the_length_and_has_no_body(place, web, rule):
    web.replies["/"] = Reply(body=b"12345")
    with place.run(rule(web)) as visit, contextlib.closing(program(visit)) as client:
        client.request("HEAD", web.url(host=NAME))
        answer = client.getresponse()
        assert (answer.read(), answer.headers["content-length"]) == (b"", "5")


def test_a_client_of_the_old_protocol_is_served_until_the_end(place, web, rule):
    web.replies["/"] = Reply(body=[b"old"])
    with place.run(rule(web)) as visit:
        answer = exchange(visit, f"GET {web.url(host=NAME)} HTTP/1.0\r\n\r\n".encode())
    assert answer.endswith(b"\r\n\r\nold")


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("http://evil.example/", 403, "HOST_NOT_ALLOWED"),
        ("http://127.1/", 400, "HOST_INVALID"),
        ("http://good.example@evil.example/", 400, "HOST_INVALID"),
        ("/relative", 400, "REQUEST_INVALID"),
        ("*", 400, "REQUEST_INVALID"),
        ("ftp://good.example/", 400, "REQUEST_INVALID"),
        ("http://good.example:1/", 403, "PORT_NOT_ALLOWED"),
    ],
)
def test_a_refusal_says_why_and_is_written_down(place, web, rule, target, status, code):
    request = f"GET {target} HTTP/1.1\r\nHost: {NAME}:{web.port}\r\n\r\n"
    with place.run(rule(web)) as visit:
        answer = exchange(visit, request.encode())
        attempt = visit.only_attempt()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.partition(b"\r\n\r\n")[2].startswith(code.encode())
    assert (attempt.code, attempt.door) == (code, "proxy")
    assert web.connections == 0


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "head",
    [
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0"
        "\r\n\r\n",
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
        "POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET {url} HTTP/1.1\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n",
        "GET {url} HTTP/2.0\r\nPRI: x\r\n\r\n\r\n" "X" * 3,
        "GET  {url} HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET {url}\r\n\r\n",
        "\x16\x03\x01\0\x05hello\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n",
    ],
)  # fmt: skip
def test_an_ambiguous_request_reaches_no_server(place, web, rule, head):
    request = head.format(url=web.url(host=NAME), long="y" * 100_000)
    with place.run(rule(web)) as visit:
        answer = exchange(visit, request.encode("latin-1"))
        tally = visit.tally()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (tally.requests, tally.refused) == (1, 1)
    assert web.seen == []


def test_the_host_in_the_request_line_counts_and_no_other(place, web, rule):
    head = f"GET {web.url(host=NAME)} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n"
    head += "Proxy-Authorization: Basic c2VjcmV0\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n"
    with place.run(rule(web)) as visit:
        exchange(visit, head.encode())
    assert web.seen[0].headers["host"] == f"{NAME}:{web.port}"
    assert not {"proxy-authorization", "upgrade", "te"} & web.seen[0].headers.keys()


def test_a_second_request_hidden_in_a_body_stays_a_body(place, web, rule):
    hidden = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    head = f"POST {web.url(host=NAME)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += f"Content-Length: {len(hidden)}\r\n\r\n{hidden}"
    with place.run(rule(web)) as visit:
        exchange(visit, head.encode())
        assert visit.tally().requests == 1
    assert [seen.body for seen in web.seen] == [hidden.encode()]


def test_an_answer_that_breaks_off_is_noticed_by_the_program(place, web, rule):
    web.replies["/cut"] = Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"])
    web.replies["/big"] = endless()
    with place.run(rule(web), response_bytes=300_000) as visit:
        for path in ("/cut", "/big"):
            with contextlib.closing(program(visit)) as client:
                client.request("GET", web.url(path, host=NAME))
                with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                    client.getresponse().read()
        codes = [one.code for one in visit.tally().attempts]
    assert codes == ["RESPONSE_INVALID", "TOO_LARGE"]


def test_both_doors_share_one_limit(place, web, rule):
    held = web.replies["/"] = Held(Reply())
    with place.run(rule(web), connections=1) as visit:
        url = web.url(host=NAME)
        waiting = threading.Thread(target=lambda: sandbox_http.get(url))
        waiting.start()
        web.received()
        answer = exchange(visit, f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        held.let_go()
        waiting.join()
    assert answer.startswith(b"HTTP/1.1 429 ")


def test_a_program_that_connects_too_often_waits_in_the_kernel(place, web, rule):
    web.replies["/"] = Reply(body=b"served")
    with place.run(rule(web), connections=1) as visit, contextlib.ExitStack() as open_ones:
        idle = [open_ones.enter_context(visit.knock()) for _ in range(6)]
        for one in idle[:4]:
            one.close()
        url = web.url(host=NAME)
        idle[5].sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: idle[5].recv(65536), b""))
        assert answer.endswith(b"served")
        refused("HOST_NOT_ALLOWED", "http://evil.example/")


def test_a_flood_of_refused_connections_is_counted_to_the_last(place):
    with place.run(requests=5) as visit:
        for _ in range(30):
            exchange(visit, b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        tally = visit.tally()
    assert (tally.requests, tally.refused) == (30, 30)
    assert [one.code for one in tally.attempts].count("REQUEST_LIMIT") == 25


def test_a_program_that_says_nothing_is_hung_up_on(place, monkeypatch):
    monkeypatch.setattr("sandbox.egress.entry_points.proxy.IDLE_S", 0.05)
    with place.run() as visit, visit.knock() as client:
        client.sendall(b"GET http://good")
        assert client.recv(1) == b""


def test_the_proxy_is_shut_with_the_run(place):
    with place.run() as visit:
        visit.tally()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", visit.proxy_port), timeout=10)
