"""Decides which accounts may log in with a password: people, never service accounts."""

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


class PeopleBackend(ModelBackend):
    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        is_service = getattr(user, "is_service_account", False)
        return not is_service and super().user_can_authenticate(user)


AUTHENTICATED_AT, FACTOR = "authenticated_at", "second_factor"


@receiver(user_logged_in)
def record_login(request: HttpRequest, **_: object) -> None:
    record_authentication(request.session)


def record_authentication(session: SessionBase, at: float | None = None) -> None:
    """Now, or earlier for an identity provider, which may have authenticated the person hours
    ago."""
    session[AUTHENTICATED_AT] = int(time.time() if at is None else min(at, time.time()))


def is_fresh(session: SessionBase) -> bool:
    """False for a session without a time, and for one whose time is in the future."""
    age = time.time() - session.get(AUTHENTICATED_AT, 0)
    return -60 <= age < settings.FRESH_SECONDS


def record_factor(session: SessionBase, factor: str) -> None:
    """The second factor that the session was opened with, or its person has set up in it."""
    session[FACTOR] = factor


def has_proven_factor(session: SessionBase) -> bool:
    return FACTOR in session


_MAX_USER_AGENT = 200


@receiver(user_logged_in)
def record_session(request: HttpRequest, user: User, **_: Any) -> PersonSession:
    """Safe to repeat: a known session keeps its record. From now on it has the usual lifetime,
    however short it was before login."""
    request.session.set_expiry(None)
    if request.session.session_key is None:
        request.session.save()
    agent = request.META.get("HTTP_USER_AGENT", "").replace("\x00", "")
    noted: PersonSession = PersonSession.objects.get_or_create(
        session_id=request.session.session_key,
        defaults={
            "user": user,
            "source_ip": str(request.META.get("REMOTE_ADDR", ""))[:45],
            "user_agent": agent[:_MAX_USER_AGENT],
        },
    )[0]
    return noted


def end_sessions(
    *, user: User, by: Actor, but: PersonSession | None = None, only: Any = None
) -> int:
    """End every session of a person, all `but` one, or `only` one; how many there were."""
    wanted = PersonSession.objects.filter(user=user)
    if but is not None:
        wanted = wanted.exclude(pk=but.pk)
    if only is not None:
        wanted = wanted.filter(pk=only)
    keys = [*wanted.values_list("session_id", flat=True)]
    BrowserSession.objects.filter(pk__in=keys).delete()  # their records are deleted with them
    if keys:
        details = {"sessions": len(keys)}
        subject = f"user:{user.username}"
        record(Event.SESSIONS_END, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
    return len(keys)
