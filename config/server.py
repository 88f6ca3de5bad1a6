"""`python -m config.server APPLICATION`: uvicorn, with bounds on what one address holds open.

One process with one event loop; the application decides what runs in threads. A connection costs
a file and some memory, so an address may have so many (trusted proxies excepted, which carry those
of all clients), and one whose request does not arrive in time is closed (RFC 6585 and Slowloris).
The client address of a request is its peer, or the client that trusted proxies report.
"""

import argparse
import asyncio
import ipaddress
import logging
import os
import resource
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import django
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.conf import settings  # noqa: E402

ADDRESS_CONNECTIONS = 256
HEAD_S = 10.0  # from the first byte of a request, or a new connection, to the end of its headers
UNREAD_S = 5.0  # after the answer, to the end of a body that is not read
HEAD_BYTES = 64 * 1024
KEEP_ALIVE_S = 20
_OTHER_FILES = 1024  # that are open besides connections
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MOST_HOPS = 32
_FORWARDED_FOR, _FORWARDED_PROTO = b"x-forwarded-for", b"x-forwarded-proto"
_SCHEMES = frozenset({"http", "https"})

_open_connections: Counter[str] = Counter()


class Proxies:
    """Trusted proxies, by `networks`. Forwarding headers of other peers are ignored."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ipaddress.ip_network(one) for one in networks)
        self.trusts = lru_cache(maxsize=4096)(self._trusts)

    def _trusts(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def apply(self, scope: dict[str, Any]) -> None:
        """Puts client and scheme of a request into its ASGI scope, and takes the headers out, so
        that nothing else believes them. `forwarded` in its state says that there were any."""
        peer, port = scope["client"] or ("", 0)
        headers = {
            wanted: b",".join(text for name, text in scope["headers"] if name == wanted).decode(
                "latin-1"
            )
            for wanted in (_FORWARDED_FOR, _FORWARDED_PROTO)
        }
        scope["headers"][:] = [one for one in scope["headers"] if one[0] not in headers]
        scope["client"] = self.client(peer, headers[_FORWARDED_FOR]), port
        scope["scheme"] = self.scheme(peer, headers[_FORWARDED_PROTO], scope["scheme"])
        scope["state"]["forwarded"] = bool(headers[_FORWARDED_FOR])

    def client(self, peer: str, forwarded_for: str) -> str:
        """The address of the client: of the hops, the last that is no trusted proxy.

        `forwarded_for` is what `X-Forwarded-For` says, of several headers with commas between them.
        What is no address ends the search: the proxy that passed it on is the last one known.
        """
        known = peer
        for hop in reversed(forwarded_for.split(",")[-_MOST_HOPS:]):
            if not self.trusts(known):
                break
            found = _address(_without_port(hop.strip()))
            if found is None:
                break
            known = str(found)
        return known

    def scheme(self, peer: str, forwarded_proto: str, otherwise: str) -> str:
        """What the nearest proxy says (`X-Forwarded-Proto`), where it is trusted."""
        scheme = forwarded_proto.rpartition(",")[2].strip().lower()
        return scheme if scheme in _SCHEMES and self.trusts(peer) else otherwise


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """IPv4 addresses that are mapped into IPv6 are IPv4 addresses."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    proxies = Proxies(settings.TRUSTED_PROXIES)
    _counted = ""
    _head_ends: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True
    _unread_until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.proxies.trusts(address):
            if _open_connections[address] >= ADDRESS_CONNECTIONS:
                transport.abort()
                return
            _open_connections[address] += 1
            self._counted = address
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._head_arrived()
        self._all_read()
        if self._counted:
            _open_connections[self._counted] -= 1
            if not _open_connections[self._counted]:
                del _open_connections[self._counted]

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_ends is None:
                self._expect_head()
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES:
            self.send_400_response("The headers of the request are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._head_arrived()
        self.proxies.apply(self.scope)  # type: ignore[arg-type]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._all_read()

    def on_response_complete(self) -> None:
        """Closed at once, a client that still sends a refused body would not read why."""
        super().on_response_complete()
        if not self._in_head:
            self._unread_until = self.loop.call_later(UNREAD_S, self.transport.close)

    def _all_read(self) -> None:
        if self._unread_until is not None:
            self._unread_until.cancel()
            self._unread_until = None

    def _expect_head(self) -> None:
        self._head_ends = self.loop.call_later(HEAD_S, self._head_late)

    def _head_arrived(self) -> None:
        if self._head_ends is not None:
            self._head_ends.cancel()
            self._head_ends = None

    def _head_late(self) -> None:
        self._head_ends = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def _raise_file_limit() -> None:
    """A connection is an open file, of which the system allows few unless it is asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 4 * settings.LIVE_STREAMS + _OTHER_FILES)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="config.server", description=__doc__)
    parser.add_argument("application", help="module:name")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--grace", type=int, default=5, help="seconds for open requests at the end")
    parsed = parser.parse_args(arguments)
    _raise_file_limit()
    options: dict[str, Any] = {
        "host": parsed.host,
        "port": parsed.port,
        "loop": "uvloop",
        "http": BoundedProtocol,
        "ws": "none",
        "lifespan": "on",
        "interface": "asgi3",
        "backlog": 2048,
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,  # `Proxies` reads them
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": parsed.grace,
    }
    # It warns of every request that is not understood, which strangers send at will.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = uvicorn.Server(uvicorn.Config(parsed.application, **options))
    server.run()
    logging.shutdown()
    os._exit(0 if server.started else 1)  # threads that still wait would be waited for


if __name__ == "__main__":
    main()
