"""Read-only Django admin of quotas and budgets. The API sets them, with revision and record."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from tools.admin.base import ReadOnly
from tools.models import Allowance, AllowanceUse


@admin.register(Allowance)
class AllowanceAdmin(ReadOnly):
    list_display = ("agent", "tool_name", "kind", "period", "amount", "organization")
    list_filter = ("kind", "period")
    list_select_related = ("agent", "organization")
    search_fields = ("agent__slug", "tool_name")


@admin.register(AllowanceUse)
class AllowanceUseAdmin(ReadOnly):
    place = "allowance__organization"
    list_display = ("allowance", "starts_on", "used", "held", "alerted_percent")
    list_filter = ("allowance__kind", "allowance__period", "starts_on")
    search_fields = ("allowance__agent__slug", "allowance__tool_name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AllowanceUse]:
        return super().get_queryset(request).select_related("allowance__agent")
