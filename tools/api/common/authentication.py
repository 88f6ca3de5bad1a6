"""Authenticates requests: an agent or a person with a bearer token, or a person with a browser
session; and what its scopes allow and how often it may read. An invalid or expired token is refused
in `tools.accounts.token_authentication`."""

from typing import Any

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from config.http import request_queue
from tools.accounts.callers import caller_of_user
from tools.accounts.grants.narrowing import check_not_narrowed
from tools.accounts.organizations import acting_in
from tools.accounts.token_authentication import caller_of_token
from tools.accounts.user_permissions import may
from tools.definitions.callers import MANAGING_SCOPES, Caller, CallerKind, Scope
from tools.definitions.results import Rate
from tools.errors import Forbidden, Unauthenticated
from tools.limits import rate_limits

HEADER = 'Bearer realm="toolcrib"'


class TokenHolder:
    """What `request.user` is behind a bearer token; `request.auth` is the caller."""

    is_authenticated = True
    is_active = True

    def __init__(self, caller: Caller) -> None:
        self.pk = caller.user_id
        self.username = caller.name
        self.organization_slug = caller.organization
        self._caller = caller

    def has_perm(self, permission: str, obj: object = None) -> bool:
        """What Django's own checks ask; agents hold none (DESIGN, decision 16)."""
        return obj is None and may(self._caller, permission)

    def __str__(self) -> str:
        return self.username


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer tcr_…`; never a cookie, never the address."""

    def authenticate(self, request: Request) -> tuple[Any, Caller] | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            raise Unauthenticated("Send the token as: Authorization: Bearer tcr_…")
        caller = caller_of_token(token.strip(), source_ip=source_ip(request))
        request_queue.set_organization(caller.organization_id)
        if caller.kind == CallerKind.PERSON:
            caller = acting_in(caller, request.headers.get("X-Organization"))
        return TokenHolder(caller), caller

    def authenticate_header(self, request: Request) -> str:
        return HEADER


class PersonAuthentication(SessionAuthentication):
    """The browser's session, with its CSRF token on every unsafe method."""

    def authenticate(self, request: Request) -> tuple[Any, Caller] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        user = found[0]
        caller = caller_of_user(user, source_ip=source_ip(request))
        request_queue.set_organization(caller.organization_id)
        return user, acting_in(caller, request.headers.get("X-Organization"))

    def authenticate_header(self, request: Request) -> str:
        return HEADER


def source_ip(request: Request) -> str:
    """Of the client, behind trusted proxies too (config/server.py)."""
    return str(request.META.get("REMOTE_ADDR", ""))[:45]


_MANAGING = MANAGING_SCOPES | {Scope.MANAGE}


class MayUseApi(BasePermission):
    """Deny by default: a caller is needed, and a token whose scopes cover the method.

    A view may name the scope of its unsafe methods as `scope`; without one all managing scopes are
    needed. A token that is narrowed to groups or tools manages only where the view says
    `narrowable`, and checks its row.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.auth, Caller):
            return False
        needed = (
            Scope.READ if request.method in SAFE_METHODS else getattr(view, "scope", Scope.MANAGE)
        )
        if not request.auth.allows(needed):
            raise Forbidden(f"This token lacks the scope {needed}.", code="scope_missing")
        if needed in _MANAGING and not getattr(view, "narrowable", False):
            check_not_narrowed(request.auth)
        return True


READ_METHODS = frozenset({"GET", "HEAD"})


def note_rate(request: Request, name: str, rate: Rate | None) -> None:
    """For the headers of the answer (config/middleware.py)."""
    request._request.rate = (name, rate)  # type: ignore[attr-defined]


class ReadThrottle(BaseThrottle):
    """Calls have limits of their own, and changes cost a row of evidence each."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Raises `RateLimited`, which has more details than DRF's error."""
        if request.method in READ_METHODS and isinstance(request.auth, Caller):
            note_rate(request, "read", rate_limits.count_read(request.auth))
        return True
