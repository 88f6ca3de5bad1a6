"""Services that a run may reach, in a process of their own.

A web server, and in the control a proxy that lets everything through.

`python -m tests.attacks.services CANARY SECRET [open]` says on which port the web server listens.
"""

import http.server
import posixpath
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import unquote

from tests.attacks.plain_http import address_of

WEB = "127.0.0.2"
PROXY = ("127.0.0.1", 3128)
# What names mean, to the broker's resolver and in the control's hosts file.
NAMES = {
    "good.example": WEB,
    "other.example": WEB,
    "sneaky.example": "127.0.0.1",
    "mapped.example": "::ffff:127.0.0.1",
    "newer.example": "::1",
    "inner.example": "10.0.0.1",
    "cloud.example": "169.254.169.254",
    "metadata.google.internal": "169.254.169.254",
    "localhost": "127.0.0.1",
    "good.example.sneaky.example": "127.0.0.1",
    "notgood.example": "127.0.0.1",
    "any.example": "0.0.0.0",
    "translated.example": "64:ff9b::7f00:1",
    "sixtofour.example": "2002:7f00:1::",
}


class Pages(http.server.BaseHTTPRequestHandler):
    """`/closed` is what no run may see: a request for it is a knock at the canary."""

    protocol_version = "HTTP/1.1"
    canary = 0
    secret = ""

    server: http.server.HTTPServer

    def __getattr__(self, name: str) -> Any:
        """Whatever the method is, the answer is the same."""
        if name.startswith("do_"):
            return self.visit
        raise AttributeError(name)

    def visit(self) -> None:
        place = posixpath.normpath(unquote(self.path).replace("\\", "/").partition("?")[0])
        page = place.replace(";", "").replace("//", "/")
        if page.endswith("/closed"):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.canary), 1).close()
        self._answer(page)

    def _answer(self, page: str) -> None:
        targets = {
            "/open/canary": f"http://127.0.0.1:{self.canary}/",
            "/open/sneaky": f"http://sneaky.example:{self.canary}/",
            "/open/odd": f"http://2130706433:{self.canary}/",
            "/open/relative": f"//127.0.0.1:{self.canary}/",
            "/open/file": "file:///etc/hostname",
            "/open/further": "/closed",
            "/open/other": f"http://other.example:{self.server.server_port}/echo",
        }
        if page in targets:
            return self._say(302, b"", ("Location", targets[page]))
        match page:
            case "/open/flood":
                return self._flood()
            case "/open/lines":
                return self._say(200, b"", *((f"X-{n}", "x" * 900) for n in range(200)))
            case "/closed":
                return self._say(200, self.secret.encode())
        lines = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        return self._say(200, lines.encode("latin-1", "replace") if page == "/echo" else b"ok")

    def _say(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _flood(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):
            for _ in range(512):
                self.wfile.write(b"x" * 65536)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """The log is not read."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Callers that hang up are what attacks are like."""


def serve_proxy(listener: socket.socket) -> NoReturn:
    while True:
        caller, _ = listener.accept()
        threading.Thread(target=_let_through, args=(caller,), daemon=True).start()


def _let_through(caller: socket.socket) -> None:
    """Whatever the first lines ask for, as trustingly as can be."""
    with caller, suppress(OSError, ValueError):
        requests = caller.recv(65536)
        for request in requests.replace(b"\r\n\r\n", b"\n\n").split(b"\n\n"):
            words = request.split()
            if len(words) > 1:
                _pass_on(caller, words, request)


def _pass_on(caller: socket.socket, words: list[bytes], request: bytes) -> None:
    target = words[1].decode("latin-1")
    if target.startswith("/"):
        target = request.partition(b"Host:")[2].split()[0].decode("latin-1")
    with socket.create_connection(address_of(target), 1) as other:
        if words[0] == b"CONNECT":
            caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            request = caller.recv(65536)
        other.sendall(request + b"\r\n\r\n")
        other.settimeout(0.2)
        caller.sendall(other.recv(65536))


def main(canary: str, secret: str, *more: str) -> NoReturn:
    Pages.canary, Pages.secret = int(canary), secret
    server = Server((WEB, 0), Pages)
    print(server.server_address[1], flush=True)
    if more:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        serve_proxy(socket.create_server(PROXY))
    server.serve_forever()
    raise SystemExit


if __name__ == "__main__":
    main(*sys.argv[1:])
