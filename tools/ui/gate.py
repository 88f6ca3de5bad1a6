"""What stands before every view, the administration's and the API's too, for who comes with a
browser's session: a second factor where the policy wants one, and proof that is not old where
something is decided, given away or handed out. Bearer tokens were made by somebody who was asked.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, resolve_url
from django.urls import ResolverMatch
from django_htmx.http import HttpResponseClientRedirect

from config import errors
from tools.models import User
from tools.policy import freshness, second_factors
from tools.ui import again

API, CALLED = "/api/", "/api/v1/"
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
# Open to who still has to set up a second factor.
OPEN = frozenset({
    "login", "logout", "second-factor", "single-sign-on", "single-sign-on-back", "login-again",
    "factors", "factor-app", "factor-key",
})  # fmt: skip
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# By the name of the address: what is asked for freshly, if only looked at too.
FRESH_ALWAYS = frozenset({
    "export", "tool-export", "knowledge-export", "key-distrust", "api-export", "api-audit-export",
    "audit-export-file", "factor-app", "factor-key",
})  # fmt: skip
# What is asked for freshly where it changes something.
FRESH_CHANGES = frozenset({
    "confirmations-decide", "licenses-change", "licenses-undo", "license-tier",
    "agent-token-new", "agent-give", "audit-exports", "settings-organization", "keys",
    "profile-token-new", "factor-codes", "factor-app-remove", "factor-key-remove",
    "single-sign-on-connect", "single-sign-on-disconnect", "channel-key", "server-credentials",
    "server-client", "api-confirmation-approve", "api-confirmation-reject",
    "api-confirmations-decide", "api-signing-keys", "api-signing-key-distrust",
    "api-agent-tokens", "api-grants", "api-grant", "api-organizations", "api-organization",
    "api-tier", "api-egress-credentials", "api-egress-credential", "api-channel-key",
    "api-mcp-credential", "api-mcp-oauth-client", "api-audit-erasures",
})  # fmt: skip
ADMINISTRATION = "admin"  # every change there: people, permissions, keys


class Gate:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        place = request.resolver_match
        if place is None or request.path in PROBES or _by_token(request):
            return None
        if not isinstance(request.user, User):
            return None
        if place.url_name not in OPEN and _owes_a_factor(request, request.user):
            return _to_the_factor(request, request.user)
        if not needs_fresh(place, request.method or "") or freshness.is_fresh(request.session):
            return None
        if request.path.startswith(API) and not _navigates(request):
            return _told("fresh_authentication_needed", "Prove again who you are: /login/again/.")
        return again.ask(request)


def needs_fresh(place: ResolverMatch, method: str) -> bool:
    if place.url_name in FRESH_ALWAYS:
        return True
    if method in SAFE:
        return False
    return place.url_name in FRESH_CHANGES or ADMINISTRATION in place.namespaces


def _by_token(request: HttpRequest) -> bool:
    """The API then looks at no session (tools/api/authentication.py)."""
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
    """A link that was followed, and no script that asks."""
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _told(code: str, message: str) -> HttpResponse:
    return JsonResponse(errors.body(code, message), status=403)
