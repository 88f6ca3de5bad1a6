"""Second factors of people: which ones they have, whether one is required, and their removal.

A second factor is an authenticator app (TOTP, RFC 6238: six-digit codes that change each half
minute) or a security key (`security_keys`). Recovery codes replace it, each once; they are created
with the first factor and deleted with the last.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives import constant_time
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.grants.impersonation import check_may_impersonate
from tools.accounts.login import login
from tools.catalog.signatures import sealed_texts
from tools.definitions.callers import Caller
from tools.errors import Conflict, Malformed, NotFound
from tools.models import AuthenticatorApp, RecoveryCode, SecurityKey, User

NOBODY, PRIVILEGED, EVERYBODY = "nobody", "privileged", "everybody"
MFA_POLICIES = (NOBODY, PRIVILEGED, EVERYBODY)
# Permissions that require one: of approvers, who decide what runs, and of administrators.
PRIVILEGES = ("tools.decide_confirmation", "tools.add_user", "tools.change_user")
APP, KEY, RECOVERY = "authenticator app", "security key", "recovery code"
DIGITS, STEP_S = 6, 30
_SECRET_BYTES = 20
_DRIFT = (-1, 0, 1)  # clock drift of the person's device, in steps
ISSUER = "Toolcrib"
RECOVERY_CODES = 10
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without characters that look alike
_RECOVERY_CODE_LENGTH = 16  # 79 bits cannot be guessed, so a fast keyed hash is the right one
_MAX_CODE_LENGTH = 40


@dataclass(frozen=True)
class SecondFactors:
    """The second factors of a person."""

    app: AuthenticatorApp | None
    keys: list[SecurityKey]
    codes_left: int

    def __bool__(self) -> bool:
        return bool(self.app or self.keys)


def factors_of(user: User) -> SecondFactors:
    return SecondFactors(
        AuthenticatorApp.objects.filter(user=user).first(),
        [*SecurityKey.objects.filter(user=user)],
        RecoveryCode.objects.unused().filter(user=user).count(),
    )


def has_factor(user: User) -> bool:
    return (
        AuthenticatorApp.objects.filter(user=user).exists()
        or SecurityKey.objects.filter(user=user).exists()
    )


def requires_factor(user: User) -> bool:
    """Whether the policy of this installation requires a second factor of the user."""
    if settings.MFA_REQUIRED == PRIVILEGED:
        return user.is_superuser or any(user.has_perm(name) for name in PRIVILEGES)
    return bool(settings.MFA_REQUIRED == EVERYBODY)


@transaction.atomic
def record_added_factor(user: User, factor: str, *, by: Actor, **more: Any) -> list[str]:
    """Audits a new factor. For the first one, returns the recovery codes, to be shown once."""
    _record_event(Event.SECOND_FACTOR_ADD, user, by, factor=factor, **more)
    if RecoveryCode.objects.filter(user=user).exists():
        return []
    return make_recovery_codes(user=user, by=by)


@transaction.atomic
def remove_authenticator_app(*, user: User, by: Actor) -> None:
    """Raises `NotFound`, and `Conflict` for the last factor of a person who must have one."""
    locked = _lock_user(user)
    gone, _ = AuthenticatorApp.objects.filter(user=locked).delete()
    _record_removed_factor(locked, bool(gone), APP, by)


@transaction.atomic
def remove_security_key(*, user: User, key_id: UUID, by: Actor) -> None:
    """The same for one security key."""
    locked = _lock_user(user)
    found = SecurityKey.objects.filter(user=locked, pk=key_id).first()
    gone = found.delete() if found else None
    _record_removed_factor(locked, bool(gone), KEY, by, name=found.name if found else "")


@transaction.atomic
def reset_factors(*, person: User, giver: Caller | None, by: Actor) -> bool:
    """Remove every factor of a person who lost theirs, and log them out. False where there was
    none.

    Raises `Forbidden` where the person holds more than `giver`; None is the operator.
    """
    if giver is not None:
        check_may_impersonate(giver, person)
    locked = _lock_user(person)
    had = has_factor(locked)
    for model in (AuthenticatorApp, SecurityKey, RecoveryCode):
        model.objects.filter(user=locked).delete()
    if had:
        _record_event(Event.SECOND_FACTOR_RESET, locked, by)
        login.end_sessions(user=locked, by=by)
    return had


def _record_removed_factor(user: User, was: bool, factor: str, by: Actor, **more: str) -> None:
    if not was:
        raise NotFound("You have no such second factor.", code="second_factor_not_found")
    left = has_factor(user)
    if not left and requires_factor(user):
        raise Conflict(
            "You must have a second factor. Set up another one first.",
            code="second_factor_needed",
        )
    if not left:
        RecoveryCode.objects.filter(user=user).delete()
    _record_event(Event.SECOND_FACTOR_REMOVE, user, by, factor=factor, **more)


def _lock_user(user: User) -> User:
    """One change of a person's factors at a time."""
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _record_event(event: Event, user: User, by: Actor, **details: Any) -> None:
    subject = f"user:{user.username}"
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)


# --- codes ---
def verify_code(*, user: User, code: str, by: Actor, recovers: bool = True) -> str:
    """The kind of a valid code, which is thereby used up; empty for an invalid one. Call it
    `guarded`."""
    typed = "".join(code.split())[:_MAX_CODE_LENGTH]
    if is_app_code(typed):
        return APP if verify_app_code(user=user, code=typed) else ""
    if recovers and use_recovery_code(user=user, code=typed, by=by):
        return RECOVERY
    return ""


# --- authenticator apps ---
def new_app_secret() -> str:
    """As people type it into an app: base32."""
    return base64.b32encode(os.urandom(_SECRET_BYTES)).decode()


def provisioning_uri(secret: str, user: User) -> str:
    """The content of the QR code."""
    return _totp(secret).get_provisioning_uri(user.username, ISSUER)


@transaction.atomic
def add_authenticator_app(*, user: User, secret: str, code: str, by: Actor) -> list[str]:
    """The recovery codes, where this is the first factor. Raises `Malformed` for a code that the
    app does not show, `Conflict` where there is an app already."""
    step = _step_of(secret, code, after=0)
    if step is None:
        raise Malformed(
            "That is not the code that the app shows now. Check the clock of the device, and try "
            "the next code.",
            code="wrong_code",
        )
    locked = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if AuthenticatorApp.objects.filter(user=locked).exists():
        raise Conflict("You have an authenticator app. Remove it first.", code="app_exists")
    row = AuthenticatorApp(user=locked, last_step=step)
    row.sealed = sealed_texts.seal(
        secret, organization=user.organization_id, row=row.pk, purpose=sealed_texts.AUTHENTICATOR
    )
    row.save()
    return record_added_factor(locked, APP, by=by)


@transaction.atomic
def verify_app_code(*, user: User, code: str) -> bool:
    """Whether the app shows that code and it has not been used yet."""
    row = AuthenticatorApp.objects.select_for_update().filter(user=user).first()
    step = _step_of(_unseal_secret(row, user), code, after=row.last_step) if row else None
    if row is None or step is None:
        return False
    row.last_step, row.last_used_at = step, timezone.now()
    row.save(update_fields=["last_step", "last_used_at"])
    return True


def is_app_code(code: str) -> bool:
    return len(code) == DIGITS and code.isascii() and code.isdigit()


def _unseal_secret(row: AuthenticatorApp, user: User) -> str:
    """Empty if it was encrypted with another SECRET_KEY: then no code is valid."""
    try:
        return sealed_texts.unseal(
            bytes(row.sealed),
            organization=user.organization_id,
            row=row.pk,
            purpose=sealed_texts.AUTHENTICATOR,
        )
    except sealed_texts.UnreadableSealedText:
        return ""


def _step_of(secret: str, code: str, *, after: int) -> int | None:
    """The half minute whose code it is, near the present time and later than `after`."""
    if not secret or not is_app_code(code):
        return None
    now, totp = int(time.time()) // STEP_S, _totp(secret)
    good = [
        now + drift
        for drift in _DRIFT
        if constant_time.bytes_eq(totp.generate((now + drift) * STEP_S), code.encode())
    ]
    return next((step for step in good if step > after), None)


def _totp(secret: str) -> TOTP:
    """Every app supports SHA-1; its collisions do not weaken HMAC."""
    return TOTP(base64.b32decode(secret), DIGITS, SHA1(), STEP_S)  # noqa: S303


# --- recovery codes ---
@transaction.atomic
def make_recovery_codes(*, user: User, by: Actor) -> list[str]:
    """Replace the old codes with new ones, which are returned only now."""
    codes = [
        "".join(secrets.choice(_ALPHABET) for _ in range(_RECOVERY_CODE_LENGTH))
        for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(c)) for c in codes)
    _record_event(Event.RECOVERY_CODES_MAKE, user, by, codes=RECOVERY_CODES)
    return [_format_code(code) for code in codes]


@transaction.atomic
def use_recovery_code(*, user: User, code: str, by: Actor) -> bool:
    """Whether it was a code of the user that was unused until now."""
    if not RecoveryCode.objects.spend(user, _digest(_parse_code(code))):
        return False
    left = RecoveryCode.objects.unused().filter(user=user).count()
    _record_event(Event.RECOVERY_CODE_USE, user, by, left=left)
    return True


def _format_code(code: str) -> str:
    return "-".join(code[at : at + 4] for at in range(0, _RECOVERY_CODE_LENGTH, 4))


def _parse_code(typed: str) -> str:
    return "".join(character for character in typed.lower() if character.isalnum())


def _digest(code: str) -> str:
    """Keyed: with the database alone, no code can be tried."""
    key = hashlib.sha256(b"toolcrib recovery code " + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()
