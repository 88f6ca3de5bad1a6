"""Django admin of audit logs: size, checkpoints, keys, exports and alerts. Records are read at
`/audit/`, which records each reading."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from audit.alerts import alerts
from audit.models import (
    Alert,
    AlertDelivery,
    AuditExport,
    AuditLog,
    AuditSegment,
    Checkpoint,
    CheckpointKey,
)
from tools.admin.base import ReadOnly, actor, each


@admin.register(Alert)
class AlertAdmin(ReadOnly):
    by_slug = True
    list_display = ("rule", "severity", "actor", "subject", "count", "last_at", "acknowledged_by")
    list_filter = ("severity", ("acknowledged_at", admin.EmptyFieldListFilter), "last_at")
    search_fields = ("rule", "actor", "subject", "message")
    actions = ("acknowledge",)

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("audit.change_alert"))

    @admin.action(description="Acknowledge the selected alerts", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        def seen(row: Alert) -> None:
            alerts.acknowledge(alert=row, by=actor(request, self.organization_of(row)))

        each(request, queryset, seen, "Acknowledged")


@admin.register(AlertDelivery)
class AlertDeliveryAdmin(ReadOnly):
    place, by_slug = "alert__organization", True
    list_display = ("alert", "channel", "attempts", "due_at", "delivered_at", "problem")
    list_filter = (("delivered_at", admin.EmptyFieldListFilter), "due_at")
    list_select_related = ("alert", "channel")
    search_fields = ("channel__name", "problem")
    ordering = ("-id",)


@admin.register(AuditExport)
class AuditExportAdmin(ReadOnly):
    """Which user requested which evidence. That user downloads the file at `/audit/exports/`."""

    by_slug = True
    list_display = ("format", "asked_by", "state", "records", "created_at", "expires_at")
    list_filter = ("state", "created_at")
    search_fields = ("asked_by__exact",)
    ordering = ("-created_at",)


@admin.register(AuditLog)
class AuditLogAdmin(ReadOnly):
    place, by_slug = "name", True
    list_display = ("name", "size", "anchored", "sealed_at", "halted_at")
    list_filter = ("anchored", ("halted_at", admin.EmptyFieldListFilter))
    search_fields = ("name",)
    hidden = ("frontier",)


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnly):
    place, by_slug = "log__name", True
    list_display = ("log", "size", "created_at")
    list_filter = ("created_at",)
    list_select_related = ("log",)
    fields = ("log", "size", "note", "created_at")
    ordering = ("-id",)


@admin.register(CheckpointKey)
class CheckpointKeyAdmin(ReadOnly):
    """Public keys of the whole installation, which a verifier needs."""

    place = ""
    list_display = ("key_id", "name", "created_at", "retired_at")
    search_fields = ("key_id", "name")
    hidden = ("public",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return CheckpointKey.objects.order_by("-created_at")


@admin.register(AuditSegment)
class AuditSegmentAdmin(ReadOnly):
    place, by_slug = "log__name", True
    list_display = ("log", "first", "end", "file", "created_at", "removed_at")
    list_filter = (("removed_at", admin.EmptyFieldListFilter),)
    list_select_related = ("log",)
    search_fields = ("file",)
    ordering = ("-id",)
