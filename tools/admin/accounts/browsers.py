"""Django admin of browser sessions: which users are logged in. Session keys are never shown."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from tools.accounts.login import login
from tools.admin.base import ReadOnly, actor
from tools.models import PersonSession


@admin.register(PersonSession)
class PersonSessionAdmin(ReadOnly):
    place = "user__organization"
    list_display = ("user", "began_at", "source_ip", "user_agent")
    list_filter = ("began_at",)
    list_select_related = ("user",)
    search_fields = ("user__username", "source_ip")
    fields = ("user", "began_at", "source_ip", "user_agent")
    actions = ("end",)

    def has_end_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tools.change_user"))

    @admin.action(description="Log the selected browsers out", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[PersonSession]) -> None:
        ended = 0
        for row in queryset.select_related("user__organization"):
            by = actor(request, row.user.organization)
            ended += login.end_sessions(user=row.user, by=by, only=row.pk)
        messages.success(request, f"Logged out: {ended}.")
