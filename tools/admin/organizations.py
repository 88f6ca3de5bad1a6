"""Django admin of organizations and license tiers. Only superusers change them.

A tier is changed here where nothing follows; what would disable or enable tools is refused, with
the way to the page that previews it.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.html import format_html

from sandbox.spec import IsolationLevel
from tools.accounts import account_actions
from tools.admin.base import ActionAdmin, AdminActionForm, Guarded
from tools.catalog.builtins import install_builtins
from tools.catalog.tiers import standing_of
from tools.errors import ToolcribError
from tools.insight.impact_previews import PREVIEW_NEEDED, change_terms
from tools.licensing import tiers as tier_actions
from tools.models import LicenseTier, Organization
from tools.web.field_actions import LIMITS, WORKSPACE_QUOTA, change_organization_fields
from tools.web.form_fields import HostsField, LinesField

UNCHANGED_IF_EMPTY = ("minimum_isolation", "max_queue_depth", *WORKSPACE_QUOTA)
_PREVIEW = '{} <a href="{}">Look at what would follow</a>'


class OrganizationAdminForm(AdminActionForm):
    allowed_hosts = HostsField(label="Hosts of web_fetch")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in UNCHANGED_IF_EMPTY:
            if name in self.fields:
                self.fields[name].required = False

    def act(self, changes: dict[str, Any]) -> Organization:
        made = self.instance
        if self.is_new:
            named = {name: changes.pop(name) for name in ("slug", "name", "tier")}
            made = account_actions.create_organization(by=self.by, **named)
            install_builtins(organization=made, by=self.by)
            stored = Organization.objects.get(pk=made.pk)
            changes = {
                name: value for name, value in changes.items() if value != getattr(stored, name)
            }
        changes = {
            name: value
            for name, value in changes.items()
            if name not in UNCHANGED_IF_EMPTY or value not in (None, "")
        }
        change_organization_fields(organization=made, by=self.by, changes=changes)
        return Organization.objects.get(pk=made.pk)

    def place_refusal(self, refusal: ToolcribError) -> None:
        if refusal.code != PREVIEW_NEEDED:
            return super().place_refusal(refusal)
        query = QueryDict(mutable=True)
        query.update({"organization": self.instance.slug, "tier": self.cleaned_data["tier"].name})
        address = f"{reverse('licenses')}?{query.urlencode()}"
        return self.add_error("tier", format_html(_PREVIEW, refusal.message, address))


class TierActionForm(AdminActionForm):
    every_builtin = forms.BooleanField(
        required=False,
        initial=True,
        label="Every built-in tool",
        help_text="Then the list below says nothing.",
    )
    builtin_tools = LinesField(help_text="Built-in tools of this tier, one a line.")
    every_level = forms.BooleanField(
        required=False,
        initial=True,
        label="Every isolation level",
        help_text="Then no box below counts.",
    )
    isolation_levels = forms.MultipleChoiceField(
        required=False,
        choices=[(level.value, level.value) for level in IsolationLevel],
        widget=forms.CheckboxSelectMultiple,
        help_text="What tools, organizations and profiles may ask for.",
    )

    def stored_values(self) -> dict[str, Any]:
        tier = self.instance
        return super().stored_values() | {
            "every_builtin": tier.builtin_tools is None,
            "builtin_tools": tier.builtin_tools or [],
            "every_level": tier.isolation_levels is None,
            "isolation_levels": tier.isolation_levels or [],
        }

    def act(self, changes: dict[str, Any]) -> LicenseTier:
        whole = {**self.cleaned_data}
        if whole.pop("every_builtin"):
            whole["builtin_tools"] = None
        if whole.pop("every_level"):
            whole["isolation_levels"] = None
        if self.is_new:
            return tier_actions.create_tier(by=self.by, **whole)
        changed = {
            name: value for name, value in whole.items() if value != getattr(self.instance, name)
        }
        change_terms(tier=self.instance, by=self.by, **changed)
        return self.instance

    def place_refusal(self, refusal: ToolcribError) -> None:
        if refusal.code != PREVIEW_NEEDED:
            return super().place_refusal(refusal)
        address = reverse("license-tier", args=[self.instance.pk])
        return self.add_error(None, format_html(_PREVIEW, refusal.message, address))


class SuperuserAdmin(ActionAdmin):
    """Staff may read these rows; only a superuser changes them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Organization)
class OrganizationAdmin(Guarded, SuperuserAdmin):  # type: ignore[misc]
    place = ""
    form = OrganizationAdminForm
    fields = (
        "slug", "name", "tier", "license", "minimum_isolation", "allowed_hosts", *LIMITS,
        *WORKSPACE_QUOTA, "output_days",
    )  # fmt: skip
    list_display = ("slug", "name", "tier", "license_expires_at", "created_at")
    list_filter = ("tier", ("license_expires_at", admin.EmptyFieldListFilter))
    list_select_related = ("tier",)
    search_fields = ("slug", "name")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # Evidence and workspaces are named by the slug.
        return ("slug", "license") if obj else ("license",)

    @admin.display(description="Licence")
    def license(self, organization: Organization) -> str:
        if organization._state.adding:
            return "none"
        standing = standing_of(organization)
        if standing.expires_at is None:
            return f"{standing.license_id or 'none'}, without an end"
        counts = f"; {standing.tier.name} counts" if standing.tier != standing.own else ""
        named = standing.license_id or "none"
        return f"{named}, until {standing.expires_at:%Y-%m-%d}: {standing.state}{counts}"


@admin.register(LicenseTier)
class LicenseTierAdmin(SuperuserAdmin):
    place = None
    form = TierActionForm
    fields = (
        "name", "rank", "every_builtin", "builtin_tools", "max_custom_tools", "every_level",
        "isolation_levels", "custom_sandbox_profiles",
    )  # fmt: skip
    list_display = ("name", "rank", "max_custom_tools", "custom_sandbox_profiles")
    search_fields = ("name",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return LicenseTier.objects.order_by("rank")
