"""Login after the first factor (password or single sign-on): asks for the second factor where the
user has one. Until then no user is logged in; the session holds the pending login for minutes."""

import time
from dataclasses import dataclass

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.crypto import constant_time_compare

from audit.actions import record
from audit.events import Event, Outcome
from config.http.browser_security import safe_redirect_path
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import freshness, second_factors
from tools.accounts.login.login import PeopleBackend
from tools.models import User
from tools.ui.access import address_of

_BACKEND = f"{PeopleBackend.__module__}.{PeopleBackend.__name__}"
_WAITS = "entering"
_LASTS_S = 600


@dataclass(frozen=True)
class Entering:
    """A pending login: the user, the first factor, and the page to open afterwards."""

    user: User
    how: str
    onwards: str


def admit(
    request: HttpRequest, user: User, onwards: str, *, how: str, factor: str = ""
) -> HttpResponse:
    """Log in, or ask for the user's second factor unless `factor` is proven already."""
    if factor or not second_factors.has_factor(user):
        return enter(request, Entering(user, how, onwards), factor)
    request.session.flush()  # logs the previous user out
    request.session[_WAITS] = {
        "user": str(user.pk),
        "hash": user.get_session_auth_hash(),
        "how": how,
        "onwards": onwards,
        "until": int(time.time()) + _LASTS_S,
    }
    request.session.set_expiry(_LASTS_S)
    return redirect("second-factor")


def waiting(request: HttpRequest) -> Entering | None:
    """The pending login; None once it expired, the password changed or the account was closed."""
    held = request.session.get(_WAITS)
    if not held or held["until"] < time.time():
        return None
    user = PeopleBackend().get_user(held["user"])
    if user is None or not constant_time_compare(held["hash"], user.get_session_auth_hash()):
        return None
    return Entering(user, held["how"], held["onwards"])


def enter(request: HttpRequest, who: Entering, factor: str = "") -> HttpResponse:
    request.session.pop(_WAITS, None)
    request.session.pop(freshness.FACTOR, None)
    login(request, who.user, backend=_BACKEND)
    request.session.set_expiry(None)  # the lifetime of every session
    if factor:
        freshness.prove(request.session, factor)
    by = actor_of(caller_of_user(who.user, source_ip=address_of(request)))
    details = {"by": who.how, "second_factor": factor or "none"}
    record(Event.LOGIN, by=by, outcome=Outcome.SUCCESS, details=details)
    return redirect(who.onwards)


def safe_next(request: HttpRequest, otherwise: str = "home") -> str:
    """The page to open afterwards: always an address of the product (no open redirect)."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    return safe_redirect_path(wanted, resolve_url(otherwise))
