"""`/settings/`: the settings of the installation and their origin, its health, and the settings of
an organization.

For users who may read evidence, which has the same values from each start. Operators set them in
the environment, and they are read at the start; settings of the organization are changed here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from audit.events import Event
from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.accounts.environment_settings import SettingStatus, setting_statuses
from tools.accounts.user_permissions import may, require
from tools.errors import Forbidden, ToolcribError
from tools.insight.workflow_findings import findings
from tools.models import Organization
from tools.ui.display import truncate
from tools.ui.home.health import health_components
from tools.ui.inputs import FormInput, Widget, choices, form_values
from tools.web.field_actions import LIMITS, WORKSPACE_QUOTA, change_organization_fields
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof

TEMPLATE, FORM_TEMPLATE = "settings/settings.html", "settings/settings_organization.html"
CHANGES_QUERY = f"code={Event.SETTINGS_CHANGE}"
_MAY_BE_EMPTY = frozenset({"max_concurrency", "output_days"})
_NUMBERS = frozenset({*LIMITS, *WORKSPACE_QUOTA, "output_days"})
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


@require_safe
@page
def settings_page(request: PageRequest) -> HttpResponse:
    require(request.caller, "audit.view_auditrecord")
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


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_organization(request: PageRequest) -> HttpResponseBase:
    """Save all changes or none. Only superusers may, as over the API."""
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes an organization.", code="not_permitted")
    organization = Organization.objects.get(pk=request.caller.organization_id)
    inputs = _organization_inputs(organization)
    if request.method != "POST":
        return render(request, FORM_TEMPLATE, {"inputs": inputs})
    before = {one.key: one.value for one in inputs}
    data = form_values(request.POST)
    for one in inputs:
        one.value = data.get(one.key, "").strip()[:200]
    wanted = {one.key: _parse_value(one) for one in inputs if one.value != before[one.key]}
    if any(one.errors for one in inputs):
        return render(request, FORM_TEMPLATE, {"inputs": inputs, "refused": True}, status=400)
    try:
        change_organization_fields(
            organization=organization, by=actor_of(request.caller), changes=wanted
        )
    except ToolcribError as error:
        flaws = [{"field": "", "message": error.message}]
        context = {"inputs": inputs, "refused": True, "flaws": flaws}
        return render(request, FORM_TEMPLATE, context, status=error.http_status)
    messages.success(request, "The organization is changed." if wanted else "Nothing was changed.")
    return redirect("settings")


def _organization_inputs(row: Organization) -> list[FormInput]:
    levels = choices(str(level) for level in IsolationLevel)
    asked = [
        FormInput("name", "Name", required=True),
        FormInput("time_zone", "Time zone", required=True,
              help="Such as Europe/Berlin: of windows of groups, and of days of quotas."),
        FormInput("minimum_isolation", "Isolation at least", Widget.SELECT, options=levels,
              help="No tool runs at a lower level."),
        FormInput("max_concurrency", "Calls that run at once", help="Empty is no limit."),
        FormInput("max_queue_depth", "Calls that may wait", required=True,
              help="One more is refused."),
        FormInput("workspace_max_files", "Files in its workspace", required=True),
        FormInput("workspace_max_bytes", "Bytes in its workspace", required=True),
        FormInput("output_days", "Days that outputs are kept",
                  help="Empty keeps them without an end."),
    ]  # fmt: skip
    for one in asked:
        value = getattr(row, one.key)
        one.value = "" if value is None else str(value)
    return asked


def _parse_value(one: FormInput) -> Any:
    """The submitted value for an action; an invalid one sets the input's error."""
    if one.key in _NUMBERS:
        return _parse_number(one)
    if one.key == "name" and not 0 < len(one.value) <= _LONGEST_NAME:
        one.errors.append(f"A name of 1 to {_LONGEST_NAME} characters is needed.")
    if one.key == "minimum_isolation" and one.value not in list(IsolationLevel):
        one.errors.append("Choose one of the levels.")
    return one.value


def _parse_number(one: FormInput) -> int | None:
    if not one.value and one.key in _MAY_BE_EMPTY:
        return None
    if one.value.isascii() and one.value.isdecimal() and len(one.value) <= 15:
        return int(one.value)
    one.errors.append("A whole number is needed.")
    return None


def _organization_facts(row: Organization) -> list[tuple[str, str]]:
    """The labels of the form, and the values."""
    found = [
        (one.label, _format_number(one.value) or "no limit") for one in _organization_inputs(row)
    ]
    hosts = [item if isinstance(item, str) else item.get("host", "") for item in row.allowed_hosts]
    return [*found, ("web_fetch may reach", ", ".join(hosts) or "nothing")]


def _format_number(text: str) -> str:
    return f"{int(text):,}" if text.isdecimal() else text


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
