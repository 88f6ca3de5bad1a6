"""Organizations and their licence tiers. For superusers to change: they reach beyond one place."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from audit.actions import record
from audit.events import Event, Outcome
from sandbox.spec import IsolationLevel
from tools.admin.base import ActionAdmin, ActionForm, Guarded, HostsField, LinesField
from tools.catalog.builtins import install_builtins
from tools.models import LicenseTier, Organization
from tools.policy import actions


class OrganizationForm(ActionForm):
    allowed_hosts = HostsField(label="Hosts of web_fetch")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "minimum_isolation" in self.fields:
            self.fields["minimum_isolation"].required = False  # left out, it stays as it is

    def act(self, data: dict[str, Any]) -> Organization:
        if self.instance._state.adding:
            named = {name: data[name] for name in ("slug", "name", "tier")}
            made = actions.create_organization(by=self.by, **named)
            install_builtins(organization=made, by=self.by)
        else:
            made = self.instance
            self._rename(data)
        self._wall_off(made, data)
        return Organization.objects.get(pk=made.pk)

    def _rename(self, data: dict[str, Any]) -> None:
        if "tier" in self.changed_data:
            actions.set_tier(organization=self.instance, tier=data["tier"], by=self.by)
        if "name" in self.changed_data:
            actions.rename_organization(organization=self.instance, name=data["name"], by=self.by)

    def _wall_off(self, place: Organization, data: dict[str, Any]) -> None:
        minimum, hosts = data["minimum_isolation"], data["allowed_hosts"]
        if minimum and minimum != place.minimum_isolation:
            level = IsolationLevel(minimum)
            actions.set_isolation(organization=place, minimum=level, by=self.by)
        if "allowed_hosts" in self.changed_data:
            actions.set_allowed_hosts(organization=place, hosts=hosts, by=self.by)


class TierForm(ActionForm):
    every_builtin = forms.BooleanField(
        required=False, label="Every built-in tool", help_text="Then the list below says nothing."
    )
    builtin_tools = LinesField(help_text="Built-in tools of this tier, one a line.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["every_builtin"] = self.instance.builtin_tools is None

    def act(self, data: dict[str, Any]) -> LicenseTier:
        changes = {**data}
        if changes.pop("every_builtin"):
            changes["builtin_tools"] = None
        if not self.instance._state.adding:
            return actions.change_tier(tier=self.instance, by=self.by, **changes)
        made = LicenseTier(**changes)
        try:
            made.full_clean()
        except ValidationError as error:
            self.add_error(None, error)
            return made
        made.save()
        record(Event.TIER_CHANGE, by=self.by, outcome=Outcome.CHANGED, subject=made.name)
        return made


class ForSuperusers(ActionAdmin):
    """Staff may read these rows; only a superuser changes them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Organization)
class OrganizationAdmin(Guarded, ForSuperusers):  # type: ignore[misc]
    place = ""
    form = OrganizationForm
    fields = ("slug", "name", "tier", "minimum_isolation", "allowed_hosts")
    list_display = ("slug", "name", "tier", "created_at")
    list_select_related = ("tier",)
    search_fields = ("slug", "name")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("slug",) if obj else ()  # evidence and workspaces are named by it


@admin.register(LicenseTier)
class LicenseTierAdmin(ForSuperusers):
    place = ""
    form = TierForm
    fields = (
        "name", "rank", "every_builtin", "builtin_tools", "max_custom_tools",
        "custom_sandbox_profiles",
    )  # fmt: skip
    list_display = ("name", "rank", "max_custom_tools", "custom_sandbox_profiles")

    def get_queryset(self, request: HttpRequest) -> Any:
        return LicenseTier.objects.order_by("rank")  # tiers belong to no organization

    def organization_of(self, row: Any) -> Any:
        return None
