"""What people may manage: Django's model permissions, and superusers everything.

Agents manage nothing, whatever their token says (DESIGN, decision 16).
"""

from tools.definitions.callers import Caller, CallerKind, Scope
from tools.errors import Forbidden
from tools.models import User


def may(caller: Caller, permission: str) -> bool:
    """Whether a person holds `change_tool` of this app, or `audit.view_auditrecord` of another."""
    if caller.kind != CallerKind.PERSON:
        return False
    if caller.is_superuser:
        return True
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    name = permission if "." in permission else f"tools.{permission}"
    return user is not None and user.has_perm(name)


def require(caller: Caller, permission: str) -> None:
    """Raises `Forbidden` unless the caller may manage that, with this token."""
    if Scope.MANAGE not in caller.scopes:
        raise Forbidden(
            "This token may not manage anything; it lacks the scope manage.", code="scope_missing"
        )
    if not may(caller, permission):
        raise Forbidden(
            f"This needs the permission {permission}, which the caller does not hold.",
            code="not_permitted",
        )
