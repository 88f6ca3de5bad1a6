"""Versions of a tool: their differences, rollback to one, and verification of signatures."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.authorization.listings import visible_tool
from tools.catalog.actions import find_tool, restore_version
from tools.catalog.signatures import drift, verification
from tools.catalog.signatures.verification import Evidence
from tools.catalog.signatures.versions import compare_versions
from tools.errors import Conflict, Malformed
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
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof

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


@require_safe
@page
def difference_page(request: PageRequest, name: str) -> HttpResponse:
    """The difference of two versions; with `restore`, a form that rolls back to `to`."""
    visible_tool(request.caller, snapshot_of(request), name)
    tool = find_tool(request.user.organization, name)
    assert tool.version is not None
    labels = list(tool.versions.values_list("label", flat=True)[:MOST_CHOICES])
    after = request.GET.get("to") or tool.version.label
    before = request.GET.get("from") or _previous_label(labels, after)
    old, new, found = compare_versions(tool, before, after)
    may_change = may(request.caller, "change_tool")
    asks = may_change and "restore" in request.GET and new.pk != tool.version.pk
    if asks and old.pk != tool.version.pk:
        return redirect(
            _restore_address(tool, new.label)
        )  # a rollback is compared with the current version
    context = {
        "tool": tool,
        "labels": labels,
        "old": old,
        "new": new,
        "drawn": side_by_side_diff(found),
        "asks": asks,
        "back_to": [one for one in (old, new) if may_change and one.pk != tool.version.pk],
    }
    return render(request, TEMPLATE, context)


@proof(Proof.NEEDED)
@require_POST
@page
def restore_tool(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_tool")
    tool = find_tool(request.user.organization, name)
    assert tool.version is not None
    label = request.POST.get("version", "")[:40]
    if request.POST.get("digest") != tool.version.digest:
        messages.error(request, "Nothing was restored: the tool was changed since. Read it again.")
        return redirect(_restore_address(tool, label))
    try:
        restored = restore_version(tool=tool, label=label, by=actor_of(request.caller))
    except Conflict as refusal:
        messages.error(request, f"Nothing was restored: {refusal.message}", extra_tags=refusal.code)
        return redirect("tool", name=name)
    assert restored.version is not None
    same = restored.version.pk == tool.version.pk
    said = f"says what {label} says already" if same else f"is {label} again"
    messages.success(request, f"{name} {said}, as version {restored.version.label}.")
    return redirect("tool", name=name)


@proof(Proof.NEEDED)
@require_POST
@page
def change_policy(request: PageRequest, name: str) -> HttpResponseBase:
    """Set the drift policy: what happens to calls when the upstream tool changes."""
    require(request.caller, "change_tool")
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


def _previous_label(labels: list[str], label: str) -> str:
    """The label before `label`, of labels with the newest first; the first one has only itself."""
    at = labels.index(label) if label in labels else 0
    return labels[min(at + 1, len(labels) - 1)]


def _restore_address(tool: Tool, label: str) -> str:
    assert tool.version is not None
    query = urlencode({"from": tool.version.label, "to": label, "restore": "yes"})
    return f"{reverse('tool-difference', args=[tool.name])}?{query}"
