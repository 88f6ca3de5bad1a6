"""Asking somebody who is logged in to prove it again, before what must not be done from a browser
that was left open. What they were about to send is carried along in the form and sent then."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRedirect

from audit.actions import record
from audit.events import Event, Outcome
from tools.errors import ToolcribError
from tools.models import AuthenticatorApp, SingleSignOn, User
from tools.policy import freshness, identity_provider
from tools.policy.attempts import guarded
from tools.policy.callers import actor_of, caller_of_user
from tools.ui import proving
from tools.ui.access import PageRequest, address_of, page
from tools.ui.entering import safe_next

PAGE, DONE = "ui/again.html", "ui/again_done.html"
ANSWERS = ("again.password", "again.code", "again.key")
OURS = (*ANSWERS, "again.username", "csrfmiddlewaretoken")
DOWNLOADS = frozenset({"export", "tool-export", "knowledge-export", "api-export",
                       "api-audit-export", "audit-export-file"})  # fmt: skip
WRONG = "That is not right. Try again."
_MOST_CARRIED = 256 * 1024


@sensitive_post_parameters(*ANSWERS)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def again_page(request: PageRequest) -> HttpResponseBase:
    """For who was on the way to a page, or sends from within one."""
    onwards = safe_next(request)
    context = {"next": onwards}
    if request.method != "POST":
        return render(request, PAGE, context | _ways(request, onwards))
    if (refused := _refused(request, context, onwards)) is not None:
        return refused
    if _is_download(onwards):
        return render(request, DONE, context)
    return redirect(onwards)


def ask(request: HttpRequest) -> HttpResponse | None:
    """What stands in the way of a request that must be fresh; None once it is."""
    if getattr(request, "htmx", None):
        back = request.htmx.current_url_abs_path or "/"  # type: ignore[attr-defined]
        return HttpResponseClientRedirect(_address(back))
    if request.method in ("GET", "HEAD"):
        return redirect(_address(request.get_full_path()))
    if request.method != "POST" or request.FILES or not _is_carried(request.POST):
        return redirect(_address(_came_from(request)))
    context = {"carried": _carried(request.POST), "action": request.get_full_path()}
    if not any(request.POST.get(name) for name in ANSWERS):
        return _kept_nowhere(render(request, PAGE, context | _ways(request, _came_from(request))))
    if (refused := _refused(request, context, _came_from(request))) is not None:
        return _kept_nowhere(refused)
    sent = request.POST.copy()
    for name in OURS:
        sent.pop(name, None)
    request.POST = sent  # type: ignore[assignment]
    return None


def passed(request: HttpRequest, user: User, how: str) -> None:
    freshness.note(request.session)
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    record(Event.AUTHENTICATED_AGAIN, by=by, outcome=Outcome.SUCCESS, details={"by": how})


def _refused(request: HttpRequest, context: dict[str, Any], onwards: str) -> HttpResponse | None:
    """None where the person has proven themselves."""
    user = _person(request)
    try:
        how = _proven(request, user)
    except ToolcribError as refusal:
        return proving.refused(request, PAGE, context | _ways(request, onwards), refusal)
    if not how:
        said = context | _ways(request, onwards) | {"message": WRONG}
        return render(request, PAGE, said, status=401)
    passed(request, user, how)
    return None


def _proven(request: HttpRequest, user: User) -> str:
    """By what; empty where it was not right. Raises `TooManyAttempts`."""
    password, code, key = (request.POST.get(name, "").replace("\x00", "") for name in ANSWERS)
    if code or key:
        return proving.factor_proven(request, user, code=code, key=key)
    with guarded(username=user.username, source_ip=address_of(request)) as attempt:
        good = user.check_password(password)
        if good:
            attempt.succeeded()
    return "password" if good else ""


def _ways(request: HttpRequest, onwards: str) -> dict[str, Any]:
    """What the person may prove themselves by."""
    user = _person(request)
    known = identity_provider.configured() and (
        SingleSignOn.objects.filter(user=user, issuer=settings.OIDC_ISSUER).exists()
    )
    asked = urlencode({"again": "1", "next": onwards})
    return {
        "has_password": user.has_usable_password(),
        "has_app": AuthenticatorApp.objects.filter(user=user).exists(),
        "options": proving.key_options(request, user),
        "provider": settings.OIDC_NAME if known else "",
        "provider_address": f"{resolve_url('single-sign-on')}?{asked}",
        "minutes": settings.FRESH_SECONDS // 60,
        "back": onwards,
    }


def _carried(sent: QueryDict) -> list[tuple[str, str]]:
    return [(name, str(one)) for name, all_ in sent.lists() if name not in OURS for one in all_]


def _is_carried(sent: QueryDict) -> bool:
    return sum(len(name) + len(value) for name, value in _carried(sent)) <= _MOST_CARRIED


def _is_download(address: str) -> bool:
    try:
        return resolve(urlsplit(address).path).url_name in DOWNLOADS
    except Resolver404:
        return False


def _came_from(request: HttpRequest) -> str:
    """The page the form stood on."""
    referer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referer, allowed_hosts={request.get_host()}):
        return resolve_url("home")
    parts = urlsplit(referer)
    address = f"{parts.path}?{parts.query}" if parts.query else parts.path
    safe = url_has_allowed_host_and_scheme(address, allowed_hosts=None)
    return address if safe else resolve_url("home")


def _address(onwards: str) -> str:
    return f"{resolve_url('login-again')}?{urlencode({'next': onwards})}"


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _kept_nowhere(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response
