"""CONNECT: a tunnel to exactly the host that was asked for."""

import contextlib
import socket
import ssl
import threading

import pytest

from sandbox.egress.entry_points import tunnel as tunnels
from sandbox.egress.rules.egress_policy import HostRule
from tests.sandbox.egress.conftest import NAME
from tests.sandbox.egress.test_hello import client_hello, server_name
from tests.stubs.web import Reply


def connect(visit, target):
    """A socket that has asked for a tunnel, and the first line of the answer."""
    client = visit.knock()
    client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return client, read_head(client)


def read_head(client: socket.socket) -> str:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = client.recv(1)
        assert byte, head
        head += byte
    return head.decode()


@pytest.fixture
def tls_everywhere(monkeypatch, secure_web):
    """Our server's port counts as one of TLS."""
    monkeypatch.setattr("sandbox.egress.entry_points.proxy.TLS_PORTS", {secure_web.port})


def client_context(authority, **changes):
    context = ssl.create_default_context(cafile=authority.file)
    context.verify_flags = ssl.VerifyFlags.VERIFY_DEFAULT
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def fetch(context, client, *, name=NAME):
    with context.wrap_socket(client, server_hostname=name) as secured:
        secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: secured.recv(65536), b""))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.usefixtures("tls_everywhere")
def test_tls_through_a_tunnel_is_the_programs_own(place, secure_web, rule, authority, version):
    secure_web.replies["/"] = Reply(body=b"through")
    with place.run(rule(secure_web)) as visit:
        client, head = connect(visit, f"{NAME}:{secure_web.port}")
        answer = fetch(client_context(authority, maximum_version=version), client)
        attempt = visit.only_attempt()
    assert head.startswith("HTTP/1.1 200 ")
    assert answer.endswith(b"through")
    assert (attempt.door, attempt.method, attempt.host) == ("tunnel", "CONNECT", NAME)
    assert attempt.bytes_sent > 200 and attempt.bytes_received > 200


@pytest.mark.usefixtures("tls_everywhere")
def test_a_server_may_ask_for_a_second_hello(place, secure_web, rule, authority):
    """The client offers a key for another curve than the server wants first."""
    secure_web._secured.set_ecdh_curve("secp384r1")
    secure_web.replies["/"] = Reply(body=b"through")
    with place.run(rule(secure_web)) as visit:
        client, _ = connect(visit, f"{NAME}:{secure_web.port}")
        assert fetch(client_context(authority), client).endswith(b"through")


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    "first_words",
    [
        client_hello(server_name(b"evil.example")),
        client_hello(server_name(NAME.encode()), server_name(b"evil.example")),
        client_hello(),
        client_hello(server_name(NAME.encode())) [:-1] + b"\0",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x14\x03\x03\0\x01\x01",
        b"",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("tls_everywhere")
def test_nothing_is_sent_before_tls_names_the_host(place, secure_web, rule, first_words):
    with place.run(rule(secure_web)) as visit:
        client, head = connect(visit, f"{NAME}:{secure_web.port}")
        with client, contextlib.suppress(OSError):
            client.sendall(first_words)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        attempt = visit.only_attempt()
    assert head.startswith("HTTP/1.1 200 ")
    assert (attempt.code, attempt.bytes_sent) == ("TUNNEL_NOT_ALLOWED", 0)
    assert secure_web.seen == []


class Retrying:
    """A server that answers any ClientHello with the request for another one."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        channel, _ = self.listener.accept()
        with self.listener, channel, contextlib.suppress(OSError):
            self.heard += channel.recv(65536)
            body = b"\x03\x03" + tunnels._RETRY_RANDOM + bytes(10)
            channel.sendall(b"\x16\x03\x03\0\x32\x02\0\0\x2c" + body + bytes(2))
            while data := channel.recv(65536):
                self.heard += data


@pytest.mark.parametrize(("second", "passes"), [(NAME.encode(), True), (b"evil.example", False)])
def test_the_second_hello_must_name_the_host_as_well(place, monkeypatch, second, passes):
    server = Retrying()
    monkeypatch.setattr("sandbox.egress.entry_points.proxy.TLS_PORTS", {server.port})
    with place.run(HostRule(NAME, ports=(server.port,))) as visit:
        client, _ = connect(visit, f"{NAME}:{server.port}")
        with client, contextlib.suppress(OSError):
            client.sendall(client_hello(server_name(NAME.encode())))
            assert client.recv(65536)[:1] == b"\x16"
            client.sendall(b"\x14\x03\x03\0\x01\x01" + client_hello(server_name(second)))
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        attempt = visit.only_attempt()
    server.thread.join()
    assert (second in server.heard) == passes
    assert attempt.code == ("" if passes else "TUNNEL_NOT_ALLOWED")


def test_a_tunnel_to_a_port_without_tls_carries_anything(place, web, rule):
    web.replies["/"] = Reply(body=b"plain")
    with place.run(rule(web)) as visit:
        client, _ = connect(visit, f"{NAME}:{web.port}")
        with client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: client.recv(65536), b"")).endswith(b"plain")


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("evil.example:443", 403, "HOST_NOT_ALLOWED"),
        (f"{NAME}:1", 403, "PORT_NOT_ALLOWED"),
        (f"{NAME}:80", 403, "TUNNEL_NOT_ALLOWED"),
        ("127.1:443", 400, "HOST_INVALID"),
        (NAME, 400, "HOST_INVALID"),
        (f"evil@{NAME}:443", 400, "HOST_INVALID"),
        ("[::ffff:127.0.0.1]:443", 400, "HOST_INVALID"),
        ("nobody.example:443", 502, "NAME_NOT_RESOLVED"),
        ("inside.example:443", 403, "ADDRESS_NOT_ALLOWED"),
    ],
)
def test_a_refused_tunnel_says_why(place, target, status, code):
    place.names.answers["inside.example"] = [["192.168.0.1"]]
    rules = (
        HostRule(NAME, ports=(80, 443)),
        HostRule("nobody.example"),
        HostRule("inside.example"),
    )
    with place.run(*rules) as visit:
        client, head = connect(visit, target)
        with client:
            answer = client.recv(4096)
        attempt = visit.only_attempt()
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert f"x-toolcrib-egress: {code}" in head.lower().replace(code.lower(), code)
    assert answer.startswith(code.encode())
    assert (attempt.code, attempt.method) == (code, "CONNECT")


def test_a_tunnel_counts_its_bytes_and_its_time(place, web, rule):
    with place.run(rule(web), response_bytes=1000, request_bytes=1000) as visit:
        client, _ = connect(visit, f"{NAME}:{web.port}")
        with client, contextlib.suppress(OSError):
            client.sendall(b"x" * 2000)
            assert client.recv(1) == b""
        assert visit.only_attempt().code == "TOO_LARGE"
    with place.run(rule(web), request_s=0.05) as visit:
        client, _ = connect(visit, f"{NAME}:{web.port}")
        with client, contextlib.suppress(OSError):
            assert client.recv(1) == b""
        assert visit.only_attempt().code == "TIMEOUT"
