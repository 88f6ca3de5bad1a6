"""`/groups/`: the tree of tool groups; one group with its tools, agents and opening windows; and
its form, with a preview of the impact."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.groups import create_group, save_group
from tools.accounts.user_permissions import may, require
from tools.catalog.group_openings import openings_of
from tools.catalog.groups import members_of
from tools.catalog.registry import CatalogGroup, Snapshot
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.schedules import build_schedule
from tools.errors import Conflict, NotFound, ToolcribError
from tools.insight.group_effects import Effects, effects_of
from tools.models import Agent, ToolGroup
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.display import DiffLine, pretty, text_difference
from tools.ui.groups.group_forms import as_line, change_from, fill, inputs_of, tell
from tools.ui.groups.week import week_of
from tools.ui.inputs import FormInput, plain
from tools.web.proof import Proof, proof

LIST, FORM = "groups/groups.html", "groups/group_form.html"
MOST_SHOWN = 50
MOST_GROUPS = 500


@dataclass
class _Form:
    inputs: list[FormInput]
    group: CatalogGroup | None
    flaws: list[dict[str, str]] = field(default_factory=list)
    effects: Effects | None = None
    sees_hits: bool = False  # whether the user may view tools and agents

    @property
    def refused(self) -> bool:
        return bool(self.flaws) or any(one.errors for one in self.inputs)

    @property
    def hits(self) -> dict[str, list[tuple[str, int]]]:
        """Counts by tool name, as lists, since a template cannot read a `Counter`'s items."""
        effects = self.effects
        if effects is None:
            return {}
        told = {"lost": effects.lost, "won": effects.won, "missed": effects.while_closed}
        return {kind: sorted(one.counts.items()) for kind, one in told.items() if one is not None}

    @property
    def lines(self) -> list[DiffLine] | None:
        if self.effects is None:
            return []
        before = _as_text(self.effects.before) if self.group else []
        return text_difference(before, _as_text(self.effects.after))


def _as_text(said: dict[str, Any]) -> list[str]:
    """The values as text, each window on a line, as in the form."""
    return pretty({**said, "schedule": [as_line(one) for one in said["schedule"]]}).splitlines()


@require_safe
@page
def group_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_toolgroup")
    snapshot, name = snapshot_of(request), request.GET.get("group", "")
    chosen = snapshot.groups.get(name)
    if name and chosen is None:
        raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
    rows = list(_tree(snapshot))
    context = {
        "rows": rows[:MOST_GROUPS],
        "more": max(0, len(rows) - MOST_GROUPS),
        "chosen": chosen,
        "about": _about(request, chosen, snapshot) if chosen else None,
        "may_add": may(request.caller, "add_toolgroup"),
        "may_change": may(request.caller, "change_toolgroup"),
    }
    return render(request, LIST, context)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def new_group(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_toolgroup")
    return _answered(request, None)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_group(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_toolgroup")
    group = snapshot_of(request).groups.get(name)
    if group is None:
        raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
    return _answered(request, group)


def _answered(request: PageRequest, group: CatalogGroup | None) -> HttpResponseBase:
    """Save the form, or show the preview of its impact where that is requested."""
    form = _Form(inputs_of(group, sorted(snapshot_of(request).groups)), group)
    if request.method != "POST":
        return render(request, FORM, {"form": form})
    fill(form.inputs, plain(request.POST))
    form.sees_hits = may(request.caller, "view_tool") and may(request.caller, "view_agent")
    change, name = change_from(form.inputs), _name(form)
    if form.refused:
        return render(request, FORM, {"form": form}, status=400)
    said: dict[str, Any] = {
        "giver": request.caller,
        "organization": request.user.organization,
        "by": actor_of(request.caller),
        "name": name,
        **change,
    }
    try:
        if group is None:
            _check_new(request, name)
        if request.POST.get("do") != "save":
            form.effects = effects_of(snapshot=snapshot_of(request), **said)
            return render(request, FORM, {"form": form})
        (create_group if group is None else save_group)(**said)
    except ToolcribError as error:
        form.flaws = tell(form.inputs, error)
        return render(request, FORM, {"form": form}, status=error.http_status)
    messages.success(request, f"{name} is kept. It holds from the next request on.")
    return redirect(f"{reverse('groups')}?{urlencode({'group': name})}")


def _name(form: _Form) -> str:
    return form.group.name if form.group else form.inputs[0].value.strip()


def _check_new(request: PageRequest, name: str) -> None:
    rows = ToolGroup.objects.filter(organization=request.user.organization, name=name)
    if rows.exists():
        raise Conflict(f"There is a group {name} already.", code="group_exists")


def _tree(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every group below its parent, sorted by name."""
    within: dict[str | None, list[str]] = {}
    for name in sorted(snapshot.groups):
        parent = snapshot.groups[name].parent
        within.setdefault(parent if parent in snapshot.groups else None, []).append(name)
    closed = openings_of(snapshot).closed
    rows: list[dict[str, Any]] = []
    ahead = [(name, 0) for name in reversed(within.get(None, []))]
    while ahead:
        name, depth = ahead.pop()
        group = snapshot.groups[name]
        rows.append(
            {
                "name": name,
                "depth": min(depth, 9),
                "tools": len(members_of(name, snapshot)),
                "closed": name in closed,
                "timed": bool(group.schedule or group.max_queue_age_s or group.max_cpu_percent),
            }
        )
        ahead += [(one, depth + 1) for one in reversed(within.get(name, []))]
    return rows


def _about(request: PageRequest, group: CatalogGroup, snapshot: Snapshot) -> dict[str, Any]:
    members = members_of(group.name, snapshot)
    closing = openings_of(snapshot).closings.get(group.name)
    shown = datetime.now(UTC).astimezone(snapshot.time_zone)
    sees_tools = may(request.caller, "view_tool")
    return {
        "members": members[:MOST_SHOWN] if sees_tools else (),
        "sees_tools": sees_tools,
        "total": len(members),
        "holders": _holders(request, group.name),
        "closing": closing.reason if closing else "",
        "week": week_of(build_schedule(group.schedule), shown),
        "windows": [as_line(window) for window in group.schedule],
        "zone": snapshot.time_zone,
        "now": shown,
        "permissions": sorted(group.permissions),
    }


def _holders(request: PageRequest, name: str) -> dict[str, Any] | None:
    """The agents that may request the group; None for users who may not view agents."""
    if not may(request.caller, "view_agent"):
        return None
    held = Agent.objects.filter(
        organization_id=request.caller.organization_id,
        service_account__granted_groups__overlap=[name, WILDCARD],
    )
    rows = held.order_by("slug").values_list("slug", "active", "service_account__granted_groups")[
        : MOST_SHOWN + 1
    ]
    shown = [(slug, active, name not in groups) for slug, active, groups in rows]
    return {"shown": shown[:MOST_SHOWN], "more": len(shown) > MOST_SHOWN}
