"""Django admin of sandbox profiles and of the credentials that the egress broker adds."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import AdminActionForm, actor
from tools.admin.catalog import DeletingAdmin
from tools.catalog.sandbox import credentials, profiles
from tools.definitions.values import durations
from tools.models import EgressCredential, SandboxProfile
from tools.web.form_fields import HostsField, LinesField, SecretField


class PathsField(LinesField):
    """One path per line, after its access mode."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(f"{item['mode']} {item['path']}" for item in value)

    def to_python(self, value: Any) -> Any:
        lines = [line.strip().partition(" ") for line in super().to_python(value)]
        return [{"mode": mode, "path": path.strip()} for mode, _, path in lines if mode]


class ProfileForm(AdminActionForm):
    everywhere: bool
    allowed_paths = PathsField(help_text="One a line: ro /srv/tables, or rw /srv/results.")
    allowed_hosts = HostsField()
    max_cpu_time = forms.CharField(
        initial=durations.format_duration(SandboxProfile().max_cpu_s),
        help_text="Of all its processes together, such as PT30S.",
    )

    def stored_values(self) -> dict[str, Any]:
        time = durations.format_duration(self.instance.max_cpu_s)
        return super().stored_values() | {"max_cpu_time": time}

    def act(self, changes: dict[str, Any]) -> SandboxProfile:
        if self.is_new:
            return profiles.create_profile(
                organization=self.home, profile=changes, by=self.by, everywhere=self.everywhere
            )
        row = profiles.find_profile(self.instance.organization, self.instance.name)
        whole = self.stored_values() | {"name": row.name} | changes
        return profiles.replace_profile(
            row=row, profile=whole, by=self.by, everywhere=self.everywhere
        )


@admin.register(SandboxProfile)
class SandboxProfileAdmin(DeletingAdmin):
    form = ProfileForm
    fields = profiles.FIELDS
    list_display = ("name", "organization", "backend", "minimum_isolation", "allow_network")
    list_filter = ("backend", "minimum_isolation")
    list_select_related = ("organization",)
    search_fields = ("name", "description")

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made = super().get_form(request, obj, change, **options)
        made.everywhere = request.user.is_superuser
        return made

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # tools name it

    def max_cpu_time(self, profile: SandboxProfile) -> str:
        """Read-only form of the field, for users who may only view."""
        return durations.format_duration(profile.max_cpu_s)

    def delete(self, row: SandboxProfile, request: HttpRequest) -> None:
        profiles.delete_profile(row=row, by=actor(request, row.organization))


class EgressCredentialForm(AdminActionForm):
    value = SecretField(
        required=False,
        help_text="Such as Bearer …; kept encrypted and never shown. Empty leaves it as it is.",
    )

    def stored_values(self) -> dict[str, Any]:
        return super().stored_values() | {"value": bytes(self.instance.sealed).hex()}

    def act(self, changes: dict[str, Any]) -> EgressCredential:
        if self.is_new:
            whole = {"value": ""} | changes
            return credentials.create_credential(
                organization=self.home, credential=whole, by=self.by
            )
        row = credentials.find_credential(self.instance.organization, self.instance.name)
        whole = {"name": row.name, "header": row.header, "value": credentials.MASK} | changes
        return credentials.replace_credential(row=row, credential=whole, by=self.by)


@admin.register(EgressCredential)
class EgressCredentialAdmin(DeletingAdmin):
    form = EgressCredentialForm
    fields = ("name", "header", "value")
    list_display = ("name", "organization", "header", "updated_at")
    list_select_related = ("organization",)
    search_fields = ("name", "header")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # lists of hosts name it

    def value(self, credential: EgressCredential) -> str:
        return credentials.MASK

    def delete(self, row: EgressCredential, request: HttpRequest) -> None:
        credentials.delete_credential(row=row, by=actor(request, row.organization))
