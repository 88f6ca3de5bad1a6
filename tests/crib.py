"""A real Toolcrib beside the tests: PostgreSQL, Valkey, sandboxd, web, worker and beat."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.stubs import stdio

CHECKOUT = Path(__file__).resolve().parent.parent
STARTS_WITHIN_S = 90


@dataclass(frozen=True)
class Crib:
    url: str
    data: Path
    supervisor: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(data: Path, environment: dict[str, str] | None = None) -> Iterator[Crib]:
    """`manage.py up` on a free port, ready; stopped as Ctrl-C stops it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port), "--no-browser"],
        cwd=CHECKOUT,
        env=os.environ
        | {"TOOLCRIB_DATA": str(data), "EGRESS_ALLOW_PRIVATE": "127.0.0.1/32"}
        | {"MCP_STDIO_ALLOWED": json.dumps(stdio.ALLOWED)}
        | (environment or {}),
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_ready(process, url)
        yield Crib(url, data, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def remove(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"Toolcrib did not start: exit code {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"Toolcrib was not ready within {STARTS_WITHIN_S} seconds")
