"""Django admin of alert rules, which superusers change, and of each organization's channels."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from audit.alerts import alert_channels, alert_rules, deliveries
from audit.alerts.rule_kinds import CUSTOM_KINDS
from audit.errors import AuditFlaw
from audit.models import AlertChannel, AlertRule, ChannelKind
from tools.admin.base import ActionAdmin, AdminActionForm, ForSuperusers, actor
from tools.admin.catalog import DeletingAdmin
from tools.web.one_time import redirect_with_secrets, take_secrets


class AlertRuleActionForm(AdminActionForm):
    def act(self, changes: dict[str, Any]) -> AlertRule:
        if self.is_new:
            return alert_rules.create_rule(by=self.by, **changes)
        return alert_rules.change_rule(rule=self.instance, by=self.by, **changes)


@admin.register(AlertRule)
class AlertRuleAdmin(ForSuperusers, ActionAdmin):
    """Alert rules hold for the whole installation."""

    place = None
    form = AlertRuleActionForm
    list_display = ("name", "kind", "severity", "window_s", "least", "enabled", "looked_at")
    list_filter = ("enabled", "severity", "kind")
    search_fields = ("name", "description")
    fields = ("name", "kind", "description", *alert_rules.CHANGEABLE_FIELDS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", "kind", "description") if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "kind":
            return forms.ChoiceField(choices=[(kind, kind) for kind in CUSTOM_KINDS])
        return super().formfield_for_dbfield(db_field, request, **options)


class AlertChannelForm(AdminActionForm):
    secret = ""  # of a webhook that was created in this request

    def act(self, changes: dict[str, Any]) -> AlertChannel:
        if not self.is_new:
            return alert_channels.change_channel(channel=self.instance, by=self.by, **changes)
        enabled = changes.pop("enabled", True)
        made, self.secret = alert_channels.create_channel(
            organization=self.home.slug, by=self.by, **changes
        )
        if enabled:
            return made
        return alert_channels.change_channel(channel=made, by=self.by, enabled=False)


@admin.register(AlertChannel)
class AlertChannelAdmin(DeletingAdmin):
    by_slug = True
    form = AlertChannelForm
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
            path(f"<uuid:channel_id>/{name}/", self.admin_site.admin_view(view),
                 name=f"audit_alertchannel_{name}")
            for name, view in (("test", require_POST(self.test)), ("secret", self.secret))
        ]  # fmt: skip
        return own + super().get_urls()

    def test(self, request: HttpRequest, channel_id: Any) -> HttpResponseBase:
        channel = self._changeable(request, channel_id)
        return self.once(request, lambda: self._test(request, channel))

    def _test(self, request: HttpRequest, channel: AlertChannel) -> HttpResponse:
        by = actor(request, self.organization_of(channel))
        if problem := deliveries.send_test_message(channel=channel, by=by):
            messages.error(request, f"{channel.name} was not told. {problem}")
        else:
            messages.success(request, f"{channel.name} was told.")
        return redirect(reverse("admin:audit_alertchannel_change", args=[channel.pk]))

    def secret(self, request: HttpRequest, channel_id: Any) -> HttpResponseBase:
        """Replace the secret by a POST; the page that follows shows it once."""
        channel = self._changeable(request, channel_id)
        return self.once(request, lambda: self._secret(request, channel))

    def _secret(self, request: Any, channel: AlertChannel) -> HttpResponseBase:
        if request.method == "POST":
            by = actor(request, self.organization_of(channel))
            try:
                return _to_secret(
                    request, channel, alert_channels.replace_secret(channel=channel, by=by)
                )
            except AuditFlaw as flaw:
                messages.error(request, str(flaw))
        elif shown := take_secrets(request):
            context = {
                **self.admin_site.each_context(request),
                "title": f"The signing secret of {channel.name}",
                "channel": channel,
                "opts": self.opts,
            }
            return render(request, "admin/audit/alertchannel/secret.html", context | shown)
        return redirect(reverse("admin:audit_alertchannel_change", args=[channel.pk]))

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        form.saved.shown_once = form.secret
        return super().save_form(request, form, change)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        if secret := getattr(obj, "shown_once", ""):
            return _to_secret(request, obj, secret)
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

    def _changeable(self, request: HttpRequest, channel_id: Any) -> AlertChannel:
        found: AlertChannel | None = self.get_queryset(request).filter(pk=channel_id).first()
        if found is None:
            raise Http404
        if not self.has_change_permission(request, found):
            raise PermissionDenied
        return found


def _to_secret(request: Any, channel: AlertChannel, secret: str) -> HttpResponse:
    view = "admin:audit_alertchannel_secret"
    return redirect_with_secrets(request, {"secret": secret}, view, channel_id=channel.pk)
