"""Django admin of sandbox profiles and of the credentials that the egress broker adds."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import ActionForm, HostsField, LinesField, actor
from tools.admin.catalog import DeletingAdmin
from tools.catalog.sandbox import credentials, profiles
from tools.definitions.values import durations
from tools.models import EgressCredential, SandboxProfile


class PathsField(LinesField):
    """One path per line, after its access mode."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(f"{item['mode']} {item['path']}" for item in value)

    def to_python(self, value: Any) -> Any:
        lines = [line.strip().partition(" ") for line in super().to_python(value)]
        return [{"mode": mode, "path": path.strip()} for mode, _, path in lines if mode]


class ProfileForm(ActionForm):
    everywhere: bool
    allowed_paths = PathsField(help_text="One a line: ro /srv/tables, or rw /srv/results.")
    allowed_hosts = HostsField()
    max_cpu_time = forms.CharField(help_text="Of all its processes together, such as PT30S.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["max_cpu_time"] = durations.format_duration(self.instance.max_cpu_s)

    def act(self, data: dict[str, Any]) -> SandboxProfile:
        said = {name: data[name] for name in profiles.FIELDS if name in data}
        if self.instance._state.adding:
            return profiles.create_profile(
                organization=self.home, profile=said, by=self.by, everywhere=self.everywhere
            )
        said["name"] = self.instance.name
        row = profiles.find_profile(self.instance.organization, self.instance.name)
        return profiles.replace_profile(
            row=row, profile=said, by=self.by, everywhere=self.everywhere
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


class CredentialForm(ActionForm):
    value = forms.CharField(
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Such as Bearer …; kept encrypted and never shown. Empty leaves it as it is.",
    )

    def act(self, data: dict[str, Any]) -> EgressCredential:
        said = {"header": data["header"], "value": data["value"]}
        if self.instance._state.adding:
            return credentials.create_credential(
                organization=self.home, credential={"name": data["name"], **said}, by=self.by
            )
        said["value"] = said["value"] or credentials.MASK
        row = credentials.find_credential(self.instance.organization, self.instance.name)
        return credentials.replace_credential(
            row=row, credential={"name": row.name, **said}, by=self.by
        )


@admin.register(EgressCredential)
class EgressCredentialAdmin(DeletingAdmin):
    form = CredentialForm
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
