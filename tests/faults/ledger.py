"""The oracle: a process of its own that tools report their effects to, and that forgets nothing.

    python -m tests.faults.ledger FILE

Prints its port, then takes `POST /` with a JSON object until it is ended. Each one is on the disk
before it answers, with the time of this machine's true clock. What was asked for too long
ago it does not take (410): the caller may be dead.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LONGEST = 10_000
BEGIN, EFFECT = "begin", "effect"
ASKED_AT = "Asked-At"  # on the monotonic clock of this machine
STALE_S = 1.5


@dataclass(frozen=True)
class Effect:
    """What one run of a tool did. `run` is a number the run has drawn for itself."""

    key: str
    run: str
    what: str
    at: float


@dataclass(frozen=True)
class Ledger:
    url: str
    port: int
    file: Path

    def effects(self) -> list[Effect]:
        lines = self.file.read_text(encoding="utf-8").splitlines()
        return [Effect(**json.loads(line)) for line in lines]


@contextmanager
def run_ledger(file: Path) -> Iterator[Ledger]:
    """A ledger in a session of its own, so that nothing that is killed here takes it along."""
    command = [sys.executable, "-m", "tests.faults.ledger", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Ledger(f"http://127.0.0.1:{port}/", port, file)
    finally:
        process.kill()
        process.communicate()


class _Book:
    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()

    def write(self, effect: dict[str, str], asked_at: float) -> bool:
        """False where it was asked for too long ago: now, when its turn has come."""
        names = ("key", "run", "what")
        with self._lock:
            if time.monotonic() - asked_at > STALE_S:
                return False
            line = {name: str(effect[name]) for name in names} | {"at": time.time()}
            os.write(self._file, json.dumps(line).encode() + b"\n")
            os.fdatasync(self._file)
            return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, book: _Book) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.book = book


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        asked_at = float(self.headers.get(ASKED_AT, "inf"))
        try:
            effect = json.loads(self.rfile.read(min(length, LONGEST)))
            taken = self.server.book.write(effect, asked_at)
        except (ValueError, KeyError, TypeError):
            self.send_error(400)
            return
        self.send_response(204 if taken else 410)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    server = _Server(_Book(Path(sys.argv[1])))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
