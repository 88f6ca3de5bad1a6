"""In by password, out by POST. Both are evidence."""

from typing import Any

from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from audit.actions import record
from audit.events import Event, Outcome
from tools.errors import ToolcribError
from tools.models import User
from tools.policy.attempts import guarded
from tools.policy.callers import actor_of, caller_of_user
from tools.ui.access import PageRequest, address_of, page

WRONG = "That name and password do not belong together. Check both and try again."


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def log_in(request: HttpRequest) -> HttpResponse:
    onwards = _safe_next(request)
    if request.method == "POST":
        return _try_to_enter(request, onwards)
    if request.user.is_authenticated:
        return redirect(onwards)
    return render(request, "ui/login.html", {"next": onwards})


@require_POST
@page
def log_out(request: PageRequest) -> HttpResponseBase:
    record(Event.LOGOUT, by=actor_of(request.caller), outcome=Outcome.SUCCESS)
    logout(request)
    return redirect("login")


def _try_to_enter(request: HttpRequest, onwards: str) -> HttpResponse:
    username = request.POST.get("username", "")[:150].replace("\x00", "")
    password = request.POST.get("password", "").replace("\x00", "")
    context: dict[str, Any] = {"next": onwards, "username": username}
    try:
        user = _known(request, username, password)
    except ToolcribError as refusal:
        context["message"] = refusal.message
        page = render(request, "ui/login.html", context, status=refusal.http_status)
        if "resets_in_s" in refusal.details:
            page["Retry-After"] = str(refusal.details["resets_in_s"])
        return page
    if user is None:
        return render(request, "ui/login.html", context | {"message": WRONG}, status=401)
    login(request, user)
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    record(Event.LOGIN, by=by, outcome=Outcome.SUCCESS)
    return redirect(onwards)


def _known(request: HttpRequest, username: str, password: str) -> User | None:
    """Raises `TooManyAttempts`."""
    with guarded(username=username, source_ip=address_of(request)) as attempt:
        user = authenticate(request, username=username, password=password)
        if user is not None:
            attempt.succeeded()
    return user


def _safe_next(request: HttpRequest) -> str:
    """Where to go afterwards: an address of ours, whatever was asked for."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if safe else resolve_url("home")
