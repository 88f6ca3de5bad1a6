"""The floor of `tests.benchmarks.pipeline`: the least that Django and PostgreSQL can answer a call
in. One view looks a token up, inserts a row, commits, and sends the call on to the upstream.

    DATABASE_URL=… UPSTREAM_URL=… python -m tests.benchmarks.floor PORT

Nothing of Toolcrib is imported here.
"""

import asyncio
import hashlib
import http.client
import io
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

import django
import uvicorn
from django.conf import settings

THREADS = 64
TABLES = """
    CREATE TABLE IF NOT EXISTS floor_token (digest text PRIMARY KEY, owner text NOT NULL);
    CREATE TABLE IF NOT EXISTS floor_call (
        id uuid PRIMARY KEY, owner text NOT NULL, body text NOT NULL,
        made_at timestamptz NOT NULL DEFAULT now()
    )
"""


def _database() -> dict[str, Any]:
    parts = urlsplit(os.environ["DATABASE_URL"])
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": unquote(dict(parse_qsl(parts.query)).get("host", parts.hostname or "")),
        "PORT": parts.port or "",
        "CONN_MAX_AGE": None,
    }


settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={"default": _database()},
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a benchmark",
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


class Token(models.Model):
    digest = models.TextField(primary_key=True)
    owner = models.TextField()

    class Meta:
        app_label, db_table, managed = "floor", "floor_token", False


class FloorCall(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid4)
    owner = models.TextField()
    body = models.TextField()

    class Meta:
        app_label, db_table, managed = "floor", "floor_call", False


_upstream = urlsplit(os.environ["UPSTREAM_URL"])
_kept = threading.local()


def call(request: HttpRequest) -> HttpResponse:
    token = request.headers["Authorization"].removeprefix("Bearer ")
    owner = Token.objects.get(pk=hashlib.sha256(token.encode()).hexdigest()).owner
    FloorCall.objects.create(owner=owner, body=request.body.decode())
    if not hasattr(_kept, "connection"):
        _kept.connection = http.client.HTTPConnection(_upstream.hostname or "", _upstream.port)
    _kept.connection.request("GET", _upstream.path)
    answer = _kept.connection.getresponse()
    content = answer.read()
    headers = {"Content-Length": str(len(content))}
    return HttpResponse(content, "application/json", answer.status, headers=headers)


urlpatterns = [path("call", call)]


class Threads:
    """Django's WSGI application in threads, each of which keeps its connections."""

    def __init__(self) -> None:
        self._wsgi = get_wsgi_application()
        self._pool = ThreadPoolExecutor(THREADS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message["body"]
        loop = asyncio.get_running_loop()
        status, headers, content = await loop.run_in_executor(self._pool, self._run, scope, body)
        start = {"type": "http.response.start", "status": status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": content})

    def _run(self, scope: Any, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        environ = {
            "REQUEST_METHOD": scope["method"],
            "PATH_INFO": scope["path"],
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "HTTP_HOST": "127.0.0.1",
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
        }
        for name, value in scope["headers"]:
            environ.setdefault(f"HTTP_{name.decode().upper().replace('-', '_')}", value.decode())
        begun: list[Any] = []
        content = b"".join(self._wsgi(environ, lambda *words: begun.extend(words)))
        headers = [(name.lower().encode(), value.encode()) for name, value in begun[1]]
        return int(begun[0].split()[0]), headers, content


def make_tables(token: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
    digest = hashlib.sha256(token.encode()).hexdigest()
    Token.objects.get_or_create(pk=digest, defaults={"owner": "bench"})


if __name__ == "__main__":
    make_tables(os.environ["FLOOR_TOKEN"])
    uvicorn.run(
        Threads(), host="127.0.0.1", port=int(sys.argv[1]), lifespan="off", access_log=False,
        log_level="warning", http="httptools",
    )  # fmt: skip
