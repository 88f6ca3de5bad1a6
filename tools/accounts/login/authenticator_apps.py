"""Authenticator apps (TOTP, RFC 6238): six-digit codes that change each half minute."""

import base64
import os
import time

from cryptography.hazmat.primitives import constant_time
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.db import transaction
from django.utils import timezone

from audit.actions import Actor
from tools.accounts.login import second_factors
from tools.catalog.signatures import sealed_texts
from tools.errors import Conflict, Malformed
from tools.models import AuthenticatorApp, User

DIGITS, STEP_S = 6, 30
_SECRET_BYTES = 20
_DRIFT = (-1, 0, 1)  # clock drift of the person's device, in steps
ISSUER = "Toolcrib"


def new_secret() -> str:
    """As people type it into an app: base32."""
    return base64.b32encode(os.urandom(_SECRET_BYTES)).decode()


def uri(secret: str, user: User) -> str:
    """The content of the QR code."""
    return _totp(secret).get_provisioning_uri(user.username, ISSUER)


@transaction.atomic
def add(*, user: User, secret: str, code: str, by: Actor) -> list[str]:
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
    return second_factors.added(locked, second_factors.APP, by=by)


@transaction.atomic
def verify(*, user: User, code: str) -> bool:
    """Whether the app shows that code and it has not been used yet."""
    row = AuthenticatorApp.objects.select_for_update().filter(user=user).first()
    step = _step_of(_opened(row, user), code, after=row.last_step) if row else None
    if row is None or step is None:
        return False
    row.last_step, row.last_used_at = step, timezone.now()
    row.save(update_fields=["last_step", "last_used_at"])
    return True


def looks_like_one(code: str) -> bool:
    return len(code) == DIGITS and code.isascii() and code.isdigit()


def _opened(row: AuthenticatorApp, user: User) -> str:
    """Empty where it was encrypted under another SECRET_KEY: then no code is valid."""
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
    """The half minute whose code it is, near to now and later than `after`."""
    if not secret or not looks_like_one(code):
        return None
    now, totp = int(time.time()) // STEP_S, _totp(secret)
    good = [
        now + drift
        for drift in _DRIFT
        if constant_time.bytes_eq(totp.generate((now + drift) * STEP_S), code.encode())
    ]
    return next((step for step in good if step > after), None)


def _totp(secret: str) -> TOTP:
    """SHA-1 is what every app knows; HMAC has no use for collisions."""
    return TOTP(base64.b32decode(secret), DIGITS, SHA1(), STEP_S)  # noqa: S303
