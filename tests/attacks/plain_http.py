"""What `sandbox_http` is without a sandbox: a client that takes every address as it is meant."""

import re
import socket
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urljoin

_AUTHORITY = re.compile(r"^(?:(?:[a-z][a-z0-9+.-]*:)?//)?([^/?#]*)(.*)$", re.IGNORECASE | re.DOTALL)
_AFTERWARDS_S = 0.03


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    location: str


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float = 1,
    redirects: int = 0,
    **_: object,
) -> Response:
    """Raises OSError."""
    credentials = {"Authorization": _CREDENTIALS[0]} if _CREDENTIALS else {}
    while True:
        answer = _once(method, url, {**credentials, **(headers or {})}, body, timeout_s)
        if not answer.location or not redirects:
            return answer
        url, redirects = urljoin(url, answer.location), redirects - 1


_CREDENTIALS: list[str] = []


def remember_credentials(secret: str) -> None:
    """For every request, wherever it goes."""
    _CREDENTIALS[:] = [secret]


def address_of(text: str) -> tuple[str, int]:
    """Host and port of a URL or an authority, whatever had to be undone to find them."""
    meant = unicodedata.normalize("NFKC", unquote(text)).replace("。", ".")
    found = _AUTHORITY.match(meant)
    assert found is not None
    authority = re.split(r"[\0\r\n\t ]", found[1].rpartition("@")[2].strip())[0]
    host, _, port = authority.rpartition(":")
    if not port.isdigit() or (authority.startswith("[") and authority.endswith("]")):
        host, port = authority, "80"
    return host.strip("[]").rstrip(".").partition("%")[0], int(port)


def _once(
    method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float
) -> Response:
    target = "/" + url.partition("://")[2].partition("/")[2]
    lines = [f"{method} {target} HTTP/1.1", "Host: somebody", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines) + "\r\n\r\n"
    with socket.create_connection(address_of(url), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(head.encode("latin-1", "replace") + body)
        received = connection.recv(1 << 16)
        while not _is_whole(received) and (data := connection.recv(1 << 20)):
            received += data
        connection.settimeout(_AFTERWARDS_S)
        with suppress(TimeoutError):
            received += connection.recv(1 << 16)  # what was not asked for
    return _read(received)


def _is_whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"^Content-Length: (\d+)", head, re.MULTILINE)
    return length is not None and len(body) >= int(length[1])


def _read(received: bytes) -> Response:
    head, _, body = received.partition(b"\r\n\r\n")
    location = re.search(rb"^Location: (.*?)\r?$", head, re.MULTILINE | re.IGNORECASE)
    status = int(head.split()[1]) if head else 0
    return Response(status, body, location[1].decode() if location else "")
