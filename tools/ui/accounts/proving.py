"""Verifies a code or a security key's signature that a user gives as a second factor."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import second_factors, security_keys
from tools.accounts.login.codes import factor_of
from tools.accounts.login.lockout import SECOND_FACTOR, guarded
from tools.errors import ToolcribError
from tools.models import User
from tools.ui.access import address_of


def factor_proven(
    request: HttpRequest, user: User, *, code: str, key: str, recovers: bool = False
) -> str:
    """The second factor that was verified; empty where none was. Raises `TooManyAttempts`."""
    address = address_of(request)
    with guarded(username=user.username, source_ip=address, what=SECOND_FACTOR) as attempt:
        found = _proven(request, user, code, key, recovers)
        if found:
            attempt.succeeded()
    return found


def key_options(request: HttpRequest, user: User) -> str:
    """The WebAuthn request options for the user's keys; empty where they have none at this host."""
    place = security_keys.place_of(request)
    if not security_keys.usable(user, place):
        return ""
    return security_keys.begin_proving(user, place, request.session)


def refused(
    request: HttpRequest, template: str, context: dict[str, object], refusal: ToolcribError
) -> HttpResponse:
    """The page again with the refusal, and with `Retry-After`."""
    said = context | {"message": refusal.message}
    answer = render(request, template, said, status=refusal.http_status)
    wait_s = refusal.details.get("resets_in_s") or getattr(refusal, "retry_after_s", None)
    if wait_s:
        answer["Retry-After"] = str(wait_s)
    return answer


def _proven(request: HttpRequest, user: User, code: str, key: str, recovers: bool) -> str:
    if key:
        place, session = security_keys.place_of(request), request.session
        good = security_keys.verify(user=user, answer=key, place=place, session=session)
        return second_factors.KEY if good else ""
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    return factor_of(user=user, code=code, by=by, recovers=recovers)
