"""Verifies a code or a security key's signature that a user gives as a second factor."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import second_factors, security_keys
from tools.accounts.login.lockout import SECOND_FACTOR, limit_attempts
from tools.accounts.login.second_factors import verify_code
from tools.errors import ToolcribError
from tools.models import User
from tools.ui.access import address_of


def factor_proven(
    request: HttpRequest, user: User, *, code: str, key: str, recovers: bool = False
) -> str:
    """The second factor that was verified; empty where none was. Raises `TooManyAttempts`."""
    address = address_of(request)
    with limit_attempts(username=user.username, source_ip=address, what=SECOND_FACTOR) as attempt:
        found = _proven(request, user, code, key, recovers)
        if found:
            attempt.succeeded()
    return found


def key_options(request: HttpRequest, user: User) -> str:
    """The WebAuthn request options for the user's keys; empty where they have none at this host."""
    place = security_keys.relying_party(request)
    if not security_keys.has_usable_key(user, place):
        return ""
    return security_keys.begin_authentication(user, place, request.session)


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
        place, session = security_keys.relying_party(request), request.session
        good = security_keys.verify_assertion(user=user, answer=key, place=place, session=session)
        return second_factors.KEY if good else ""
    by = actor_of(caller_of_user(user, source_ip=address_of(request)))
    return verify_code(user=user, code=code, by=by, recovers=recovers)
