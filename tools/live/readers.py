"""Readers of streams: logged-in users, and which calls they may be notified of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session as BrowserSession
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from tools.accounts.people import holders
from tools.models import User


@dataclass(frozen=True, slots=True)
class LiveReader:
    organization_id: UUID
    user_id: UUID
    everyone: bool  # may see the calls of others
    decides: bool  # may see calls that await approval


def load_readers(keys: Iterable[str]) -> dict[str, LiveReader]:
    """The logged-in user of each session key, in six queries; other keys are left out."""
    sessions = BrowserSession.objects.filter(
        session_key__in=list(keys), expire_date__gt=timezone.now()
    )
    found = {row.session_key: row.get_decoded() for row in sessions}
    ids = {pk for data in found.values() if (pk := _user_id(data)) is not None}
    people = {user.pk: user for user in User.objects.filter(pk__in=ids, is_active=True)}
    return dict(_authenticate(found, people))


def _authenticate(
    found: Mapping[str, Mapping[str, Any]], people: Mapping[UUID, User]
) -> Iterable[tuple[str, LiveReader]]:
    everyone = holders(people, "view_execution")
    decide = holders(people, "view_confirmation") | holders(people, "decide_confirmation")
    for key, data in found.items():
        user = people.get(_user_id(data))  # type: ignore[arg-type]
        if user is not None and _is_session_valid(user, data):
            pk = user.pk
            yield key, LiveReader(user.organization_id, pk, pk in everyone, pk in decide)


def _user_id(data: Mapping[str, Any]) -> UUID | None:
    try:
        return UUID(str(data.get(SESSION_KEY)))
    except ValueError:
        return None


def _is_session_valid(user: User, data: Mapping[str, Any]) -> bool:
    """As Django's own `get_user` asks it; a password that was changed ends a session as well."""
    known = data.get(BACKEND_SESSION_KEY) in settings.AUTHENTICATION_BACKENDS
    given = str(data.get(HASH_SESSION_KEY, ""))
    right = constant_time_compare(given, user.get_session_auth_hash())
    return known and right and not user.is_service_account
