"""Which files of the product one call enters: how many a reader has to open to follow it.

A file is entered where one of its functions runs in the thread that answers the request, or in the
one that performs the call. Libraries are not counted, nor what a process reads once a second.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import UUID

from django.core.handlers.wsgi import WSGIHandler
from django.core.wsgi import get_wsgi_application

from tests.crib import CHECKOUT
from tools.execution import answer as pipeline_answer

ROOMS = frozenset({"audit", "config", "sandbox", "tools"})
CALLS = 5  # within a second or two; the first load what is remembered
type Perform = Callable[[UUID], object]


@dataclass(frozen=True)
class FilesEntered:
    """Paths from the checkout on: of the request from Django's handler to its answer, and of the
    performance by a worker, which is empty where the request performs the call itself."""

    request: frozenset[str]
    performance: frozenset[str]

    @property
    def together(self) -> frozenset[str]:
        return self.request | self.performance


@cache
def _application() -> WSGIHandler:
    return get_wsgi_application()


def enter_files(url: str, token: str, body: bytes, perform: Perform) -> FilesEntered:
    """Make the call in this process, and have it performed by `perform` where it is dispatched; of
    several calls, those of the one that enters the fewest. Raises `AssertionError` unless each
    succeeds."""
    calls = [_call(_environ(url, token, body), perform) for _ in range(CALLS)]
    return min(calls, key=lambda entered: len(entered.together))


def _call(environ: dict[str, Any], perform: Perform) -> FilesEntered:
    request: set[str] = set()
    performance: set[str] = set()

    def dispatch(execution_ids: Iterable[UUID]) -> None:
        with _counted(performance):
            for execution_id in execution_ids:
                perform(execution_id)

    with patch.object(pipeline_answer, "wake_workers", dispatch), _counted(request):
        answer = _application()(environ, lambda status, headers: None)
        content = b"".join(answer)
        answer.close()
    assert b'"status":"Success"' in content, content[:300]
    return FilesEntered(_of_product(request), _of_product(performance))


@contextmanager
def _counted(files: set[str]) -> Iterator[None]:
    """Adds the file of each function that this thread calls. Who counted before goes on then."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(earlier)


def _of_product(files: set[str]) -> frozenset[str]:
    inside = [Path(file) for file in files if file.startswith(f"{CHECKOUT}/")]
    paths = [file.relative_to(CHECKOUT) for file in inside]
    return frozenset(str(path) for path in paths if path.parts[0] in ROOMS)


def _environ(url: str, token: str, body: bytes) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
    }
