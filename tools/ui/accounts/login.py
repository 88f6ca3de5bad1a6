"""Login by password and second factor, and logout by POST. All write audit records.

After the first factor (password or single sign-on) the second factor is asked for, where the
user has one. Until then no user is logged in; the session holds the pending login for minutes.
"""

import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from audit.actions import record
from audit.events import Event, Outcome
from config.http.browser_security import safe_redirect_path
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import second_factors, security_keys, single_sign_on
from tools.accounts.login.lockout import SECOND_FACTOR, limit_attempts
from tools.accounts.login.login import FACTOR, PeopleBackend, record_factor
from tools.accounts.login.second_factors import verify_code
from tools.errors import ToolcribError
from tools.models import AuthenticatorApp, User
from tools.web.pages import PageRequest, action_page, address_of
from tools.web.reauthentication import Proof, proof

PAGE, SECOND_FACTOR_PAGE = "accounts/login.html", "accounts/second_factor.html"
WRONG_LOGIN = "That name and password do not belong together. Check both and try again."
WRONG_CODE = "That code is not right, or was used before. Wait for the next one and try again."
LOGIN_EXPIRED = "That page was open for too long, or your browser keeps no cookies. Log in again."
WRONG_KEY = "That key was not accepted. Try again."
_BACKEND = f"{PeopleBackend.__module__}.{PeopleBackend.__name__}"
_SESSION_KEY = "entering"
_PENDING_LOGIN_S = 600


@dataclass(frozen=True)
class PendingLogin:
    """A pending login: the user, the first factor, and the page to open afterwards."""

    user: User
    how: str
    onwards: str


def verify_factor(
    request: HttpRequest, user: User, *, code: str, key: str, recovers: bool = False
) -> str:
    """The second factor that was verified; empty where none was. Raises `TooManyAttempts`."""
    address = address_of(request)
    with limit_attempts(username=user.username, source_ip=address, what=SECOND_FACTOR) as attempt:
        found = _verified_factor(request, user, code, key, recovers)
        if found:
            attempt.succeeded()
    return found


def key_options(request: HttpRequest, user: User) -> str:
    """The WebAuthn request options for the user's keys; empty where they have none at this host."""
    place = security_keys.relying_party(request)
    if not security_keys.has_usable_key(user, place):
        return ""
    return security_keys.begin_authentication(user, place, request.session)


def render_refusal(
    request: HttpRequest, template: str, context: dict[str, object], refusal: ToolcribError
) -> HttpResponse:
    """The page again with the refusal, and with `Retry-After`."""
    said = context | {"message": refusal.message}
    answer = render(request, template, said, status=refusal.http_status)
    if refusal.wait_s:
        answer["Retry-After"] = str(refusal.wait_s)
    return answer


def continue_login(
    request: HttpRequest, user: User, onwards: str, *, how: str, factor: str = ""
) -> HttpResponse:
    """Log in, or ask for the user's second factor unless `factor` is proven already."""
    if factor or not second_factors.has_factor(user):
        return complete_login(request, PendingLogin(user, how, onwards), factor)
    request.session.flush()  # logs the previous user out
    request.session[_SESSION_KEY] = {
        "user": str(user.pk),
        "hash": user.get_session_auth_hash(),
        "how": how,
        "onwards": onwards,
        "until": int(time.time()) + _PENDING_LOGIN_S,
    }
    request.session.set_expiry(_PENDING_LOGIN_S)
    return redirect("second-factor")


def pending_login(request: HttpRequest) -> PendingLogin | None:
    """The pending login; None once it expired, the password changed or the account was closed."""
    held = request.session.get(_SESSION_KEY)
    if not held or held["until"] < time.time():
        return None
    user = PeopleBackend().get_user(held["user"])
    if user is None or not constant_time_compare(held["hash"], user.get_session_auth_hash()):
        return None
    return PendingLogin(user, held["how"], held["onwards"])


def complete_login(request: HttpRequest, who: PendingLogin, factor: str = "") -> HttpResponse:
    request.session.pop(_SESSION_KEY, None)
    request.session.pop(FACTOR, None)
    login(request, who.user, backend=_BACKEND)
    request.session.set_expiry(None)  # the lifetime of every session
    if factor:
        record_factor(request.session, factor)
    by = actor_of(caller_of_user(who.user, source_ip=address_of(request)))
    details = {"by": who.how, "second_factor": factor or "none"}
    record(Event.LOGIN, by=by, outcome=Outcome.SUCCESS, details=details)
    return redirect(who.onwards)


def next_address(request: HttpRequest, otherwise: str = "home") -> str:
    """The page to open afterwards: always an address of the product (no open redirect)."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    return safe_redirect_path(wanted, resolve_url(otherwise))


@proof(Proof.NOT_NEEDED)
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def log_in(request: HttpRequest) -> HttpResponse:
    onwards = next_address(request)
    if request.method == "POST":
        return _log_in_by_password(request, onwards)
    if request.user.is_authenticated:
        return redirect(onwards)
    again = {"message": LOGIN_EXPIRED} if "again" in request.GET else {}
    return render(request, PAGE, _login_context(onwards) | again)


@proof(Proof.NOT_NEEDED)
@never_cache
@sensitive_post_parameters("code", "key")
@require_http_methods(["GET", "HEAD", "POST"])
def second_factor(request: HttpRequest) -> HttpResponse:
    """Asks for the second factor of a pending login; without one, redirects to the login."""
    who = pending_login(request)
    if who is None:
        return redirect("login")
    if request.method != "POST":
        return render(request, SECOND_FACTOR_PAGE, _second_factor_context(request, who))
    code, key = (request.POST.get(name, "") for name in ("code", "key"))
    try:
        factor = verify_factor(request, who.user, code=code, key=key, recovers=True)
    except ToolcribError as refusal:
        return render_refusal(
            request, SECOND_FACTOR_PAGE, _second_factor_context(request, who), refusal
        )
    if factor:
        return complete_login(request, who, factor)
    context = _second_factor_context(request, who) | {"message": WRONG_KEY if key else WRONG_CODE}
    return render(request, SECOND_FACTOR_PAGE, context, status=401)


@action_page(Proof.NOT_NEEDED)
def log_out(request: PageRequest) -> HttpResponseBase:
    record(Event.LOGOUT, by=actor_of(request.caller), outcome=Outcome.SUCCESS)
    logout(request)
    return redirect("login")


def _verified_factor(request: HttpRequest, user: User, code: str, key: str, recovers: bool) -> str:
    if key:
        place, session = security_keys.relying_party(request), request.session
        good = security_keys.verify_assertion(user=user, answer=key, place=place, session=session)
        return second_factors.KEY if good else ""
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    return verify_code(user=user, code=code, by=by, recovers=recovers)


def _log_in_by_password(request: HttpRequest, onwards: str) -> HttpResponse:
    username = request.POST.get("username", "")[:150]
    password = request.POST.get("password", "")
    context = _login_context(onwards) | {"username": username}
    try:
        user = _authenticate(request, username, password)
    except ToolcribError as refusal:
        return render_refusal(request, PAGE, context, refusal)
    if user is None:
        return render(request, PAGE, context | {"message": WRONG_LOGIN}, status=401)
    return continue_login(request, user, onwards, how="password")


def _authenticate(request: HttpRequest, username: str, password: str) -> User | None:
    """Raises `TooManyAttempts`."""
    with limit_attempts(username=username, source_ip=address_of(request)) as attempt:
        user = authenticate(request, username=username, password=password)
        if user is not None:
            attempt.succeeded()
    return user


def _login_context(onwards: str) -> dict[str, Any]:
    provider = settings.OIDC_NAME if single_sign_on.is_configured() else ""
    return {"next": onwards, "provider": provider}


def _second_factor_context(request: HttpRequest, who: PendingLogin) -> dict[str, Any]:
    return {
        "who": who.user,
        "has_app": AuthenticatorApp.objects.filter(user=who.user).exists(),
        "options": key_options(request, who.user),
    }
