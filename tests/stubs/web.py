"""A web server of our own on loopback that answers as a test wants it, also wrongly.

    with serving() as web:
        web.replies["/moved"] = Reply(302, [("Location", "/here")])
        ...
        assert web.seen[0].headers["host"] == web.authority

With an `Authority` it speaks TLS under any name the authority has written a certificate for.
"""

import datetime
import gzip
import ipaddress
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

type Headers = list[tuple[str, str]]
type Answer = "Reply | Raw | Callable[[Seen], Reply | Raw]"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """A body that is not bytes goes out piece by piece, chunked."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    body: bytes | Iterable[bytes] = b""


@dataclass(frozen=True)
class Raw:
    """Exactly these bytes, then the end of the connection."""

    pieces: Iterable[bytes]


class Web:
    """`replies` by path; every request and its connection are noted before it is answered."""

    def __init__(self, address: str, secured: ssl.SSLContext | None) -> None:
        self.replies: dict[str, Answer] = {}
        self.seen: list[Seen] = []
        self.connections = 0
        self.arrived = threading.Semaphore(0)
        self.hung_up = threading.Semaphore(0)
        self._secured = secured
        self.server = _Server((address, 0), self)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def authority(self) -> str:
        return f"{self.server.server_address[0]}:{self.port}"

    def url(self, path: str = "/", *, host: str = "") -> str:
        scheme = "https" if self._secured else "http"
        return f"{scheme}://{host or self.server.server_address[0]}:{self.port}{path}"

    def received(self) -> None:
        """Wait until one more request has come."""
        assert self.arrived.acquire(timeout=10), "no request came"

    def lost(self) -> None:
        """Wait until a connection broke while it was being answered."""
        assert self.hung_up.acquire(timeout=10), "no connection broke"

    def dress(self, channel: socket.socket) -> socket.socket:
        if self._secured is None:
            return channel
        return self._secured.wrap_socket(channel, server_side=True, do_handshake_on_connect=False)

    def answer(self, seen: Seen) -> Reply | Raw:
        self.seen.append(seen)
        self.arrived.release()
        found = self.replies.get(seen.target.partition("?")[0], Reply(404))
        return found(seen) if callable(found) else found


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, place: tuple[str, int], web: Web) -> None:
        self.web = web
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        super().__init__(place, _Handler)

    def get_request(self) -> tuple[Any, Any]:
        channel, place = super().get_request()
        self.web.connections += 1
        return self.web.dress(channel), place

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is what many tests are about."""
        self.web.hung_up.release()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            self._reply(self.server.web.answer(self._read_request()))

    def _read_request(self) -> Seen:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = b"".join(self._chunks()) if "transfer-encoding" in headers else b""
        body += self.rfile.read(int(headers.get("content-length", "0")))
        return Seen(self.command, self.path, headers, body)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _reply(self, reply: Reply | Raw) -> None:
        if isinstance(reply, Raw):
            self.close_connection = True
            for piece in reply.pieces:
                self.wfile.write(piece)
            return
        pieces = not isinstance(reply.body, bytes)
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        framing = ("Transfer-Encoding", "chunked") if pieces else ("Content-Length", _size(reply))
        self.send_header(*framing)
        self.end_headers()
        self._write(reply.body)

    def _write(self, body: bytes | Iterable[bytes]) -> None:
        if isinstance(body, bytes):
            self.wfile.write(b"" if self.command == "HEAD" else body)
            return
        for piece in body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Tests look at `seen`."""


def _size(reply: Reply) -> str:
    return str(len(reply.body)) if isinstance(reply.body, bytes) else ""


@contextmanager
def serving(authority: "Authority | None" = None, *, address: str = "127.0.0.1") -> Iterator[Web]:
    web = Web(address, authority.server_context() if authority else None)
    thread = threading.Thread(target=web.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.server.shutdown()
        thread.join()
        web.server.server_close()


def zipped(body: bytes) -> Reply:
    return Reply(headers=[("Content-Encoding", "gzip")], body=gzip.compress(body))


def endless(piece: bytes = b"x" * 65536) -> Reply:
    return Reply(body=itertools.repeat(piece))


class Held:
    """A reply that waits until the test lets it go."""

    def __init__(self, reply: Reply) -> None:
        self._reply, self._go = reply, threading.Event()

    def __call__(self, seen: Seen) -> Reply:
        assert self._go.wait(30), "nobody let the reply go"
        return self._reply

    def let_go(self) -> None:
        self._go.set()


class Authority:
    """A certificate authority that lives in a directory for the length of a test."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(self._key.public_key(), "Test authority", ())
        self.file = self._write("authority.pem", self._certificate)
        key = ec.generate_private_key(ec.SECP256R1())
        self._leaf = self._write("leaf.pem", self._signed(key.public_key(), "leaf", names), key)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._leaf)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def _signed(
        self, key: ec.EllipticCurvePublicKey, name: str, names: tuple[str, ...]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_called(name))
            .issuer_name(_called("Test authority"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(one) for one in names])
            builder = builder.add_extension(alternatives, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(
        self,
        name: str,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> str:
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        if key is not None:
            pem += key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        path = self._directory / name
        path.write_bytes(pem)
        return str(path)


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
