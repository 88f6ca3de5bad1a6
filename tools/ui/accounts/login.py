"""Login by password and second factor, and logout by POST. Both write audit records."""

from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate, logout
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from audit.actions import record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of
from tools.accounts.login import identity_provider
from tools.accounts.login.lockout import guarded
from tools.errors import ToolcribError
from tools.models import AuthenticatorApp, User
from tools.ui.access import PageRequest, address_of, page
from tools.ui.accounts import entering, proving
from tools.ui.accounts.entering import Entering, admit, safe_next
from tools.web.reauthentication import Proof, proof

PAGE, SECOND = "accounts/login.html", "accounts/second_factor.html"
WRONG = "That name and password do not belong together. Check both and try again."
WRONG_CODE = "That code is not right, or was used before. Wait for the next one and try again."
AGAIN = "That page was open for too long, or your browser keeps no cookies. Log in again."
WRONG_KEY = "That key was not accepted. Try again."


@proof(Proof.NOT_NEEDED)
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def log_in(request: HttpRequest) -> HttpResponse:
    onwards = safe_next(request)
    if request.method == "POST":
        return _try_to_enter(request, onwards)
    if request.user.is_authenticated:
        return redirect(onwards)
    again = {"message": AGAIN} if "again" in request.GET else {}
    return render(request, PAGE, _context(onwards) | again)


@proof(Proof.NOT_NEEDED)
@never_cache
@sensitive_post_parameters("code", "key")
@require_http_methods(["GET", "HEAD", "POST"])
def second_factor(request: HttpRequest) -> HttpResponse:
    """Asks for the second factor of a pending login; without one, redirects to the login."""
    who = entering.waiting(request)
    if who is None:
        return redirect("login")
    if request.method != "POST":
        return render(request, SECOND, _second_context(request, who))
    code, key = (request.POST.get(name, "") for name in ("code", "key"))
    try:
        factor = proving.factor_proven(request, who.user, code=code, key=key, recovers=True)
    except ToolcribError as refusal:
        return proving.refused(request, SECOND, _second_context(request, who), refusal)
    if factor:
        return entering.enter(request, who, factor)
    context = _second_context(request, who) | {"message": WRONG_KEY if key else WRONG_CODE}
    return render(request, SECOND, context, status=401)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def log_out(request: PageRequest) -> HttpResponseBase:
    record(Event.LOGOUT, by=actor_of(request.caller), outcome=Outcome.SUCCESS)
    logout(request)
    return redirect("login")


def _try_to_enter(request: HttpRequest, onwards: str) -> HttpResponse:
    username = request.POST.get("username", "")[:150]
    password = request.POST.get("password", "")
    context = _context(onwards) | {"username": username}
    try:
        user = _known(request, username, password)
    except ToolcribError as refusal:
        return proving.refused(request, PAGE, context, refusal)
    if user is None:
        return render(request, PAGE, context | {"message": WRONG}, status=401)
    return admit(request, user, onwards, how="password")


def _known(request: HttpRequest, username: str, password: str) -> User | None:
    """Raises `TooManyAttempts`."""
    with guarded(username=username, source_ip=address_of(request)) as attempt:
        user = authenticate(request, username=username, password=password)
        if user is not None:
            attempt.succeeded()
    return user


def _context(onwards: str) -> dict[str, Any]:
    provider = settings.OIDC_NAME if identity_provider.configured() else ""
    return {"next": onwards, "provider": provider}


def _second_context(request: HttpRequest, who: Entering) -> dict[str, Any]:
    return {
        "who": who.user,
        "has_app": AuthenticatorApp.objects.filter(user=who.user).exists(),
        "options": proving.key_options(request, who.user),
    }
