"""Remote anchors: checkpoints sent to a configured webhook or object store.

The newest checkpoint of each log is sent at least once; it covers those in between. A destination
that does not answer is retried with backoff, and delays no other.
"""

import logging
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlsplit

from django.conf import settings

from audit import metrics
from audit.log import anchors, checkpoints, key_files

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
_LONGEST_WAIT_S = 60.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SendNote = Callable[[str, str], None]


class BadAddress(Exception):
    """An invalid destination of checkpoints; the message says why."""


class NotAccepted(Exception):
    """The destination answered without confirming the checkpoint."""


class AnchorPublisher:
    """Sends notes to one destination, in a thread of its own."""

    def __init__(self, setting: str, send: SendNote) -> None:
        self.setting = setting
        self._send = send
        self._waiting: dict[str, str] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name=f"anchor-publisher-{setting}", daemon=True
        )

    def start(self) -> None:
        """With what was published last: the process may have ended before it was sent."""
        for name in anchors.anchored_logs():
            newest = anchors.newest_anchor(name)
            if newest is not None:
                self.enqueue(name, newest.note)
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def enqueue(self, name: str, note: str) -> None:
        """Replaces an older pending one of the same log."""
        with self._changed:
            self._waiting.pop(name, None)
            self._waiting[name] = note
            self._changed.notify()

    def _run(self) -> None:
        wait_s = 1.0
        while (found := self._next()) is not None:
            try:
                self._send(*found)
            except (OSError, HTTPException, NotAccepted) as error:
                metrics.anchor_deliveries.labels("failed").inc()
                log.warning("%s did not take a checkpoint: %s", self.setting, type(error).__name__)
                self._requeue(*found)
                self._wait(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            else:
                metrics.anchor_deliveries.labels("delivered").inc()
                wait_s = 1.0

    def _next(self) -> tuple[str, str] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._waiting)
            if self._stopped:
                return None
            name = next(iter(self._waiting))
            return name, self._waiting.pop(name)

    def _requeue(self, name: str, note: str) -> None:
        with self._changed:
            self._waiting.setdefault(name, note)

    def _wait(self, wait_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, wait_s)


def configured_publishers() -> list[AnchorPublisher]:
    """One for each configured destination. Raises `BadAddress`."""
    publishers = []
    if settings.AUDIT_ANCHOR_URL:
        publishers.append(
            AnchorPublisher("AUDIT_ANCHOR_URL", post_sender(settings.AUDIT_ANCHOR_URL))
        )
    if settings.AUDIT_ANCHOR_PUT_URL:
        publishers.append(
            AnchorPublisher("AUDIT_ANCHOR_PUT_URL", put_sender(settings.AUDIT_ANCHOR_PUT_URL))
        )
    return publishers


def post_sender(url: str) -> SendNote:
    check_address(url)
    return lambda name, note: _request("POST", url, note)


def put_sender(url: str) -> SendNote:
    """An object for each checkpoint, never overwritten: <url>/<log>/<size>-<time>.note"""
    check_address(url)

    def send(name: str, note: str) -> None:
        statement = checkpoints.read_note(note)
        moment = f"{statement.at:%Y%m%dT%H%M%S.%fZ}"
        place = f"{key_files.safe_name(name)}/{statement.size:012}-{moment}.note"
        _request("PUT", f"{url.rstrip('/')}/{quote(place)}", note)

    return send


def check_address(url: str) -> None:
    """Raises `BadAddress`: the token goes there, so only over TLS, or to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadAddress(f"{url!r} is no URL.") from None
    if not host or parts.username or parts.fragment:
        raise BadAddress(f"{url!r} must name a host, and neither a user nor a fragment.")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise BadAddress(f"{url!r} must begin with https://.")


def _request(method: str, url: str, note: str) -> None:
    """Call only the configured URL: no redirects, no proxies. Raises `NotAccepted`, OSError."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    if settings.AUDIT_ANCHOR_TOKEN:
        headers["Authorization"] = f"Bearer {settings.AUDIT_ANCHOR_TOKEN}"
    connection = _connection(parts.scheme, parts.hostname or "", parts.port)
    try:
        connection.request(method, path, note.encode(), headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotAccepted(f"status {status}")


def _connection(scheme: str, host: str, port: int | None) -> HTTPConnection:
    if scheme == "https":
        trusted = ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusted)
    return HTTPConnection(host, port, timeout=TIMEOUT_S)
