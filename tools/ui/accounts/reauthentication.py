"""Reauthentication: a logged-in user proves their identity again before a sensitive action, since
the browser may have been left open. The submitted form is encrypted into the page, then resumed.

The middleware enforces it for requests with a browser session, before every view of pages, the
admin site and the API: a second factor where the policy requires one, and fresh proof of
identity for sensitive actions (`tools/web/proof.py`). Requests with bearer tokens are exempt:
creating a token needed the proof.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.debug import sensitive_post_parameters
from django_htmx.http import HttpResponseClientRedirect

from audit.actions import record
from audit.events import Event, Outcome
from config.http import errors
from config.http.browser_security import safe_redirect_path
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import second_factors, single_sign_on
from tools.accounts.login.lockout import limit_attempts
from tools.accounts.login.login import has_proven_factor, is_fresh, record_authentication
from tools.errors import ToolcribError
from tools.models import AuthenticatorApp, SingleSignOn, User
from tools.ui.accounts import login
from tools.ui.accounts.login import next_address
from tools.web import sealed_forms
from tools.web.pages import PageRequest, address_of, form_page
from tools.web.reauthentication import SAFE_METHODS, Proof, needs_proof

PAGE, DONE_PAGE = "accounts/reauthentication.html", "accounts/reauthentication_done.html"
PROOF_FIELDS = ("again.password", "again.code", "again.key")
SEALED_FIELD = "again.sealed"
OWN_FIELDS = (*PROOF_FIELDS, SEALED_FIELD, "again.username", "csrfmiddlewaretoken")
SESSION_KEY = (
    "waits_for_proof"  # session key of the sealed form of an htmx request, and its address
)
DOWNLOADS = frozenset({"export", "tool-export", "knowledge-export", "api-export",
                       "api-audit-export", "audit-export-file"})  # fmt: skip
WRONG_PROOF = "That is not right. Try again."
API, API_V1 = "/api/", "/api/v1/"
PROBES = frozenset({"/healthz", "/readyz", "/metrics", "/csp-report"})
# Open to users who still have to set up a second factor.
OPEN_VIEWS = frozenset({
    "login", "logout", "second-factor", "single-sign-on", "single-sign-on-back", "login-again",
    "factors", "factor-app", "factor-key",
})  # fmt: skip
ADMIN_NAMESPACE = "admin"  # every change there needs proof: users, permissions, keys
_FORM_LOST = "What you were about to send is kept no longer. Go back, and send it again."
_MOST_IN_SESSION = 256 * 1024


class ReauthenticationMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], _: Any, place_of: dict[str, Any]
    ) -> HttpResponse | None:
        place = request.resolver_match
        if place is None or request.path in PROBES or _has_token(request):
            return None
        if not isinstance(request.user, User):
            return None
        if place.url_name not in OPEN_VIEWS and _lacks_factor(request, request.user):
            return _redirect_to_factor(request, request.user)
        if is_fresh(request.session) or not _needs_proof(request, place, view, place_of):
            return None
        if request.path.startswith(API) and not _is_navigation(request):
            return _api_refusal(
                "fresh_authentication_needed", "Prove again who you are: /login/again/."
            )
        return request_reauthentication(request)


@sensitive_post_parameters(*PROOF_FIELDS)
@form_page(Proof.NOT_NEEDED)
def reauthentication_page(request: PageRequest) -> HttpResponseBase:
    """Reauthentication before a page is opened, or for an htmx request within a page."""
    onwards = next_address(request)
    context: dict[str, Any] = {"next": onwards}
    if request.method != "POST":
        context |= request.session.pop(SESSION_KEY, {}) if "kept" in request.GET else {}
        return _forbid_storage(render(request, PAGE, context | _proof_context(request, onwards)))
    if (refused := _check_proof(request, context, onwards)) is not None:
        return refused
    if _is_download(onwards):
        return render(request, DONE_PAGE, context)
    return redirect(onwards)


def request_reauthentication(request: HttpRequest) -> HttpResponse | None:
    """The response that asks for reauthentication; None once the user has proven it."""
    htmx: Any = getattr(request, "htmx", None)
    back = (htmx.current_url_abs_path or "/") if htmx else _form_page_address(request)
    if request.method in ("GET", "HEAD"):
        return _redirect_to_reauthentication(request, back if htmx else request.get_full_path())
    if request.method != "POST":
        return _redirect_to_reauthentication(request, back)
    sealed = request.POST.get(SEALED_FIELD) or sealed_forms.seal_form(request, without=OWN_FIELDS)
    if sealed is None:
        return _redirect_to_reauthentication(request, back)
    context = {SEALED_FIELD.replace(".", "_"): sealed, "action": request.get_full_path()}
    if htmx:
        if len(sealed) <= _MOST_IN_SESSION:
            request.session[SESSION_KEY] = context
        return HttpResponseClientRedirect(f"{_reauthentication_address(back)}&kept=1")
    if not any(request.POST.get(name) for name in PROOF_FIELDS):
        return _forbid_storage(render(request, PAGE, context | _proof_context(request, back)))
    if (refused := _check_proof(request, context, back)) is not None:
        return _forbid_storage(refused)
    try:
        sealed_forms.restore_form(request, sealed)
    except sealed_forms.SealedFormInvalid:
        return errors.error_response(request, 400, _FORM_LOST)
    return None


def record_reauthentication(request: HttpRequest, user: User, how: str) -> None:
    record_authentication(request.session)
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    record(Event.AUTHENTICATED_AGAIN, by=by, outcome=Outcome.SUCCESS, details={"by": how})


def _redirect_to_reauthentication(request: HttpRequest, onwards: str) -> HttpResponse:
    if getattr(request, "htmx", None):
        return HttpResponseClientRedirect(_reauthentication_address(onwards))
    return redirect(_reauthentication_address(onwards))


def _check_proof(
    request: HttpRequest, context: dict[str, Any], onwards: str
) -> HttpResponse | None:
    """The page with the refusal; None where the user has proven their identity."""
    user = _logged_in_user(request)
    try:
        how = _proof_method(request, user)
    except ToolcribError as refusal:
        return login.render_refusal(
            request, PAGE, context | _proof_context(request, onwards), refusal
        )
    if not how:
        said = context | _proof_context(request, onwards) | {"message": WRONG_PROOF}
        return render(request, PAGE, said, status=401)
    record_reauthentication(request, user, how)
    return None


def _proof_method(request: HttpRequest, user: User) -> str:
    """The method of the proof; empty where it was wrong. Raises `TooManyAttempts`."""
    password, code, key = (request.POST.get(name, "") for name in PROOF_FIELDS)
    if code or key:
        return login.verify_factor(request, user, code=code, key=key)
    with limit_attempts(username=user.username, source_ip=address_of(request)) as attempt:
        good = user.check_password(password)
        if good:
            attempt.succeeded()
    return "password" if good else ""


def _proof_context(request: HttpRequest, onwards: str) -> dict[str, Any]:
    """The methods by which the user may prove their identity."""
    user = _logged_in_user(request)
    known = single_sign_on.is_configured() and (
        SingleSignOn.objects.filter(user=user, issuer=settings.OIDC_ISSUER).exists()
    )
    asked = urlencode({"again": "1", "next": onwards})
    return {
        "has_password": user.has_usable_password(),
        "has_app": AuthenticatorApp.objects.filter(user=user).exists(),
        "options": login.key_options(request, user),
        "provider": settings.OIDC_NAME if known else "",
        "provider_address": f"{resolve_url('single-sign-on')}?{asked}",
        "minutes": settings.FRESH_SECONDS // 60,
        "back": onwards,
    }


def _is_download(address: str) -> bool:
    try:
        return resolve(urlsplit(address).path).url_name in DOWNLOADS
    except Resolver404:
        return False


def _form_page_address(request: HttpRequest) -> str:
    """The page that the form was on."""
    referer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referer, allowed_hosts={request.get_host()}):
        return resolve_url("home")
    parts = urlsplit(referer)
    address = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return safe_redirect_path(address, resolve_url("home"))


def _reauthentication_address(onwards: str) -> str:
    return f"{resolve_url('login-again')}?{urlencode({'next': onwards})}"


def _logged_in_user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _forbid_storage(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response


def _needs_proof(
    request: HttpRequest, place: ResolverMatch, view: Callable[..., Any], place_of: dict[str, Any]
) -> bool:
    if ADMIN_NAMESPACE in place.namespaces:
        return request.method not in SAFE_METHODS
    return needs_proof(view, request, place_of)


def _has_token(request: HttpRequest) -> bool:
    """The API then ignores the session (tools/api/common/authentication.py)."""
    return request.path.startswith(API_V1) and "Authorization" in request.headers


def _lacks_factor(request: HttpRequest, user: User) -> bool:
    return not has_proven_factor(request.session) and second_factors.requires_factor(user)


def _redirect_to_factor(request: HttpRequest, user: User) -> HttpResponse:
    if request.path.startswith(API):
        return _api_refusal(
            "second_factor_needed", "Set up a second factor first: /profile/factors/."
        )
    where = "factors"
    if second_factors.has_factor(user):  # proven in another browser, not in this one
        request.session.flush()
        where = "login"
    if getattr(request, "htmx", None):
        return HttpResponseClientRedirect(resolve_url(where))
    return redirect(where)


def _is_navigation(request: HttpRequest) -> bool:
    """Whether a browser follows a link, as opposed to a request by a script."""
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _api_refusal(code: str, message: str) -> HttpResponse:
    return JsonResponse(errors.error_body(code, message), status=403)
