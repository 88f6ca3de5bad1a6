"""What every request passes."""

import logging
import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from uuid_utils.compat import uuid7

from audit import source
from config import database, errors
from config.logs import request_id

log = logging.getLogger(__name__)
_ACCEPTABLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


_DOORS = {"api": "rest", "mcp": "mcp", "admin": "admin"}


def _door(path: str) -> str:
    return _DOORS.get(path.split("/", 2)[1], "ui")


class DatabaseAnswers:
    """A page that finds PostgreSQL gone says so, and the next one finds it back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, database.GONE):
            return None
        log.error("the database could not be used: %s", exception)
        database.replace_dead_connections()
        return errors.unavailable(request)


class RequestId:
    """Names the request: its own `X-Request-Id` where that is a plain word, else a new one.

    The name stands in every log line, error and audit record of the request, and in the answer.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        name = given if _ACCEPTABLE.fullmatch(given) else str(uuid7())
        request.name = name  # type: ignore[attr-defined]
        mark = request_id.set(name)
        source.came_by(_door(request.path), request.headers.get("User-Agent", ""))
        try:
            response = self.get_response(request)
        finally:
            request_id.reset(mark)
            source.forget()
        response["X-Request-Id"] = name
        return response
