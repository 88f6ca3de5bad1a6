"""Checks a typed second-factor code: of an authenticator app, or a recovery code."""

from audit.actions import Actor
from tools.accounts.login import authenticator_apps, recovery_codes
from tools.accounts.login.second_factors import APP, RECOVERY
from tools.models import User

_MAX_CODE_LENGTH = 40


def verify_code(*, user: User, code: str, by: Actor, recovers: bool = True) -> str:
    """The kind of a valid code, which is thereby used up; empty for an invalid one. Call it
    `guarded`."""
    typed = "".join(code.split())[:_MAX_CODE_LENGTH]
    if authenticator_apps.is_app_code(typed):
        return APP if authenticator_apps.verify_app_code(user=user, code=typed) else ""
    if recovers and recovery_codes.use_recovery_code(user=user, code=typed, by=by):
        return RECOVERY
    return ""
