from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from config.http.browser_security import safe_redirect_path

# Sections of the first page and of the menu beside each list, by the names of models.
SECTIONS = (
    ("Catalog", ("Tool", "ToolVersion", "ToolGroup", "Pin", "UpstreamChange", "ContentSchema",
                 "ContentSchemaVersion", "KnowledgeIndex", "SigningKey")),
    ("Sources", ("ToolService", "McpServer", "McpCredential", "McpOAuthClient",
                 "McpAuthorization")),
    ("Agents", ("Agent", "Token", "Allowance", "AllowanceUse", "Reservation")),
    ("Calls", ("Execution", "ExecutionEvent", "StoredOutput", "Session", "StateTransition",
               "RequestRecord", "ToolFilter")),
    ("Confirmations and messages", ("Confirmation", "ConfirmationDecision", "ConfirmationRule",
                                    "MessageChannel", "Message", "InboxItem")),
    ("Evidence", ("Alert", "AlertRule", "AlertChannel", "AlertDelivery", "AuditExport", "AuditLog",
                  "Checkpoint", "CheckpointKey", "AuditSegment")),
    ("People and places", ("User", "Group", "PersonSession", "AuthenticatorApp", "SecurityKey",
                           "SingleSignOn", "Organization", "LicenseTier")),
    ("Walls", ("SandboxProfile", "EgressCredential")),
)  # fmt: skip


class ToolcribAdminSite(AdminSite):
    site_header = "Toolcrib"
    site_title = "Toolcrib"
    index_title = "Administration"
    site_url = "/"
    enable_nav_sidebar = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Django's bulk delete bypasses the product's actions, so it is disabled.
        self.disable_action("delete_selected")

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Group models by subject; the page of one app is Django's."""
        apps: list[Any] = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        found = {one["object_name"]: (app, one) for app in apps for one in app["models"]}
        named = {name for _, names in SECTIONS for name in names}
        rest = ("Other", tuple(name for name in found if name not in named))
        sections = (_build_section(title, names, found) for title, names in (*SECTIONS, rest))
        return [section for section in sections if section["models"]]

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The product's login; a user who is logged in without admin access gets 403."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        return redirect_to_login(safe_redirect_path(request.GET.get("next", ""), "/admin/"))

    def password_change(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The product's page: it limits guesses of the old password and ends other sessions."""
        return redirect("profile-password")

    def logout(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # The product's logout writes the record. The redirect keeps the method POST.
        return redirect("logout", preserve_request=True)


def _build_section(title: str, names: Iterable[str], found: Mapping[str, tuple[Any, Any]]) -> Any:
    here = [found[name] for name in names if name in found]
    app = here[0][0] if here else {}
    return {**app, "name": title, "models": [model for _, model in here]}
