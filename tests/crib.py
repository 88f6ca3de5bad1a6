"""A real Toolcrib beside the tests: PostgreSQL, Valkey, sandboxd, web, workers and beat."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import stores
from tests.conditions import until

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Crib:
    url: str
    data: Path
    supervisor: int


def free_port() -> int:
    """For a server of this test's. A connection that was closed there keeps the kernel from giving
    the port to anybody who asks for any, for a minute; who asks for this one gets it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        with socket.create_connection(probe.getsockname()):
            probe.accept()[0].close()
        return int(probe.getsockname()[1])


@contextmanager
def running(data: Path, environment: dict[str, str] | None = None) -> Iterator[Crib]:
    """`manage.py up` on a free port, ready; stopped as Ctrl-C stops it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port), "--no-browser"],
        cwd=CHECKOUT,
        env=os.environ
        | {"TOOLCRIB_DATA": str(data)}
        | stores.ALLOWED
        # Tests leave a thousand quiet logs behind, and generated requests are many.
        | {"AUDIT_QUIET_SECONDS": "3600", "READS_PER_MINUTE": "0"}
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


def is_web(worker: str) -> bool:
    """Whether who performs an execution, as its row names it, is a thread of a web process here."""
    pid = worker.split(":")[-2]  # after the host, before the thread
    return b"config.asgi" in Path(f"/proc/{pid}/cmdline").read_bytes()


def remove(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    until(lambda: _is_ready(process, url))


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"Toolcrib did not start: exit code {process.returncode}")
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
