"""Run a service in a process of its own, or inside a test."""

import logging
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib_service.redis_worker import LEASE_S, Worker
from toolcrib_service.service import Announcer, DynamicToolService, make_announcer

if TYPE_CHECKING:
    from toolcrib_service.kombu_worker import KombuWorker

log = logging.getLogger(__name__)
GRACE_S = 20.0
_RESTART_S = 1.0  # before a process that ended by itself is started again


def run(
    service: DynamicToolService,
    url: str,
    *,
    organization: str = "default",
    concurrency: int = 4,
    lease_s: float = LEASE_S,
    grace_s: float = GRACE_S,
    announce_with: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. The exit code is 0, or 1 where a call had to be abandoned.

    Call it in as many processes as you like: they share the queue. `options` are those of the
    transport, for a broker that is not Redis.
    """
    stop = _stop_signal()
    worker = _worker(
        service, url, organization=organization, concurrency=concurrency, lease_s=lease_s,
        announcer=_announcer(service, organization, announce_with), options=options,
    )  # fmt: skip
    worker.start()
    log.info("%s listens as %s", service.id, worker.name)
    stop.wait()
    return 0 if worker.stop(grace_s) else 1


@contextmanager
def serve(
    service: DynamicToolService, url: str, **settings: Any
) -> "Iterator[Worker | KombuWorker]":
    """Runs the service in this process, against a real broker, within the block."""
    worker = _worker(service, url, **settings)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(grace_s=5.0)


def is_redis(url: str) -> bool:
    """Redis has all guarantees; any other broker is reached through kombu."""
    return url.partition(":")[0] in {"redis", "rediss", "unix"}


def keep_processes(command: Sequence[str], processes: int) -> int:
    """Run that many processes of a command, each restarted when it ends by itself, until SIGTERM or
    SIGINT, which they receive too and end by."""
    stop = _stop_signal()
    running = [subprocess.Popen(command) for _ in range(processes)]
    while not stop.wait(_RESTART_S):
        running = [one if one.poll() is None else subprocess.Popen(command) for one in running]
    for one in running:
        if one.poll() is None:
            one.send_signal(signal.SIGTERM)
    return max(one.wait() for one in running)


def _worker(
    service: DynamicToolService,
    url: str,
    *,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> "Worker | KombuWorker":
    """Raises `SystemExit` where kombu is needed and not installed."""
    if is_redis(url):
        return Worker(service, url, **settings)
    try:
        from toolcrib_service.kombu_worker import KombuWorker  # noqa: PLC0415
    except ImportError:
        raise SystemExit("This broker is no Redis: install the package kombu.") from None
    known = {name: settings[name] for name in ("organization", "concurrency") if name in settings}
    return KombuWorker(service, url, options=options, **known)


def _announcer(
    service: DynamicToolService, organization: str, key_file: Path | None
) -> Announcer | None:
    if key_file is None:
        return None
    return make_announcer(service, organization=organization, key_file=key_file)


def _stop_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
