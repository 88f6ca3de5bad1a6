"""`/groups/`: the tree of tool groups; one group with its tools, agents and opening windows; and
its form, with a preview of the impact."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from tools.accounts.callers import actor_of
from tools.accounts.grants.grant_actions import create_group, save_group
from tools.accounts.user_permissions import may
from tools.catalog.group_openings import openings_of
from tools.catalog.groups import members_of
from tools.catalog.snapshot import CatalogGroup, Snapshot
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.schedules import build_schedule
from tools.errors import Conflict, NotFound
from tools.insight.group_effects import effects_of
from tools.models import Agent, ToolGroup
from tools.ui.display import diff_texts, pretty
from tools.ui.groups.week_chart import week_chart
from tools.web.form_fields import (
    NamesField,
    NumberField,
    OpenChoiceField,
    OpeningHoursField,
    choices,
    window_line,
)
from tools.web.forms import notify
from tools.web.listing import Column, Filters, Listing, search_field
from tools.web.pages import PageRequest, current_snapshot, form_page, page, snapshot_of
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

LIST_TEMPLATE, FORM_TEMPLATE = "groups/groups.html", "groups/group_form.html"
MOST_SHOWN = 50


@dataclass
class GroupRow:
    name: str
    parent: str
    depth: int
    closed: bool
    timed: bool
    tools: int = 0


class GroupForm(PreviewForm):
    details, optional = f"{FORM_TEMPLATE}#effects", True
    title, submit, leave = "What it would do", "Keep it", "Leave it"
    row: ToolGroup | None
    name = forms.CharField(label="Name", max_length=100)
    description = forms.CharField(
        label="What it is for", widget=forms.Textarea({"rows": 3}), max_length=1000, required=False
    )
    parent = OpenChoiceField(
        label="Within",
        required=False,
        help_text="A tool in this group is also in the one it is within.",
    )
    permissions = NamesField(
        label="Permissions", help_text="Held by each agent that holds the group. With commas."
    )
    schedule = OpeningHoursField(
        label="When it is open",
        help_text="One window a line, such as mon-fri 09:00-17:00; without days it is every day. "
        "Empty: always.",
    )
    max_queue_age_s = NumberField(
        label="Closed while a call waits longer than, seconds",
        required=False,
        help_text="Empty: however long.",
    )
    max_cpu_percent = NumberField(
        label="Closed while processors are busier than, %",
        required=False,
        help_text="Empty: however busy.",
    )

    def build(self) -> None:
        others = sorted(snapshot_of(self.request).groups)
        if self.row is not None:
            del self.fields["name"]
            others = [name for name in others if name != self.row.name]
        parent = self.fields["parent"]
        assert isinstance(parent, forms.ChoiceField)
        parent.choices = [("", "none"), *choices(others)]

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        values = {name: getattr(self.row, name) for name in self.fields}
        parent = self.row.parent.name if self.row.parent else ""
        return values | {"parent": parent, "permissions": sorted(self.row.permissions)}

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        if self.row is None:
            _check_name_free(self.request, values["name"])
        change = self._action_arguments(values)
        self.effects = found = effects_of(snapshot=current_snapshot(self.request), **change)
        counts = {"lost": found.lost, "won": found.won, "missed": found.while_closed}
        self.hits = {kind: sorted(one.counts.items()) for kind, one in counts.items() if one}
        before = [] if self.row is None else _group_lines(found.before)
        self.lines = diff_texts(before, _group_lines(found.after))
        caller = self.request.caller
        self.sees_hits = may(caller, "view_tool") and may(caller, "view_agent")
        hits = self.hits.items() if self.sees_hits else ()
        return {"the group": pretty(found.before)} | {
            f"{tool}, {kind}": f"{count} agents" for kind, tools in hits for tool, count in tools
        }

    def act(self, changes: dict[str, Any]) -> ToolGroup:
        return (create_group if self.row is None else save_group)(**self._action_arguments(changes))

    def _action_arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        empty = {"parent", "max_queue_age_s", "max_cpu_percent"}  # where None is no value
        given = {
            name: None if value == "" and name in empty else value for name, value in values.items()
        }
        return {
            "giver": self.request.caller,
            "organization": self.request.user.organization,
            "by": actor_of(self.request.caller),
        } | (given if self.row is None else given | {"name": self.row.name})


class GroupFilters(Filters):
    q = search_field("Name")


class GroupListing(Listing):
    """The tree of groups beside one of them."""

    view, template, noun, filters = "groups", LIST_TEMPLATE, "group", GroupFilters
    page_size, place, results = 100, "name", f"{LIST_TEMPLATE}#results"
    columns = [
        Column("group", "", lambda row: row.name),
        Column("within", "", lambda row: row.parent),
        Column("tools", "", lambda row: row.tools),
        Column("closed", "", lambda row: row.closed),
    ]

    def build(self) -> None:
        self.snapshot, name = snapshot_of(self.request), self.given.get("group", "")
        self.chosen = self.snapshot.groups.get(name)
        if name and self.chosen is None:
            raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
        self.fixed = {"group": name} if name else {}

    def rows(self) -> list[GroupRow]:
        words = self.values.get("q", "").lower()
        return [row for row in _group_tree(self.snapshot) if words in row.name.lower()]

    def prepare(self, rows: list[GroupRow]) -> list[GroupRow]:
        for row in rows:
            row.tools = len(members_of(row.name, self.snapshot))
        return rows

    def context(self) -> dict[str, Any]:
        chosen = self.chosen
        return {
            "chosen": chosen,
            "about": _group_details(self.request, chosen, self.snapshot) if chosen else None,
            "may_add": may(self.caller, "add_toolgroup"),
            "may_change": may(self.caller, "change_toolgroup"),
        }


@page("view_toolgroup")
def group_list(request: PageRequest) -> HttpResponseBase:
    return GroupListing(request).respond()


@form_page(Proof.NEEDED, "add_toolgroup")
def new_group(request: PageRequest) -> HttpResponseBase:
    return _handle_form(request, None)


@form_page(Proof.NEEDED, "change_toolgroup")
def change_group(request: PageRequest, name: str) -> HttpResponseBase:
    rows = ToolGroup.objects.filter(organization=request.user.organization)
    group = rows.select_related("parent").filter(name=name).first()
    if group is None:
        raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
    return _handle_form(request, group)


def _group_lines(said: dict[str, Any]) -> list[str]:
    """The values as text, each window on a line, as in the form."""
    return pretty({**said, "schedule": [window_line(one) for one in said["schedule"]]}).splitlines()


def _handle_form(request: PageRequest, group: ToolGroup | None) -> HttpResponseBase:
    form = GroupForm(request, group)
    if not form.save():
        return form.show(FORM_TEMPLATE, {"group": group})
    name = group.name if group else form.result.name
    notify(request, f"{name} is kept. It holds from the next request on.", changed=form.changed)
    return redirect(f"{reverse('groups')}?{urlencode({'group': name})}")


def _check_name_free(request: PageRequest, name: str) -> None:
    rows = ToolGroup.objects.filter(organization=request.user.organization, name=name)
    if rows.exists():
        raise Conflict(f"There is a group {name} already.", code="group_exists")


def _group_tree(snapshot: Snapshot) -> list[GroupRow]:
    """Every group below its parent, sorted by name."""
    within: dict[str | None, list[str]] = {}
    for name in sorted(snapshot.groups):
        parent = snapshot.groups[name].parent
        within.setdefault(parent if parent in snapshot.groups else None, []).append(name)
    closed = openings_of(snapshot).closed
    rows: list[GroupRow] = []
    ahead = [(name, 0) for name in reversed(within.get(None, []))]
    while ahead:
        name, depth = ahead.pop()
        group = snapshot.groups[name]
        timed = bool(group.schedule or group.max_queue_age_s or group.max_cpu_percent)
        rows.append(GroupRow(name, group.parent or "", min(depth, 9), name in closed, timed))
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
