from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from tools.accounts.grants.narrowing import check_not_narrowed
from tools.definitions.callers import MANAGING_SCOPES, Caller, Scope
from tools.errors import Forbidden

_MANAGING = MANAGING_SCOPES | {Scope.MANAGE}


class MayUseApi(BasePermission):
    """Deny by default: a caller is needed, and a token whose scopes cover the method.

    A view may name the scope of its unsafe methods as `scope`; without one all managing scopes are
    needed. A token that is narrowed to groups or tools manages only where the view says
    `narrowable`, and checks its row.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.auth, Caller):
            return False
        needed = (
            Scope.READ if request.method in SAFE_METHODS else getattr(view, "scope", Scope.MANAGE)
        )
        if not request.auth.allows(needed):
            raise Forbidden(f"This token lacks the scope {needed}.", code="scope_missing")
        if needed in _MANAGING and not getattr(view, "narrowable", False):
            check_not_narrowed(request.auth)
        return True
