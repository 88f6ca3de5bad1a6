"""Recovery codes replace a second factor that is not at hand: ten, each valid once."""

import hashlib
import hmac
import secrets

from django.conf import settings
from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.models import RecoveryCode, User

RECOVERY_CODES = 10
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # none that reads like another
_RECOVERY_CODE_LENGTH = 16  # 79 bits cannot be guessed, so a fast keyed hash is the right one


@transaction.atomic
def make_recovery_codes(*, user: User, by: Actor) -> list[str]:
    """Replaces the old codes with new ones, which are returned only now."""
    codes = [
        "".join(secrets.choice(_ALPHABET) for _ in range(_RECOVERY_CODE_LENGTH))
        for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(c)) for c in codes)
    _record_codes(Event.RECOVERY_CODES_MAKE, user, by, {"codes": RECOVERY_CODES})
    return [_format_code(code) for code in codes]


@transaction.atomic
def use_recovery_code(*, user: User, code: str, by: Actor) -> bool:
    """Whether it was one of theirs, and unused until now."""
    if not RecoveryCode.objects.spend(user, _digest(_parse_code(code))):
        return False
    left = RecoveryCode.objects.unused().filter(user=user).count()
    _record_codes(Event.RECOVERY_CODE_USE, user, by, {"left": left})
    return True


def _format_code(code: str) -> str:
    return "-".join(code[at : at + 4] for at in range(0, _RECOVERY_CODE_LENGTH, 4))


def _parse_code(typed: str) -> str:
    return "".join(character for character in typed.lower() if character.isalnum())


def _digest(code: str) -> str:
    """Keyed: with the database alone, no code can be tried."""
    key = hashlib.sha256(b"toolcrib recovery code " + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()


def _record_codes(event: Event, user: User, by: Actor, details: dict[str, int]) -> None:
    subject = f"user:{user.username}"
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
