"""Login of people: which accounts may log in, the browser session that a login opens, how long ago
a person authenticated in it, and by which second factor.

Service accounts never log in. Each browser session is recorded at login; ending one is final. The
path of `PeopleBackend` is stored in sessions.
"""

import time
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session as BrowserSession
from django.dispatch import receiver
from django.http import HttpRequest

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.models import PersonSession, User

AUTHENTICATED_AT, FACTOR = "authenticated_at", "second_factor"
_MAX_USER_AGENT = 200


class PeopleBackend(ModelBackend):
    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        is_service = getattr(user, "is_service_account", False)
        return not is_service and super().user_can_authenticate(user)


@receiver(user_logged_in)
def record_login(request: HttpRequest, **_: object) -> None:
    record_authentication(request.session)


def record_authentication(session: SessionBase, at: float | None = None) -> None:
    """Store the time of authentication: now, or earlier for an identity provider, which may have
    authenticated the person hours ago."""
    session[AUTHENTICATED_AT] = int(time.time() if at is None else min(at, time.time()))


def is_fresh(session: SessionBase) -> bool:
    """False for a session without a time, and for one whose time is in the future."""
    age = time.time() - session.get(AUTHENTICATED_AT, 0)
    return -60 <= age < settings.FRESH_SECONDS


def record_factor(session: SessionBase, factor: str) -> None:
    """Store the second factor that the session was opened with, or that was set up in it."""
    session[FACTOR] = factor


def has_proven_factor(session: SessionBase) -> bool:
    return FACTOR in session


@receiver(user_logged_in)
def record_session(request: HttpRequest, user: User, **_: Any) -> PersonSession:
    """Record a session; safe to repeat. From now on it has the default lifetime, however short it
    was before login."""
    request.session.set_expiry(None)
    if request.session.session_key is None:
        request.session.save()
    agent = request.META.get("HTTP_USER_AGENT", "").replace("\x00", "")
    recorded: PersonSession = PersonSession.objects.get_or_create(
        session_id=request.session.session_key,
        defaults={
            "user": user,
            "source_ip": str(request.META.get("REMOTE_ADDR", ""))[:45],
            "user_agent": agent[:_MAX_USER_AGENT],
        },
    )[0]
    return recorded


def end_sessions(
    *, user: User, by: Actor, except_for: PersonSession | None = None, only: Any = None
) -> int:
    """End every session of a person, all `except_for` one, or `only` one; how many were ended."""
    rows = PersonSession.objects.filter(user=user)
    if except_for is not None:
        rows = rows.exclude(pk=except_for.pk)
    if only is not None:
        rows = rows.filter(pk=only)
    keys = [*rows.values_list("session_id", flat=True)]
    BrowserSession.objects.filter(pk__in=keys).delete()  # their records are deleted with them
    if keys:
        details = {"sessions": len(keys)}
        subject = f"user:{user.username}"
        record(Event.SESSIONS_END, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
    return len(keys)
