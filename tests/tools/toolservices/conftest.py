import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import redis
from django.conf import settings

from tests.crib import CHECKOUT
from tests.tools.toolservices.services import QUEUE
from toolcrib_service import kombu_worker, redis_worker
from toolcrib_service.queue_protocol import Queue
from tools.toolservices.redis_client import ToolServiceClient, ToolServiceRequest


@pytest.fixture(autouse=True)
def _services_stop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test stops services, so their readers check more often."""
    monkeypatch.setattr(redis_worker, "_BLOCK_MS", 20)
    monkeypatch.setattr(kombu_worker, "_WAIT_S", 0.02)


@pytest.fixture
def url(servers_in: Any) -> str:
    return str(settings.REDIS_URL)


@pytest.fixture
def broker(url: str) -> Iterator[Any]:
    with redis.Redis.from_url(url, protocol=2, decode_responses=True) as connection:
        yield connection


@pytest.fixture
def slug() -> str:
    return f"org-{uuid4().hex[:12]}"


@pytest.fixture
def queue(slug: str) -> Queue:
    return Queue(slug, QUEUE)


@pytest.fixture
def client(url: str) -> Iterator[ToolServiceClient]:
    made = ToolServiceClient(url)
    yield made
    made.close()


@pytest.fixture
def ask(client: ToolServiceClient, queue: Queue) -> Callable[..., str]:
    """One call, as the runner makes it; `received` collects the chunks as they arrive."""

    def call(
        *, received: Any = None, stop: Any = None, timeout_s: float = 30, **fields: Any
    ) -> str:
        asked = ToolServiceRequest(
            **{
                "queue": queue, "user": "alice", "config": {}, "arguments": {},
                "timeout_s": timeout_s, "most_bytes": 1_000_000, **fields,
            }
        )  # fmt: skip
        received = [] if received is None else received
        return client.call(asked, stop=stop or threading.Event(), until=None, tell=received.append)

    return call


@contextmanager
def process(
    name: str, slug: str, url: str, *words: str, **environment: str
) -> Iterator[subprocess.Popen]:
    """A service in its own process, as an author would start it."""
    made = subprocess.Popen(
        [
            sys.executable, "-m", "toolcrib_service", f"tests.tools.toolservices.services.{name}",
            "--organization", slug, "--lease", "2", *words,
        ],
        cwd=CHECKOUT,
        env=os.environ | {"TOOLCRIB_BROKER_URL": url} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield made
    finally:
        made.kill()
        made.wait()
