from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect


class ToolcribAdminSite(AdminSite):
    site_header = "Toolcrib"
    site_title = "Toolcrib"
    index_title = "Administration"
    site_url = "/"
    enable_nav_sidebar = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Deleting many rows at once asks no action of ours, so nobody may.
        self.disable_action("delete_selected")

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Our own login; who is in already and no administrator is told so."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next") or "/admin/")

    def password_change(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ours: guesses of the old one are counted there, and other browsers are logged out."""
        return redirect("profile-password")

    def logout(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # Ours writes the record. A POST stays one on its way there.
        return redirect("logout", preserve_request=True)
