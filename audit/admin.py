"""Audit records in the administration: to be read, and only those of one's own organization."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from audit.models import AuditRecord


@admin.register(AuditRecord)
class AuditRecordAdmin(admin.ModelAdmin):
    list_display = ("occurred_at", "code", "outcome", "actor", "subject", "reason")
    list_filter = ("outcome", "code")
    search_fields = ("actor", "subject", "reason", "request_id")
    actions = None
    ordering = ("-id",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditRecord]:
        rows = super().get_queryset(request)
        user: Any = request.user
        return rows if user.is_superuser else rows.filter(organization=user.organization.slug)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
