"""`/settings/`: the settings of the installation and their origin, its health, and the settings of
an organization.

For users who may read evidence, which has the same values from each start. Operators set them in
the environment, and they are read at the start; settings of the organization are changed here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from audit.events import Event
from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.accounts.environment_settings import SettingStatus, setting_statuses
from tools.accounts.user_permissions import may
from tools.catalog.bounds import MOST, MOST_BYTES, MOST_DAYS
from tools.errors import Forbidden
from tools.insight.workflow_findings import findings
from tools.models import Organization
from tools.ui.display import truncate
from tools.ui.home.health import health_components
from tools.web.field_actions import change_organization_fields
from tools.web.form_fields import choices
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest, form_page, page, snapshot_of
from tools.web.reauthentication import Proof

TEMPLATE, FORM_TEMPLATE = "settings/settings.html", "settings/settings_organization.html"
CHANGES_QUERY = f"code={Event.SETTINGS_CHANGE}"
_LONGEST_NAME = 200


@dataclass(frozen=True)
class SettingRow:
    name: str
    value: str
    default: str
    does: str
    source: str


@dataclass(frozen=True)
class SettingsLink:
    """Another page with settings."""

    label: str
    url: str
    says: str


@page("audit.view_auditrecord")
def settings_page(request: PageRequest) -> HttpResponse:
    organization = Organization.objects.get(pk=request.caller.organization_id)
    every = setting_statuses()
    context = {
        "sections": {title: [_setting_row(one) for one in rows] for title, rows in every.items()},
        "set": sum(bool(one.source) for rows in every.values() for one in rows),
        "lines": list(health_components(request)),
        "findings": _count_findings(request),
        "facts": _organization_facts(organization),
        "changes": request.caller.is_superuser,
        "places": list(_settings_links(request)),
        "changed": f"{reverse('audit')}?{CHANGES_QUERY}",
    }
    return render(request, TEMPLATE, context)


def _whole_number(label: str, most: int = MOST, **options: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, max_value=most, widget=forms.TextInput, **options)


class OrganizationForm(ActionForm):
    row: Organization
    name = forms.CharField(
        label="Name",
        max_length=_LONGEST_NAME,
        error_messages={"required": f"A name of 1 to {_LONGEST_NAME} characters is needed."},
    )
    time_zone = forms.CharField(
        label="Time zone",
        max_length=200,
        help_text="Such as Europe/Berlin: of windows of groups, and of days of quotas.",
    )
    minimum_isolation = forms.ChoiceField(
        label="Isolation at least",
        choices=choices(str(level) for level in IsolationLevel),
        help_text="No tool runs at a lower level.",
    )
    max_concurrency = _whole_number(
        "Calls that run at once", required=False, help_text="Empty is no limit."
    )
    max_queue_depth = _whole_number("Calls that may wait", help_text="One more is refused.")
    workspace_max_files = _whole_number("Files in its workspace")
    workspace_max_bytes = _whole_number("Bytes in its workspace", MOST_BYTES)
    output_days = _whole_number(
        "Days that outputs are kept",
        MOST_DAYS,
        required=False,
        help_text="Empty keeps them without an end.",
    )

    def stored_values(self) -> dict[str, Any]:
        return {name: getattr(self.row, name) for name in self.fields}

    def act(self, changes: dict[str, Any]) -> bool:
        by = actor_of(self.request.caller)
        change_organization_fields(organization=self.row, by=by, changes=changes)
        return True


@form_page(Proof.NEEDED)
def change_organization(request: PageRequest) -> HttpResponseBase:
    """Save all changes or none. Only superusers may, as over the API."""
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes an organization.", code="not_permitted")
    form = OrganizationForm(request, Organization.objects.get(pk=request.caller.organization_id))
    if not form.save():
        return form.show(FORM_TEMPLATE)
    return form.redirect("The organization is changed.", "settings")


def _organization_facts(row: Organization) -> list[tuple[str, str]]:
    """The labels of the form, and the values."""
    labels = OrganizationForm.base_fields.items()
    found = [
        (str(field.label), _format_value(getattr(row, name)) or "no limit")
        for name, field in labels
    ]
    hosts = [item if isinstance(item, str) else item.get("host", "") for item in row.allowed_hosts]
    return [*found, ("web_fetch may reach", ", ".join(hosts) or "nothing")]


def _format_value(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


def _setting_row(one: SettingStatus) -> SettingRow:
    setting = one.described
    if not one.has_value:
        value = "set" if one.source else ""
    elif isinstance(one.value, str):
        value = one.value
    elif isinstance(one.value, list) and all(isinstance(item, str) for item in one.value):
        value = ", ".join(one.value)
    else:
        value = json.dumps(one.value, ensure_ascii=False, indent=2)
    return SettingRow(setting.name, truncate(value), setting.default, setting.does, one.source)


def _count_findings(request: PageRequest) -> int | None:
    """The number of the linter's findings; None for users who may not view every tool."""
    return len(findings(snapshot_of(request))) if may(request.caller, "view_tool") else None


def _settings_links(request: PageRequest) -> Iterator[SettingsLink]:
    every = (
        ("view_signingkey", "Signing keys", "keys", "Under which versions of tools are signed."),
        ("view_messagechannel", "Channels", "channels", "Where send_message may send to."),
        ("view_licensetier", "Licences", "licenses", "What each tier includes, and the licence."),
        ("change_tool", "Sandbox", "sandbox", "Which walls hold on this machine."),
        ("audit.view_auditrecord", "Alerts", "alerts", "What is told of evidence, and to whom."),
        ("view_agent", "Agents", "agents", "Who calls tools, and what they hold."),
    )
    for permission, label, to, says in every:
        if may(request.caller, permission):
            yield SettingsLink(label, reverse(to), says)
    if request.user.is_staff:
        says = "Profiles of sandboxes, rules of confirmations, people and their roles."
        yield SettingsLink("Administration", reverse("admin:index"), says)
