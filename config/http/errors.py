"""Errors outside a view: JSON below /api/, a page elsewhere."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from config.http import faults
from config.logs import client_request_id, request_id

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


def body(code: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """The one shape of every error of the API."""
    theirs = client_request_id.get()
    return {
        "code": code,
        "message": message,
        "details": details or {},
        "request_id": request_id.get(),
        **({"client_request_id": theirs} if theirs else {}),
    }


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return refused(request, 400, "The request cannot be understood.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return refused(request, 403, "You may not do this. An administrator can grant it.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """An expired login form redirects to the login page: a user who is logged in meanwhile goes
    on."""
    if request.path in {reverse("login"), reverse("second-factor")}:
        onwards = request.POST.get("next", request.GET.get("next", ""))
        return redirect(f"{reverse('login')}?{urlencode({'next': onwards, 'again': 'yes'})}")
    return refused(
        request,
        403,
        "The form is of an earlier login, or was open too long. Go back, reload it and try again.",
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return refused(request, 404, NOT_FOUND)


def unavailable(request: HttpRequest) -> HttpResponse:
    response = refused(request, 503, "The database does not answer. Try again in a moment.")
    response["Retry-After"] = "1"
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    faults.note(request)
    return refused(
        request, 500, "Something went wrong on our side. The operators have a record of it."
    )


def refused(request: HttpRequest, status: int, message: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse(body(CODES[status], message), status=status)
    context = {"status": status, "message": message, "request_id": request_id.get()}
    return render(request, "error.html", context, status=status)
