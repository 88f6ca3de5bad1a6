"""Second factors of people: which ones they have, whether one is required, and their removal.

A second factor is an authenticator app or a security key. Recovery codes replace it, each once;
they are made with the first factor and go with the last.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.grants.impersonation import check_may_stand_in
from tools.accounts.login import person_sessions, recovery_codes
from tools.definitions.callers import Caller
from tools.errors import Conflict, NotFound
from tools.models import AuthenticatorApp, RecoveryCode, SecurityKey, User

NOBODY, PRIVILEGED, EVERYBODY = "nobody", "privileged", "everybody"
WHO = (NOBODY, PRIVILEGED, EVERYBODY)
# Permissions that require one: of approvers, who decide what runs, and of administrators.
PRIVILEGES = ("tools.decide_confirmation", "tools.add_user", "tools.change_user")
APP, KEY, RECOVERY = "authenticator app", "security key", "recovery code"


@dataclass(frozen=True)
class Factors:
    """The second factors of a person."""

    app: AuthenticatorApp | None
    keys: list[SecurityKey]
    codes_left: int

    def __bool__(self) -> bool:
        return bool(self.app or self.keys)


def factors_of(user: User) -> Factors:
    return Factors(
        AuthenticatorApp.objects.filter(user=user).first(),
        [*SecurityKey.objects.filter(user=user)],
        RecoveryCode.objects.unused().filter(user=user).count(),
    )


def has_factor(user: User) -> bool:
    return (
        AuthenticatorApp.objects.filter(user=user).exists()
        or SecurityKey.objects.filter(user=user).exists()
    )


def must_have(user: User) -> bool:
    """By the policy of this installation."""
    if settings.MFA_REQUIRED == PRIVILEGED:
        return user.is_superuser or any(user.has_perm(name) for name in PRIVILEGES)
    return bool(settings.MFA_REQUIRED == EVERYBODY)


@transaction.atomic
def added(user: User, factor: str, *, by: Actor, **more: Any) -> list[str]:
    """Audits a new factor. For the first one, returns the recovery codes, to be shown once."""
    _note(Event.SECOND_FACTOR_ADD, user, by, factor=factor, **more)
    if RecoveryCode.objects.filter(user=user).exists():
        return []
    return recovery_codes.make(user=user, by=by)


@transaction.atomic
def remove_app(*, user: User, by: Actor) -> None:
    """Raises `NotFound`, and `Conflict` for the last factor of a person who must have one."""
    locked = _locked(user)
    gone, _ = AuthenticatorApp.objects.filter(user=locked).delete()
    _removed(locked, bool(gone), APP, by)


@transaction.atomic
def remove_key(*, user: User, key_id: UUID, by: Actor) -> None:
    """The same for one security key."""
    locked = _locked(user)
    found = SecurityKey.objects.filter(user=locked, pk=key_id).first()
    gone = found.delete() if found else None
    _removed(locked, bool(gone), KEY, by, name=found.name if found else "")


@transaction.atomic
def reset(*, person: User, giver: Caller | None, by: Actor) -> bool:
    """Remove every factor of a person who lost theirs, and log them out. False where there was
    none.

    Raises `Forbidden` where the person holds more than `giver`; None is the operator.
    """
    if giver is not None:
        check_may_stand_in(giver, person)
    locked = _locked(person)
    had = has_factor(locked)
    for model in (AuthenticatorApp, SecurityKey, RecoveryCode):
        model.objects.filter(user=locked).delete()
    if had:
        _note(Event.SECOND_FACTOR_RESET, locked, by)
        person_sessions.end(user=locked, by=by)
    return had


def _removed(user: User, was: bool, factor: str, by: Actor, **more: str) -> None:
    if not was:
        raise NotFound("You have no such second factor.", code="second_factor_not_found")
    left = has_factor(user)
    if not left and must_have(user):
        raise Conflict(
            "You must have a second factor. Set up another one first.",
            code="second_factor_needed",
        )
    if not left:
        RecoveryCode.objects.filter(user=user).delete()
    _note(Event.SECOND_FACTOR_REMOVE, user, by, factor=factor, **more)


def _locked(user: User) -> User:
    """One change of a person's factors at a time."""
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _note(event: Event, user: User, by: Actor, **details: Any) -> None:
    subject = f"user:{user.username}"
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
