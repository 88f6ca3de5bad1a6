from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from tools.definitions.callers import Caller, Scope
from tools.errors import Forbidden


class MayUseApi(BasePermission):
    """Deny by default: a caller is needed, and a token whose scopes cover the method.

    A view may name the scope of its unsafe methods as `scope`; without one they manage.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.auth, Caller):
            return False
        needed = (
            Scope.READ if request.method in SAFE_METHODS else getattr(view, "scope", Scope.MANAGE)
        )
        if needed not in request.auth.scopes:
            raise Forbidden(f"This token lacks the scope {needed}.", code="scope_missing")
        return True
