"""Browser sessions of a person. Each is recorded at login; ending one is final."""

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.models import Session as BrowserSession
from django.dispatch import receiver
from django.http import HttpRequest

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.models import PersonSession, User

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
