"""Errors outside a view: JSON below /api/, a page elsewhere."""

import json
import logging
import sys
import time
from typing import Any

import orjson
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django_htmx.http import reswap, retarget
from prometheus_client import Counter
from psycopg_pool import PoolTimeout

from audit.actions import Actor, record
from audit.errors import Unwritable
from audit.events import Event, Outcome
from config.logs import client_request_id, request_id

log = logging.getLogger(__name__)
RECORD_INTERVAL_S = 60.0  # one address of one organization is not written down more often
server_errors = Counter(
    "toolcrib_server_errors_total", "Requests answered 500: faults of the product.", ["address"]
)
_recorded_at: dict[tuple[str, str], float] = {}
CODES = {
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    409: "conflict",
    411: "length_required",
    412: "changed_meanwhile",
    413: "too_large",
    415: "unsupported_media_type",
    429: "too_many_requests",
    500: "internal_error",
    503: "unavailable",
}
NOT_FOUND = "There is nothing at this address."


def error_body(code: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """The one shape of every error of the API."""
    theirs = client_request_id.get()
    return {
        "code": code,
        "message": message,
        "details": details or {},
        "request_id": request_id.get(),
        **({"client_request_id": theirs} if theirs else {}),
    }


def error_response(request: HttpRequest, status: int, message: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse(error_body(CODES[status], message), status=status)
    context = {"status": status, "message": message, "request_id": request_id.get()}
    if "HX-Request" not in request.headers:
        return render(request, "error.html", context, status=status)
    # A part of a page: the sentence goes to where each page has room for it.
    notice = render(request, "error.html#notice", context, status=status)
    return retarget(reswap(notice, "innerHTML"), "#notice")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return error_response(request, 400, "The request cannot be understood.")


def record_fault(request: HttpRequest) -> None:
    """Record the failing request. Never fails itself."""
    place = getattr(request.resolver_match, "route", "") if request.resolver_match else ""
    address = f"{request.method} /{place}"
    server_errors.labels(address).inc()
    user: Any = getattr(request, "user", None)
    place_of_user = getattr(getattr(user, "organization", None), "slug", "")
    organization = getattr(user, "organization_slug", place_of_user)
    if not organization or _is_recorded(organization, address):
        return
    error = sys.exception()
    try:
        record(
            Event.SERVER_FAULT,
            by=Actor("system", user.username, organization, request_id=request_id.get()),
            outcome=Outcome.FAILURE,
            subject=address,
            reason=type(error).__name__ if error else "",
        )
    except (DatabaseError, InterfaceError, PoolTimeout, Unwritable):
        log.exception("a fault is not on record: %s", address)


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return error_response(request, 403, "You may not do this. An administrator can grant it.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """An expired login form redirects to the login page: a user who is logged in meanwhile goes
    on."""
    if request.path in {reverse("login"), reverse("second-factor")}:
        onwards = request.POST.get("next", request.GET.get("next", ""))
        return redirect(f"{reverse('login')}?{urlencode({'next': onwards, 'again': 'yes'})}")
    return error_response(
        request,
        403,
        "The form is of an earlier login, or was open too long. Go back, reload it and try again.",
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return error_response(request, 404, NOT_FOUND)


def unavailable(request: HttpRequest) -> HttpResponse:
    response = error_response(request, 503, "The database does not answer. Try again in a moment.")
    response["Retry-After"] = "1"
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    record_fault(request)
    return error_response(
        request, 500, "Something went wrong on our side. The operators have a record of it."
    )


def encode_json(data: Any) -> bytes:
    """Encode any value of the database: it stores 1e22 as a whole number, and orjson writes none
    beyond 64 bits."""
    try:
        return orjson.dumps(data, default=str)
    except orjson.JSONEncodeError:
        return json.dumps(data, default=str).encode()


def _is_recorded(organization: str, address: str) -> bool:
    now, key = time.monotonic(), (organization, address)
    if now - _recorded_at.get(key, -RECORD_INTERVAL_S) < RECORD_INTERVAL_S:
        return True
    _recorded_at[key] = now
    return False
