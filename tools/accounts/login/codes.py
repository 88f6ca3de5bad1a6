"""Checks a typed second-factor code: of an authenticator app, or a recovery code."""

from audit.actions import Actor
from tools.accounts.login import authenticator_apps, recovery_codes
from tools.accounts.login.second_factors import APP, RECOVERY
from tools.models import User

_LONGEST = 40


def factor_of(*, user: User, code: str, by: Actor, recovers: bool = True) -> str:
    """The kind of a valid code, which is thereby used up; empty for an invalid one. Call it
    `guarded`."""
    typed = "".join(code.split())[:_LONGEST]
    if authenticator_apps.looks_like_one(typed):
        return APP if authenticator_apps.verify(user=user, code=typed) else ""
    if recovers and recovery_codes.use(user=user, code=typed, by=by):
        return RECOVERY
    return ""
