"""The middleware that enforces second factors and reauthentication for requests with a browser
session, before every view of pages, the admin site and the API: a second factor where the policy
requires one, and fresh proof of identity for sensitive actions (`tools/web/proof.py`). Requests
with bearer tokens are exempt: creating a token needed the proof.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, resolve_url
from django.urls import ResolverMatch
from django_htmx.http import HttpResponseClientRedirect

from config.http import errors
from tools.accounts.login import freshness, second_factors
from tools.models import User
from tools.ui.accounts import again
from tools.web.proof import SAFE, asks

API, CALLED = "/api/", "/api/v1/"
PROBES = frozenset({"/healthz", "/readyz", "/metrics", "/csp-report"})
# Open to users who still have to set up a second factor.
OPEN = frozenset({
    "login", "logout", "second-factor", "single-sign-on", "single-sign-on-back", "login-again",
    "factors", "factor-app", "factor-key",
})  # fmt: skip
ADMINISTRATION = "admin"  # every change there needs proof: users, permissions, keys


class ReauthenticationMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], _: Any, place_of: dict[str, Any]
    ) -> HttpResponse | None:
        place = request.resolver_match
        if place is None or request.path in PROBES or _by_token(request):
            return None
        if not isinstance(request.user, User):
            return None
        if place.url_name not in OPEN and _owes_a_factor(request, request.user):
            return _to_the_factor(request, request.user)
        if freshness.is_fresh(request.session) or not _needs_proof(request, place, view, place_of):
            return None
        if request.path.startswith(API) and not _navigates(request):
            return _told("fresh_authentication_needed", "Prove again who you are: /login/again/.")
        return again.ask(request)


def _needs_proof(
    request: HttpRequest, place: ResolverMatch, view: Callable[..., Any], place_of: dict[str, Any]
) -> bool:
    if ADMINISTRATION in place.namespaces:
        return request.method not in SAFE
    return asks(view, request, place_of)


def _by_token(request: HttpRequest) -> bool:
    """The API then ignores the session (tools/api/common/authentication.py)."""
    return request.path.startswith(CALLED) and "Authorization" in request.headers


def _owes_a_factor(request: HttpRequest, user: User) -> bool:
    return not freshness.proven(request.session) and second_factors.must_have(user)


def _to_the_factor(request: HttpRequest, user: User) -> HttpResponse:
    if request.path.startswith(API):
        return _told("second_factor_needed", "Set up a second factor first: /profile/factors/.")
    where = "factors"
    if second_factors.has_factor(user):  # proven in another browser, not in this one
        request.session.flush()
        where = "login"
    if getattr(request, "htmx", None):
        return HttpResponseClientRedirect(resolve_url(where))
    return redirect(where)


def _navigates(request: HttpRequest) -> bool:
    """Whether a browser follows a link, as opposed to a request by a script."""
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _told(code: str, message: str) -> HttpResponse:
    return JsonResponse(errors.error_body(code, message), status=403)
