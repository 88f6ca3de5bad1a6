"""Renders every API error in one shape; nothing a client can send is a 500."""

import logging
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from psycopg_pool import PoolTimeout
from rest_framework import exceptions, serializers

from audit.errors import Unwritable
from config.database import is_conflict, replace_dead_connections
from config.http.errors import CODES, NOT_FOUND, encode_json, error_body
from tools.api.common.serializer_fields import MOST_FLAWS, choice_field
from tools.definitions.results import Status
from tools.errors import Conflict, RateLimited, ToolcribError, Unavailable
from tools.shapes.executions import refusal_shape

log = logging.getLogger(__name__)


class ErrorAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    details = serializers.DictField()
    request_id = serializers.CharField()
    client_request_id = serializers.CharField(required=False)
    status = choice_field(Status, required=False)
    execution_id = serializers.UUIDField(required=False)
    limit = serializers.JSONField(required=False, help_text="With 429: calls, or a cost as text.")
    used = serializers.JSONField(required=False)
    resets_in_s = serializers.IntegerField(required=False)


class ProblemAnswer(ErrorAnswer):
    """An error for whom accepts `application/problem+json` (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()  # type: ignore[assignment] # as RFC 9457 has it
    detail = serializers.CharField()
    instance = serializers.CharField()


def exception_response(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. None, for a server error, becomes a 500 in one place."""
    if isinstance(error, ToolcribError):
        return _product_error_response(error)
    if isinstance(error, DataError | DjangoValidationError):
        return _error_response(400, "malformed", "A value of the request cannot be used.", {})
    if is_conflict(error):
        return _product_error_response(
            Conflict("The same thing was changed at this moment. Read it again.")
        )
    if isinstance(error, Unwritable):
        log.exception("nothing may happen that cannot be put on record")
        replace_dead_connections()
        return _product_error_response(
            Unavailable(
                "The audit record cannot be written now, so nothing was done. Try again in a "
                "moment; if it stays so, tell the operators.",
                code="audit_unavailable",
            )
        )
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        log.exception("the database could not be used")
        replace_dead_connections()
        return _product_error_response(
            Unavailable("The call cannot be recorded now. Try again in a moment.")
        )
    if isinstance(error, Http404):
        error = exceptions.NotFound(NOT_FOUND)
    if isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, RequestDataTooBig):
        return _error_response(413, "too_large", "The body is too large.", {})
    if isinstance(error, exceptions.APIException):
        return _framework_error_response(error)
    return None


def _product_error_response(error: ToolcribError) -> HttpResponse:
    response = _json_response(error.http_status, refusal_shape(error))
    wait_s = error.wait_s
    if wait_s is not None:
        response["Retry-After"] = str(wait_s)
    if error.code == RateLimited.code:
        limit = error.details["limit"]
        response["RateLimit"] = f'"{error.code}";r=0;t={wait_s or 1}'
        response["RateLimit-Policy"] = f'"{error.code}";q={limit};w=60'
    if error.http_status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="toolcrib"'
    return response


def _framework_error_response(error: exceptions.APIException) -> HttpResponse:
    code = CODES.get(error.status_code, "error")
    if isinstance(error, exceptions.ValidationError):
        flaws = [*_list_flaws(error.detail)]
        details = {"errors": flaws[:MOST_FLAWS], "count": len(flaws)}
        response = _error_response(400, "invalid", _summarize_flaws(len(flaws)), details)
    else:
        response = _error_response(
            error.status_code, code, str(error.detail), getattr(error, "details", {})
        )
    if auth_header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = auth_header
    wait_s = getattr(error, "wait", None)
    if wait_s is not None:
        response["Retry-After"] = str(int(wait_s) + 1)
    return response


def _summarize_flaws(count: int) -> str:
    first = f" The first {MOST_FLAWS} are named." if count > MOST_FLAWS else ""
    return f"{count} field{'s are' if count != 1 else ' is'} wrong; see details.errors.{first}"


def _list_flaws(detail: Any, place: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested error lists as one entry per wrong field."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            yield from _list_flaws(value, f"{place}.{key}".strip("."))
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        for at, item in enumerate(detail):
            yield from _list_flaws(item, f"{place}[{at}]")
    else:
        words = detail if isinstance(detail, list) else [detail]
        yield {"field": place or "body", "message": " ".join(str(item) for item in words)}


def _error_response(
    http_status: int, code: str, message: str, details: dict[str, Any]
) -> HttpResponse:
    return _json_response(http_status, error_body(code, message, details))


def _json_response(http_status: int, content: dict[str, Any]) -> HttpResponse:
    """Always JSON, also where the answer would have been an event stream or a page."""
    return HttpResponse(encode_json(content), status=http_status, content_type="application/json")
