"""Django admin of alert rules, which superusers change, and of each organization's channels."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from audit.alerts import alert_channels, alert_rules, alerts, deliveries
from audit.alerts.rule_kinds import CUSTOM_KINDS
from audit.errors import AuditFlaw
from audit.models import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AuditExport,
    AuditLog,
    AuditSegment,
    ChannelKind,
    Checkpoint,
    CheckpointKey,
)
from tools.admin.base import ActionAdmin, ActionForm, ReadOnly, actor, run_for_each
from tools.admin.catalog import DeletingAdmin
from tools.errors import Malformed


class AlertRuleActionForm(ActionForm):
    def act(self, data: dict[str, Any]) -> AlertRule:
        try:
            if self.instance._state.adding:
                return alert_rules.create_rule(by=self.by, **data)
            return alert_rules.change_rule(rule=self.instance, by=self.by, **data)
        except AuditFlaw as flaw:
            raise Malformed(str(flaw)) from None


@admin.register(AlertRule)
class AlertRuleAdmin(ActionAdmin):
    """Alert rules hold for the whole installation, so only superusers change them."""

    place = ""
    form = AlertRuleActionForm
    list_display = ("name", "kind", "severity", "window_s", "least", "enabled", "looked_at")
    list_filter = ("enabled", "severity", "kind")
    search_fields = ("name", "description")
    fields = ("name", "kind", "description", *alert_rules.CHANGEABLE_FIELDS)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertRule]:
        rows: QuerySet[AlertRule] = ModelAdmin.get_queryset(self, request)
        return rows

    def organization_of(self, row: AlertRule) -> Any:
        """None: the change is recorded in the superuser's own organization."""
        return None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", "kind", "description") if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "kind":
            return forms.ChoiceField(choices=[(kind, kind) for kind in CUSTOM_KINDS])
        return super().formfield_for_dbfield(db_field, request, **options)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


class ChannelForm(ActionForm):
    secret = ""  # of a webhook that was created in this request

    def act(self, data: dict[str, Any]) -> AlertChannel:
        try:
            if not self.instance._state.adding:
                return alert_channels.change_channel(channel=self.instance, by=self.by, **data)
            enabled = data.pop("enabled", True)
            made, self.secret = alert_channels.create_channel(
                organization=self.home.slug, by=self.by, **data
            )
            return (
                made
                if enabled
                else alert_channels.change_channel(channel=made, by=self.by, enabled=False)
            )
        except AuditFlaw as flaw:
            raise Malformed(str(flaw)) from None


@admin.register(AlertChannel)
class AlertChannelAdmin(DeletingAdmin):
    by_slug = True
    form = ChannelForm
    list_display = ("name", "organization", "kind", "leads_to", "least", "enabled", "problem")
    list_filter = ("kind", "enabled")
    search_fields = ("name",)
    fields = ("name", "kind", "target", "least", "enabled")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("kind", "leads_to") if obj else ()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A webhook's address may hold a secret: only users who may change it see it."""
        hidden = obj and not self.has_change_permission(request, obj)
        return ["leads_to" if hidden and name == "target" else name for name in self.fields or ()]

    @admin.display(description="target")
    def leads_to(self, channel: AlertChannel) -> str:
        return alert_channels.masked_target(channel)

    def problem(self, channel: AlertChannel) -> str:
        return alert_channels.channel_problem(channel)

    def get_urls(self) -> list[URLPattern]:
        own = [
            path(f"<uuid:channel_id>/{name}/", self.admin_site.admin_view(require_POST(view)),
                 name=f"audit_alertchannel_{name}")
            for name, view in (("test", self.test), ("secret", self.replace_secret))
        ]  # fmt: skip
        return own + super().get_urls()

    def test(self, request: HttpRequest, channel_id: Any) -> HttpResponse:
        channel = self._changeable(request, channel_id)
        by = actor(request, self.organization_of(channel))
        if problem := deliveries.send_test_message(channel=channel, by=by):
            messages.error(request, f"{channel.name} was not told. {problem}")
        else:
            messages.success(request, f"{channel.name} was told.")
        return redirect(reverse("admin:audit_alertchannel_change", args=[channel.pk]))

    def replace_secret(self, request: HttpRequest, channel_id: Any) -> HttpResponse:
        channel = self._changeable(request, channel_id)
        by = actor(request, self.organization_of(channel))
        try:
            return self._show(
                request, channel, alert_channels.replace_secret(channel=channel, by=by)
            )
        except AuditFlaw as flaw:
            messages.error(request, str(flaw))
        return redirect(reverse("admin:audit_alertchannel_change", args=[channel.pk]))

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        form.saved.shown_once = form.secret
        return super().save_form(request, form, change)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        if secret := getattr(obj, "shown_once", ""):
            return self._show(request, obj, secret)
        return super().response_add(request, obj, post_url_continue)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        found = self.get_object(request, object_id)
        webhook = found is not None and found.kind == ChannelKind.WEBHOOK
        more = {**(extra_context or {}), "webhook": webhook}
        return super().change_view(request, object_id, form_url, more)

    def delete(self, row: Any, request: HttpRequest) -> None:
        alert_channels.remove_channel(channel=row, by=actor(request, self.organization_of(row)))

    def _show(self, request: HttpRequest, channel: AlertChannel, secret: str) -> HttpResponse:
        """Show the secret in the response itself: it is stored in no session and no log."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"The signing secret of {channel.name}",
            "channel": channel,
            "secret": secret,
            "opts": self.opts,
        }
        return render(request, "admin/audit/alertchannel/secret.html", context)

    def _changeable(self, request: HttpRequest, channel_id: Any) -> AlertChannel:
        found: AlertChannel | None = self.get_queryset(request).filter(pk=channel_id).first()
        if found is None:
            raise Http404
        if not self.has_change_permission(request, found):
            raise PermissionDenied
        return found


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
        def acknowledge_alert(row: Alert) -> None:
            alerts.acknowledge(alert=row, by=actor(request, self.organization_of(row)))

        run_for_each(request, queryset, acknowledge_alert, "Acknowledged")


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
