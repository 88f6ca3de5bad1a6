"""`/groups/`: the tree of tool groups; one group with its tools, agents and opening windows; and
its form, with a preview of the impact. Opening windows are entered one per line, such as
`mon-fri 09:00-17:00`."""

import re
from collections.abc import Iterable, Mapping
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
from tools.accounts.grants.grant_actions import create_group, save_group
from tools.accounts.user_permissions import may, require
from tools.catalog.group_openings import openings_of
from tools.catalog.groups import members_of
from tools.catalog.snapshot import CatalogGroup, Snapshot
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.schedules import DAYS, build_schedule
from tools.errors import Conflict, Malformed, NotFound, ToolcribError
from tools.insight.group_effects import Effects, effects_of
from tools.models import Agent, ToolGroup
from tools.ui.display import DiffLine, diff_texts, pretty
from tools.ui.groups.week_chart import week_chart
from tools.ui.inputs import FormInput, Widget, form_values, place_errors, split_names
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof

LIST_TEMPLATE, FORM_TEMPLATE = "groups/groups.html", "groups/group_form.html"
MOST_SHOWN = 50
MOST_GROUPS = 500
_WINDOW_PATTERN = re.compile(
    r"(?:(?P<days>[a-z][a-z ,-]*?)\s+)?(?P<begin>\d\d:\d\d)\s*(?:-|–|to)\s*(?P<end>\d\d:\d\d)"
)
LONGEST_DESCRIPTION = 1000
_INDEX = re.compile(r"\[(\d+)\]")
_WINDOW_HELP = (
    "One window a line, such as mon-fri 09:00-17:00; without days it is every day. Empty: "
)


@dataclass
class _GroupForm:
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
        counts = {"lost": effects.lost, "won": effects.won, "missed": effects.while_closed}
        return {kind: sorted(one.counts.items()) for kind, one in counts.items() if one is not None}

    @property
    def lines(self) -> list[DiffLine] | None:
        if self.effects is None:
            return []
        before = _group_lines(self.effects.before) if self.group else []
        return diff_texts(before, _group_lines(self.effects.after))


@require_safe
@page
def group_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_toolgroup")
    snapshot, name = snapshot_of(request), request.GET.get("group", "")
    chosen = snapshot.groups.get(name)
    if name and chosen is None:
        raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
    rows = list(_group_tree(snapshot))
    context = {
        "rows": rows[:MOST_GROUPS],
        "more": max(0, len(rows) - MOST_GROUPS),
        "chosen": chosen,
        "about": _group_details(request, chosen, snapshot) if chosen else None,
        "may_add": may(request.caller, "add_toolgroup"),
        "may_change": may(request.caller, "change_toolgroup"),
    }
    return render(request, LIST_TEMPLATE, context)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def new_group(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_toolgroup")
    return _handle_form(request, None)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_group(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "change_toolgroup")
    group = snapshot_of(request).groups.get(name)
    if group is None:
        raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
    return _handle_form(request, group)


def group_inputs(group: CatalogGroup | None, names: Iterable[str]) -> list[FormInput]:
    """The inputs with the group's values; `names` are the possible parents."""
    parents = [("", "none"), *((name, name) for name in names if not group or name != group.name)]
    asked = [
        FormInput("description", "What it is for", Widget.AREA),
        FormInput("parent", "Within", Widget.SELECT, options=tuple(parents),
              help="A tool in this group is also in the one it is within."),
        FormInput("permissions", "Permissions",
                  help="Held by whoever holds the group. With commas."),
        FormInput("schedule", "When it is open", Widget.CODE, f"{_WINDOW_HELP}always."),
        FormInput("max_queue_age_s", "Closed while a call waits longer than, seconds",
              help="Empty: however long."),
        FormInput("max_cpu_percent", "Closed while processors are busier than, %",
              help="Empty: however busy."),
    ]  # fmt: skip
    if group is None:
        return [FormInput("name", "Name", required=True), *asked]
    for one in asked:
        one.value = _input_value(getattr(group, one.key))
    return asked


def fill_inputs(inputs: list[FormInput], data: Mapping[str, str]) -> None:
    for one in inputs:
        one.value = data.get(one.key, "").replace("\r\n", "\n")


def parse_inputs(inputs: list[FormInput]) -> dict[str, Any]:
    """The submitted values. Invalid inputs get an error."""
    by_key = {one.key: one for one in inputs}
    return {
        "description": _parse_description(by_key["description"]),
        "parent": by_key["parent"].value or None,
        "permissions": split_names(by_key["permissions"].value),
        "schedule": _parse_windows(by_key["schedule"]),
        "max_queue_age_s": _parse_number(by_key["max_queue_age_s"]),
        "max_cpu_percent": _parse_number(by_key["max_cpu_percent"]),
    }


def set_errors(inputs: list[FormInput], error: ToolcribError) -> list[dict[str, str]]:
    """Set each error at its input; errors that belong to no input are returned."""
    flaws = error.details.get("errors") if isinstance(error, Malformed) else None
    if not flaws:
        return [{"field": "", "message": error.message}]
    read = [{**one, "field": _INDEX.sub(r".\1", one["field"])} for one in flaws]
    return place_errors(read, inputs)


def window_line(window: Any) -> str:
    days = ",".join(window["days"]) + " " if "days" in window else ""
    return f"{days}{window['from']}-{window['to']}"


def _group_lines(said: dict[str, Any]) -> list[str]:
    """The values as text, each window on a line, as in the form."""
    return pretty({**said, "schedule": [window_line(one) for one in said["schedule"]]}).splitlines()


def _handle_form(request: PageRequest, group: CatalogGroup | None) -> HttpResponseBase:
    """Save the form, or show the preview of its impact where that is requested."""
    form = _GroupForm(group_inputs(group, sorted(snapshot_of(request).groups)), group)
    if request.method != "POST":
        return render(request, FORM_TEMPLATE, {"form": form})
    fill_inputs(form.inputs, form_values(request.POST))
    form.sees_hits = may(request.caller, "view_tool") and may(request.caller, "view_agent")
    change, name = parse_inputs(form.inputs), _group_name(form)
    if form.refused:
        return render(request, FORM_TEMPLATE, {"form": form}, status=400)
    said: dict[str, Any] = {
        "giver": request.caller,
        "organization": request.user.organization,
        "by": actor_of(request.caller),
        "name": name,
        **change,
    }
    try:
        if group is None:
            _check_name_free(request, name)
        if request.POST.get("do") != "save":
            form.effects = effects_of(snapshot=snapshot_of(request), **said)
            return render(request, FORM_TEMPLATE, {"form": form})
        (create_group if group is None else save_group)(**said)
    except ToolcribError as error:
        form.flaws = set_errors(form.inputs, error)
        return render(request, FORM_TEMPLATE, {"form": form}, status=error.http_status)
    messages.success(request, f"{name} is kept. It holds from the next request on.")
    return redirect(f"{reverse('groups')}?{urlencode({'group': name})}")


def _group_name(form: _GroupForm) -> str:
    return form.group.name if form.group else form.inputs[0].value.strip()


def _check_name_free(request: PageRequest, name: str) -> None:
    rows = ToolGroup.objects.filter(organization=request.user.organization, name=name)
    if rows.exists():
        raise Conflict(f"There is a group {name} already.", code="group_exists")


def _group_tree(snapshot: Snapshot) -> list[dict[str, Any]]:
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


def _group_details(request: PageRequest, group: CatalogGroup, snapshot: Snapshot) -> dict[str, Any]:
    members = members_of(group.name, snapshot)
    closing = openings_of(snapshot).closings.get(group.name)
    shown = datetime.now(UTC).astimezone(snapshot.time_zone)
    sees_tools = may(request.caller, "view_tool")
    return {
        "members": members[:MOST_SHOWN] if sees_tools else (),
        "sees_tools": sees_tools,
        "total": len(members),
        "holders": _group_agents(request, group.name),
        "closing": closing.reason if closing else "",
        "week": week_chart(build_schedule(group.schedule), shown),
        "windows": [window_line(window) for window in group.schedule],
        "zone": snapshot.time_zone,
        "now": shown,
        "permissions": sorted(group.permissions),
    }


def _group_agents(request: PageRequest, name: str) -> dict[str, Any] | None:
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


def _input_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "\n".join(map(window_line, value))
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parse_description(one: FormInput) -> str:
    text = one.value.strip()
    if len(text) > LONGEST_DESCRIPTION:
        one.errors.append(f"Give at most {LONGEST_DESCRIPTION} characters.")
    return text


def _parse_windows(one: FormInput) -> list[dict[str, Any]]:
    windows = []
    for number, line in enumerate(one.value.splitlines(), start=1):
        if not line.strip():
            continue
        found = _WINDOW_PATTERN.fullmatch(line.strip().lower())
        if found is None:
            one.errors.append(f"Line {number} is no window such as mon-fri 09:00-17:00.")
            continue
        days = {"days": _parse_days(found["days"])} if found["days"] else {}
        windows.append({**days, "from": found["begin"], "to": found["end"]})
    return windows


def _parse_days(text: str) -> list[str]:
    """`mon-fri` is five days; an unknown day stays, and the rules of windows refuse it."""
    days: list[str] = []
    for part in re.split(r"[ ,]+", text.strip(" ,")):
        first, dash, last = part.partition("-")
        if dash and first in DAYS and last in DAYS and DAYS.index(first) <= DAYS.index(last):
            days += DAYS[DAYS.index(first) : DAYS.index(last) + 1]
        else:
            days.append(part[:20])
    return days


def _parse_number(one: FormInput) -> float | None:
    text = one.value.strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", text):
        return float(text)
    one.errors.append("Give a number such as 30.")
    return None
