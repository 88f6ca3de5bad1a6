"""Recovery codes replace a second factor that is not at hand: ten, each valid once."""

import hashlib
import hmac
import secrets

from django.conf import settings
from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.models import RecoveryCode, User

HOW_MANY = 10
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # none that reads like another
_LENGTH = 16  # 79 bits cannot be guessed, so a fast keyed hash is the right one


@transaction.atomic
def make(*, user: User, by: Actor) -> list[str]:
    """Replaces the old codes with new ones, which are returned only now."""
    codes = ["".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH)) for _ in range(HOW_MANY)]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(c)) for c in codes)
    _note(Event.RECOVERY_CODES_MAKE, user, by, {"codes": HOW_MANY})
    return [_shown(code) for code in codes]


@transaction.atomic
def use(*, user: User, code: str, by: Actor) -> bool:
    """Whether it was one of theirs, and unused until now."""
    if not RecoveryCode.objects.spend(user, _digest(_read(code))):
        return False
    left = RecoveryCode.objects.unused().filter(user=user).count()
    _note(Event.RECOVERY_CODE_USE, user, by, {"left": left})
    return True


def _shown(code: str) -> str:
    return "-".join(code[at : at + 4] for at in range(0, _LENGTH, 4))


def _read(typed: str) -> str:
    return "".join(character for character in typed.lower() if character.isalnum())


def _digest(code: str) -> str:
    """Keyed: with the database alone, no code can be tried."""
    key = hashlib.sha256(b"toolcrib recovery code " + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()


def _note(event: Event, user: User, by: Actor, details: dict[str, int]) -> None:
    subject = f"user:{user.username}"
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
