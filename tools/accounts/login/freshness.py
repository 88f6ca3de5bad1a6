"""Stores in the session when a person last authenticated, and by which factor."""

import time

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.backends.base import SessionBase
from django.dispatch import receiver
from django.http import HttpRequest

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
