"""Middleware that every request passes."""

import http.client
import json
import logging
import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from uuid_utils.compat import uuid7

from audit import actions
from config import database
from config.http import errors
from config.logs import client_request_id, request_id

log = logging.getLogger(__name__)
_PROBLEM = "application/problem+json"
_ACCEPTABLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


_ENTRY_POINTS = {"api": "rest", "mcp": "mcp", "admin": "admin"}


def _entry_point(path: str) -> str:
    return _ENTRY_POINTS.get(path.split("/", 2)[1], "ui")


class DatabaseErrors:
    """A page that finds PostgreSQL gone says so, and the next one finds it back. One whose values
    PostgreSQL refuses, or that met another writer, says that."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, DataError):
            return errors.error_response(request, 400, "A value of the request cannot be used.")
        if database.is_conflict(exception):
            message = "The same thing was changed at this moment. Go back, reload and look again."
            return errors.error_response(request, 409, message)
        if not isinstance(exception, database.CONNECTION_ERRORS):
            return None
        log.error("the database could not be used: %s", exception)
        database.replace_dead_connections()
        return errors.unavailable(request)


class RequestId:
    """Names the request. The name is in every log line, error and audit record of it, and in the
    answer; beside it the client's own `X-Request-Id`, where that is a plain word.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        header = request.headers.get("X-Request-Id", "")
        theirs = header if _ACCEPTABLE.fullmatch(header) else ""
        name = str(uuid7())
        request.name = name  # type: ignore[attr-defined]
        mark, mark_of_theirs = request_id.set(name), client_request_id.set(theirs)
        actions.set_source(
            _entry_point(request.path), request.headers.get("User-Agent", ""), theirs
        )
        try:
            response = self.get_response(request)
        finally:
            request_id.reset(mark)
            client_request_id.reset(mark_of_theirs)
            actions.clear_source()
        response["X-Request-Id"] = name
        if theirs:
            response["X-Client-Request-Id"] = theirs
        return response


class ApiResponses:
    """Answers of the API belong to one caller: no cache stores them, unless the view allows it.
    A client that accepts `application/problem+json` (RFC 9457) gets its errors in that type."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/api/"):
            return self.get_response(request)
        wants_problems = _accepts_problems(request)
        response = self.get_response(request)
        if wants_problems and response.status_code >= 400:
            _convert_to_problem(response)
        response.headers.setdefault("Cache-Control", "no-store")
        patch_vary_headers(response, ("Accept", "Authorization", "Cookie", "X-Organization"))
        _add_rate_headers(request, response)
        return response


class NulCharacters:
    """Refuses NUL characters in addresses and forms, which PostgreSQL cannot store. JSON bodies are
    parsed strictly; the content of files is not looked at."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        query = unquote_to_bytes(request.META.get("QUERY_STRING", ""))
        if "\x00" in request.path_info or b"\x00" in query:
            return _refuse_nul(request)
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        """After the check of the form's token, which reads the form."""
        if request.path.startswith("/api/"):
            return None
        texts = (text for name, all_ in request.POST.lists() for text in (name, *all_))
        return _refuse_nul(request) if any("\x00" in str(text) for text in texts) else None


def _refuse_nul(request: HttpRequest) -> HttpResponse:
    return errors.error_response(request, 400, "The request holds a NUL character. Take it out.")


def _add_rate_headers(request: HttpRequest, response: HttpResponse) -> None:
    """What is left of a limit per minute, where a view has counted (draft-ietf-httpapi-ratelimit-
    headers): `request.rate` is the limit's name and what has `limit`, `used`, `resets_in_s`."""
    name, rate = getattr(request, "rate", ("", None))
    if rate is not None:
        left = max(0, rate.limit - rate.used)
        response["RateLimit-Policy"] = f'"{name}";q={rate.limit};w=60'
        response["RateLimit"] = f'"{name}";r={left};t={rate.resets_in_s}'


def _accepts_problems(request: HttpRequest) -> bool:
    accepted = request.headers.get("Accept", "")
    if _PROBLEM not in accepted:
        return False
    # What is no error is plain JSON for them.
    request.META["HTTP_ACCEPT"] = f"{accepted}, application/json;q=0.1"
    request.__dict__.pop("headers", None)  # they are read from there once
    return True


def _convert_to_problem(response: HttpResponse) -> None:
    """Adds the members of RFC 9457 to the error's own."""
    if not response.get("Content-Type", "").startswith("application/json"):
        return
    body = json.loads(response.content)
    response.content = json.dumps(
        {
            **body,
            "type": f"urn:toolcrib:error:{body['code']}",
            "title": http.client.responses[response.status_code],
            "status": response.status_code,
            "detail": body["message"],
            "instance": f"urn:uuid:{body['request_id']}",
        }
    )
    response["Content-Type"] = _PROBLEM
    response["Content-Length"] = str(len(response.content))
