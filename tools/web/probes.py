"""Probes and metrics. `/healthz`: this process answers. `/readyz`: all components that a call
needs answer. `/metrics`: Prometheus metrics."""

import hmac
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from psycopg_pool import PoolTimeout

from audit.log.log_status import sealer_silent_s
from config import metrics_files
from sandbox.daemon.trials.capability import Capability
from sandbox.spec import IsolationLevel
from sandbox.state import SandboxdState, ask
from tools import metrics as counted
from tools.runners.isolation import watch
from tools.worker.worker_process import workers_alive

CHECK_INTERVAL_S = 1.0
_TIMEOUT_S = 2.0
_SEALER_TIMEOUT_S = 10.0
_MODES = ("v2", "hybrid", "v1", "none")


class Probes:
    """A middleware that answers probes before any other could refuse them: orchestrators send them
    to an IP address and without TLS, whatever hosts and schemes browsers have to use."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path) if request.method in {"GET", "HEAD"} else None
        return probe(request) if probe else self.get_response(request)


def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """503 where a component does not answer. Callers that may read the metrics get the reasons and
    what the sandbox lacks; others get states. Components are checked once a second at most."""
    body = _readiness.current()
    if not _may_scrape(request):
        states = {
            name: said if said == "ok" else "unavailable" for name, said in body["checks"].items()
        }
        body = {"status": body["status"], "checks": states}
    return JsonResponse(body, status=200 if body["status"] == "ok" else 503)


class _Readiness:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._body: dict[str, Any] = {}
        self._until = 0.0

    def current(self) -> dict[str, Any]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._body = self._run_checks()
                self._until = time.monotonic() + CHECK_INTERVAL_S
            return self._body

    def forget(self) -> None:
        self._until = 0.0

    def _run_checks(self) -> dict[str, Any]:
        state = _sandboxd_state()
        answers = {name: check() for name, check in CHECKS.items()} | {
            "sandbox": _check_sandbox(state)
        }
        ready = all(answer == "ok" for answer in answers.values())
        body: dict[str, Any] = {"status": "ok" if ready else "unavailable", "checks": answers}
        return body | ({"sandbox": _capability_body(state.capability)} if state else {})


_readiness = _Readiness()


def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus only, since it names tools: from this machine, or with METRICS_TOKEN."""
    if not _may_scrape(request):
        return HttpResponse("Send METRICS_TOKEN as a bearer token.\n", status=401)
    _count_sandbox(watch().state())
    registry = CollectorRegistry()
    registry.register(_AllProcesses())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _AllProcesses(Collector):
    """The metrics of all processes, each of which writes its own files."""

    def collect(self) -> Iterable[Metric]:
        with metrics_files.counted_files(Path(settings.METRICS_DIR)) as files:
            merged: Iterable[Metric] = MultiProcessCollector.merge([str(one) for one in files])  # type: ignore[no-untyped-call]
        return merged


def _may_scrape(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        wanted = f"Bearer {settings.METRICS_TOKEN}"
        return hmac.compare_digest(given.encode(), wanted.encode())
    # Behind a proxy that is not in TRUSTED_PROXIES every client seems to be on this machine.
    here = request.META.get("REMOTE_ADDR") in {"127.0.0.1", "::1"}
    return here and not request.META.get("toolcrib.forwarded")


def _check_database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, PoolTimeout):
        return "PostgreSQL does not answer"
    return "ok"


def _check_broker() -> str:
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2) as broker:
            broker.ping()
    except redis.RedisError:
        return "Redis does not answer"
    return "ok"


def _check_workers() -> str:
    """A worker is alive when its consumer loop sent a heartbeat within the last intervals."""
    return "ok" if workers_alive() else "no worker has said that it is alive"


def _check_sealer() -> str:
    """Checks the sealer's heartbeat: an unsealed record may just wait for an open transaction."""
    try:
        silent_s = sealer_silent_s()
    except (DatabaseError, PoolTimeout):
        return "whether records are sealed is not known: PostgreSQL does not answer"
    if silent_s is None or silent_s < _SEALER_TIMEOUT_S:
        return "ok"
    return "the sealer of the audit log has not said of late that it works"


def _check_knowledge() -> str:
    """Sends a SPARQL query that is always true."""
    body = urlencode({"query": "ASK {}"}).encode()
    try:
        with urllib.request.urlopen(settings.SPARQL_URL, body, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            answer.read(1)
    except (OSError, ValueError, HTTPException):
        return "the SPARQL endpoint does not answer"
    return "ok"


def _sandboxd_state() -> SandboxdState | None:
    try:
        return ask(settings.SANDBOX_SOCKET, _TIMEOUT_S)
    except OSError:
        return None


def _check_sandbox(state: SandboxdState | None) -> str:
    if state is None:
        return "sandboxd does not answer"
    if state.capability.serves(IsolationLevel.STANDARD):
        return "ok"
    reasons = state.capability.reasons
    return f"no tool that needs isolation can run here: {reasons[0] if reasons else 'unknown'}"


def _capability_body(capability: Capability) -> dict[str, Any]:
    return {
        "level_ceiling": capability.ceiling,
        "cgroup_mode": capability.cgroup_mode,
        "reasons": capability.reasons,
        "fix": capability.fix,
    }


def _count_sandbox(state: SandboxdState | None) -> None:
    """Set the gauges of the sandbox; -1 is no level at all, also where sandboxd does not answer."""
    ceiling = state.capability.ceiling if state else None
    mode = state.capability.cgroup_mode if state else ""
    counted.sandbox_ceiling.set(-1 if ceiling is None else list(IsolationLevel).index(ceiling))
    for one in _MODES:
        counted.sandbox_mode.labels(one).set(one == mode)
    counted.sandbox_slots.set(state.slots if state else 0)
    counted.sandbox_templates.set(state.templates if state else 0)
    counted.sandbox_servers.set(state.servers if state else 0)


CHECKS: dict[str, Callable[[], str]] = {
    "database": _check_database,
    "broker": _check_broker,
    "workers": _check_workers,
    "sealing": _check_sealer,
    "knowledge": _check_knowledge,
}
PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}
