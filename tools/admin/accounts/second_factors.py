"""Read-only Django admin of second factors, without their secrets. They are reset at the user."""

from django.contrib import admin

from tools.admin.base import ReadOnly
from tools.models import AuthenticatorApp, SecurityKey, SingleSignOn


class OfPerson(ReadOnly):
    place = "user__organization"
    list_filter = ("made_at",)
    list_select_related = ("user",)
    search_fields = ("user__username", "user__email")


@admin.register(AuthenticatorApp)
class AuthenticatorAppAdmin(OfPerson):
    list_display = ("user", "made_at", "last_used_at")
    fields = ("user", "made_at", "last_used_at")


@admin.register(SecurityKey)
class SecurityKeyAdmin(OfPerson):
    list_display = ("user", "name", "host", "made_at", "last_used_at")
    fields = ("user", "name", "host", "sign_count", "made_at", "last_used_at")


@admin.register(SingleSignOn)
class SingleSignOnAdmin(OfPerson):
    list_display = ("user", "issuer", "subject", "made_at", "last_used_at")
    search_fields = ("user__username", "=subject")
