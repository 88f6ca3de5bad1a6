"""Versions of a tool: their differences, rollback to one, and verification of signatures."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tool
from tools.catalog.actions import find_tool, restore_version
from tools.catalog.signatures import drift, verification
from tools.catalog.signatures.verification import Evidence
from tools.catalog.signatures.versions import compare_versions
from tools.errors import Malformed
from tools.models import (
    Decision,
    OnDrift,
    Pin,
    Tool,
    ToolStatus,
    ToolVersion,
    UpstreamChange,
)
from tools.ui.approvals.upstream_changes import side_by_side_diff, tool_origin
from tools.web.pages import PageRequest, action_page, page, snapshot_of
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "catalog/version_difference.html"
MOST_VERSIONS = 20
MOST_CHOICES = 500
_MOST_PINNED = 3
SIGNATURE_PROBLEMS = {
    verification.ALTERED: "Not what was signed: it was altered after it was written.",
    verification.DISTRUSTED: "Its key is distrusted: it does not run before it is signed again.",
    verification.ROLLED_BACK: "A newer version was in use, and nobody restored this one.",
}
_POLICIES = {
    OnDrift.REFUSE: "refuses calls",
    OnDrift.SERVE: "serves the approved version",
}


@dataclass(frozen=True)
class VersionPins:
    """Agents and sessions that are pinned to a version."""

    agents: list[str]
    more: int
    sessions: int


@dataclass(frozen=True)
class VersionRow:
    version: ToolVersion
    flaw: str
    pinned: VersionPins | None


class RestoreForm(PreviewForm):
    row: Tool
    details = f"{TEMPLATE}#asks"
    version = forms.CharField(max_length=40, widget=forms.HiddenInput)

    def build(self) -> None:
        self.label = str(self["version"].value() or "")[:40]
        self.title, self.submit = f"Restore {self.label}?", f"Restore {self.label}"
        self.back = reverse("tool", args=[self.row.name])

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        assert self.row.version is not None
        old, new, _ = compare_versions(self.row, self.row.version.label, self.label)
        return {"the version in use": (old.label, old.digest), "restored": (new.label, new.digest)}

    def act(self, changes: dict[str, Any]) -> tuple[ToolVersion, bool]:
        """The version in use, and whether it is the same one as before."""
        before = self.row.version
        by = actor_of(self.request.caller)
        restored = restore_version(tool=self.row, label=self.label, by=by)
        assert restored.version is not None
        return restored.version, restored.version == before


@page()
def difference_page(request: PageRequest, name: str) -> HttpResponse:
    """The difference of two versions; with `restore`, a form that rolls back to `to`."""
    visible_tool(request.caller, snapshot_of(request), name)
    tool = find_tool(request.user.organization, name)
    assert tool.version is not None
    labels = _labels(tool)
    after = request.GET.get("to") or tool.version.label
    before = request.GET.get("from") or _previous_label(labels, after)
    current = tool.version.label
    if "restore" not in request.GET or after == current or not may(request.caller, "change_tool"):
        return _render_difference(request, tool, before, after)
    if before != current:  # a rollback is compared with the current version
        query = urlencode({"from": current, "to": after, "restore": "yes"})
        return redirect(f"{reverse('tool-difference', args=[tool.name])}?{query}")
    form = RestoreForm(request, tool, initial={"version": after})
    form.show_preview()
    return _render_difference(request, tool, before, after, form)


@action_page(Proof.NEEDED, "change_tool")
def restore_tool(request: PageRequest, name: str) -> HttpResponseBase:
    tool = find_tool(request.user.organization, name)
    form = RestoreForm(request, tool)
    if not form.save():
        assert tool.version is not None
        return _render_difference(request, tool, tool.version.label, form.label, form)
    version, same = form.result
    said = f"says what {form.label} says already" if same else f"is {form.label} again"
    messages.success(request, f"{name} {said}, as version {version.label}.")
    return redirect("tool", name=name)


def _render_difference(
    request: PageRequest, tool: Tool, before: str, after: str, form: RestoreForm | None = None
) -> HttpResponse:
    """Raises `NotFound` for a version that does not exist."""
    old, new, found = compare_versions(tool, before, after)
    assert tool.version is not None
    may_change = may(request.caller, "change_tool")
    context = {
        "tool": tool,
        "labels": _labels(tool),
        "old": old,
        "new": new,
        "drawn": side_by_side_diff(found),
        "form": form,
        "back_to": [one for one in (old, new) if may_change and one.pk != tool.version.pk],
    }
    return render(request, TEMPLATE, context, status=form.status if form else 200)


@action_page(Proof.NEEDED, "change_tool")
def change_policy(request: PageRequest, name: str) -> HttpResponseBase:
    """Set the drift policy: what happens to calls when the upstream tool changes."""
    tool = find_tool(request.user.organization, name)
    policy = request.POST.get("on_drift", "")
    if policy not in OnDrift.values:
        raise Malformed(f"on_drift must be one of {', '.join(OnDrift.values)}.")
    tool = drift.set_on_drift(tool=tool, policy=OnDrift(policy), by=actor_of(request.caller))
    does = _POLICIES[OnDrift(tool.on_drift)]
    messages.success(request, f"When its upstream changes, {name} {does}.")
    return redirect("tool", name=name)


def versions_context(request: PageRequest, tool: Tool) -> dict[str, Any]:
    """The newest versions, each checked against its signature."""
    evidence = Evidence.load_evidence(tool.organization)
    found = list(tool.versions.all()[: MOST_VERSIONS + 1])
    assert tool.version is not None
    pins = _load_pins(tool) if may(request.caller, "view_agent") else {}
    return {
        "flaw": signature_problem(evidence, tool, tool.version),
        "versions": [
            VersionRow(one, signature_problem(evidence, tool, one), pins.get(one.pk))
            for one in found[:MOST_VERSIONS]
        ],
        "more_versions": len(found) > MOST_VERSIONS,
        "several_versions": len(found) > 1,
    }


def upstream_context(tool: Tool) -> dict[str, Any] | None:
    """None for a tool without an upstream and without changes of one."""
    source = tool_origin(tool)
    if source is None and not tool.upstream_changes.exists():
        return None
    return {
        "source": source,
        "change": _blocking_change(tool),
        "policies": list(_POLICIES.items()),
        "policy": tool.on_drift,
        "words": _POLICIES[OnDrift(tool.on_drift)],
    }


def _blocking_change(tool: Tool) -> UpstreamChange | None:
    """The pending change; else the rejected one for which the tool is closed."""
    closed = tool.status == ToolStatus.QUARANTINED
    said = [Decision.OPEN, Decision.REJECTED] if closed else [Decision.OPEN]
    return tool.upstream_changes.filter(decision__in=said).order_by("decision", "-seen_at").first()


def signature_problem(evidence: Evidence, tool: Tool, version: ToolVersion) -> str:
    """Why the signature is invalid; empty where it is valid."""
    return SIGNATURE_PROBLEMS.get(evidence.problem(tool, version) or "", "")


def _load_pins(tool: Tool) -> Mapping[UUID, VersionPins]:
    agents: dict[UUID, list[str]] = defaultdict(list)
    sessions: dict[UUID, int] = defaultdict(int)
    rows = Pin.objects.filter(tool=tool, session__closed_at=None).order_by("agent__slug")
    for version, slug in rows.values_list("version_id", "agent__slug"):
        if slug is None:
            sessions[version] += 1
        else:
            agents[version].append(slug)
    return {
        one: VersionPins(
            agents[one][:_MOST_PINNED], max(0, len(agents[one]) - _MOST_PINNED), sessions[one]
        )
        for one in {*agents, *sessions}
    }


def _labels(tool: Tool) -> list[str]:
    return list(tool.versions.values_list("label", flat=True)[:MOST_CHOICES])


def _previous_label(labels: list[str], label: str) -> str:
    """The label before `label`, of labels with the newest first; the first one has only itself."""
    at = labels.index(label) if label in labels else 0
    return labels[min(at + 1, len(labels) - 1)]
