"""Django admin of organizations and license tiers. Only superusers change them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest

from sandbox.spec import IsolationLevel
from tools.accounts import account_actions
from tools.admin.base import ActionAdmin, ActionForm, Guarded, HostsField, LinesField
from tools.catalog.builtins import install_builtins
from tools.catalog.tiers import standing_of
from tools.licensing import tiers as tier_actions
from tools.licensing.licenses import TierImpact
from tools.models import LicenseTier, Organization
from tools.web.field_actions import LIMITS, WORKSPACE_QUOTA, change_organization_fields

_NAMED = 20
UNCHANGED_IF_EMPTY = ("minimum_isolation", "max_queue_depth", *WORKSPACE_QUOTA)


class OrganizationForm(ActionForm):
    follows: TierImpact | None = None  # of another tier
    allowed_hosts = HostsField(label="Hosts of web_fetch")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in UNCHANGED_IF_EMPTY:
            if name in self.fields:
                self.fields[name].required = False

    def act(self, data: dict[str, Any]) -> Organization:
        if self.instance._state.adding:
            named = {name: data[name] for name in ("slug", "name", "tier")}
            made = account_actions.create_organization(by=self.by, **named)
            install_builtins(organization=made, by=self.by)
            changes = self._changes(data, made)
        else:
            made = self.instance
            changes = self._changes(data, made) | {
                name: data[name] for name in ("tier", "name") if name in self.changed_data
            }
        self.follows = change_organization_fields(organization=made, by=self.by, changes=changes)
        return Organization.objects.get(pk=made.pk)

    def _changes(self, data: dict[str, Any], organization: Organization) -> dict[str, Any]:
        """The changed fields beside name and tier; those of `UNCHANGED_IF_EMPTY` only with a
        value."""
        names = ("allowed_hosts", *LIMITS, *WORKSPACE_QUOTA, "output_days")
        changes = {
            name: data[name]
            for name in names
            if name in self.changed_data and not (name in UNCHANGED_IF_EMPTY and data[name] is None)
        }
        minimum = data["minimum_isolation"]
        if minimum and minimum != organization.minimum_isolation:
            changes["minimum_isolation"] = minimum
        return changes


class TierActionForm(ActionForm):
    follows: Mapping[str, TierImpact] = MappingProxyType({})  # by organization
    every_builtin = forms.BooleanField(
        required=False, label="Every built-in tool", help_text="Then the list below says nothing."
    )
    builtin_tools = LinesField(help_text="Built-in tools of this tier, one a line.")
    every_level = forms.BooleanField(
        required=False, label="Every isolation level", help_text="Then no box below counts."
    )
    isolation_levels = forms.MultipleChoiceField(
        required=False,
        choices=[(level.value, level.value) for level in IsolationLevel],
        widget=forms.CheckboxSelectMultiple,
        help_text="What tools, organizations and profiles may ask for.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["every_builtin"] = self.instance.builtin_tools is None
        self.initial["every_level"] = self.instance.isolation_levels is None

    def act(self, data: dict[str, Any]) -> LicenseTier:
        changes = {**data}
        if changes.pop("every_builtin"):
            changes["builtin_tools"] = None
        if changes.pop("every_level"):
            changes["isolation_levels"] = None
        if self.instance._state.adding:
            return tier_actions.create_tier(by=self.by, **changes)
        self.follows = tier_actions.change_tier(tier=self.instance, by=self.by, **changes)
        return self.instance


def _report_tier_change(request: HttpRequest, slug: str, change: TierImpact) -> None:
    """What a change of a tier did to the tools of an organization."""
    for word in ("disabled", "enabled"):
        names = getattr(change, word)
        if names:
            shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
            messages.warning(request, f"{slug}: {len(names)} custom tools {word}: {shown}")


class SuperuserAdmin(ActionAdmin):
    """Staff may read these rows; only a superuser changes them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Organization)
class OrganizationAdmin(Guarded, SuperuserAdmin):  # type: ignore[misc]
    place = ""
    form = OrganizationForm
    fields = (
        "slug", "name", "tier", "license", "minimum_isolation", "allowed_hosts", *LIMITS,
        *WORKSPACE_QUOTA,
        "output_days",
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

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        if form.follows is not None:
            _report_tier_change(request, form.instance.slug, form.follows)
        return super().save_form(request, form, change)


@admin.register(LicenseTier)
class LicenseTierAdmin(SuperuserAdmin):
    place = ""
    form = TierActionForm
    fields = (
        "name", "rank", "every_builtin", "builtin_tools", "max_custom_tools", "every_level",
        "isolation_levels", "custom_sandbox_profiles",
    )  # fmt: skip
    list_display = ("name", "rank", "max_custom_tools", "custom_sandbox_profiles")
    search_fields = ("name",)

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        for slug, follows in form.follows.items():
            _report_tier_change(request, slug, follows)
        return super().save_form(request, form, change)

    def get_queryset(self, request: HttpRequest) -> Any:
        return LicenseTier.objects.order_by("rank")  # tiers belong to no organization

    def organization_of(self, row: Any) -> Any:
        return None
