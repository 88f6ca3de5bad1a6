"""`/healthz`: this process answers. `/readyz`: everything a call needs answers. `/metrics`."""

import hmac
import os
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from psycopg_pool import PoolTimeout

from sandbox.client import SandboxClient
from tools.execution.heartbeat import workers_alive

_sandbox = SandboxClient(settings.SANDBOX_SOCKET)


def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """503 with a sentence for each part that does not answer."""
    answers = {name: check() for name, check in CHECKS.items()}
    ready = all(answer == "ok" for answer in answers.values())
    body = {"status": "ok" if ready else "unavailable", "checks": answers}
    return JsonResponse(body, status=200 if ready else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus alone: tools are named here. From this machine, or with METRICS_TOKEN."""
    if not _may_scrape(request):
        return HttpResponse("Send METRICS_TOKEN as a bearer token.\n", status=401)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=os.environ["PROMETHEUS_MULTIPROC_DIR"])  # type: ignore[no-untyped-call]
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_scrape(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        wanted = f"Bearer {settings.METRICS_TOKEN}"
        return hmac.compare_digest(given.encode(), wanted.encode())
    return request.META.get("REMOTE_ADDR") in {"127.0.0.1", "::1"}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, PoolTimeout):
        return "PostgreSQL does not answer"
    return "ok"


def _broker() -> str:
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2) as broker:
            broker.ping()
    except redis.RedisError:
        return "Redis does not answer"
    return "ok"


def _workers() -> str:
    """A worker is alive when its consumer loop has said so within the last beats."""
    return "ok" if workers_alive() else "no worker has said that it is alive"


def _sandboxd() -> str:
    try:
        answer = _sandbox.ping()
    except OSError:
        return "sandboxd does not answer"
    return "ok" if answer else "sandboxd does not answer"


CHECKS: dict[str, Callable[[], str]] = {
    "database": _database,
    "broker": _broker,
    "workers": _workers,
    "sandbox": _sandboxd,
}
