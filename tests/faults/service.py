"""What tools call: a service that may die and may hang, between them and the ledger.

    python -m tests.faults.service PORT LEDGER_URL

Takes `POST /` and hands it on; `POST /work` is the work of a tool without code, and goes on
whatever becomes of who asked for it. A request that sat in a socket while this process was stopped
is dropped when no client waits for it any more: its run is dead, and so must be its effect. One
that was handed on late, for this process was stopped between two lines, the ledger drops.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.crib import CHECKOUT, free_port
from tests.faults.ledger import ASKED_AT, BEGIN, EFFECT, LONGEST

WORK = "/work"
_PATIENCE_S = 10


@dataclass
class Service:
    """The process, under one address over its lives."""

    ledger_url: str
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """In a session of its own, as the ledger. Returns when it listens."""
        words = ["-m", "tests.faults.service", str(self.port), self.ledger_url]
        self._process = subprocess.Popen(
            [sys.executable, *words], cwd=CHECKOUT, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def serving(ledger_url: str) -> Iterator[Service]:
    service = Service(ledger_url)
    service.start()
    try:
        yield service
    finally:
        service.kill()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, ledger_url: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ledger_url = ledger_url


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(min(length, LONGEST))
        asked_at = time.monotonic()
        if select.select([self.connection], [], [], 0)[0]:  # it was closed: there is no more body
            self.close_connection = True
            return
        if self.path == WORK:
            status, answer = self._work(json.loads(body), asked_at)
        else:
            status, answer = self._handed_on(body, asked_at), b""
        with suppress(OSError):  # no client waits for the answer any more
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def _work(self, wanted: dict[str, Any], asked_at: float) -> tuple[int, bytes]:
        """Status and answer; its beginning is in the ledger as soon as it was asked for."""
        work = {"key": wanted["key"], "run": os.urandom(8).hex()}
        if self._report(work, BEGIN, asked_at):
            time.sleep(wanted["before_s"])
            if self._report(work, EFFECT, time.monotonic()):
                time.sleep(wanted["after_s"])
                return 200, json.dumps(work).encode()
        return 502, b""

    def _report(self, work: dict[str, str], what: str, asked_at: float) -> bool:
        return self._handed_on(json.dumps(work | {"what": what}).encode(), asked_at) == 204

    def _handed_on(self, body: bytes, asked_at: float) -> int:
        """The ledger's status."""
        headers = {ASKED_AT: str(asked_at)}
        request = urllib.request.Request(self.server.ledger_url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return refusal.code
        except OSError:
            return 502

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    server = _Server(int(sys.argv[1]), sys.argv[2])
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
