"""`/services/`: tool services, the leases of their instances, and their announcements, which users
approve or reject; forms that create, change and delete a service."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import redis
from django import forms
from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone

from toolcrib_service.queue_protocol import Queue
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.catalog.services import announcements, services
from tools.catalog.services.announcements import MOST_PENDING
from tools.catalog.services.services import find_service, tools_of
from tools.definitions.services import Announcement, read_announcement
from tools.definitions.tool import ordered_definition
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, InvalidDefinition, Malformed
from tools.models import Execution, ServiceStatus, Tool, ToolService
from tools.runners.service import default_client
from tools.toolservices.redis_client import ToolServiceQueueStatus
from tools.ui.display import (
    SourceStatus,
    VisiblePiece,
    diff_definitions,
    mixed_words,
    pretty,
    visible_pieces,
)
from tools.web.form_fields import (
    GROUP_CHOICES,
    LinesField,
    NamesField,
    chosen_names,
    name_choice,
)
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, choice_field, search_field
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

LIST_TEMPLATE, SERVICE_TEMPLATE = "servers/services.html", "servers/service.html"
PAGE_SIZE = 50
RECENT = timedelta(hours=1)
_GROUPS = frozenset({"groups_kind", "groups"})
FORM_TEMPLATE, REMOVE_TEMPLATE = "servers/service_form.html", "servers/service_remove.html"


@dataclass(frozen=True)
class OfferedTool:
    """One tool of an announcement, compared with the catalog's tool of that name."""

    name: str
    change: str
    definition: list[VisiblePiece]
    lines: list[tuple[str, list[VisiblePiece]]] = field(default_factory=list)


@dataclass(frozen=True)
class AnnouncementReview:
    """An announcement for review by the user who decides about it."""

    flaw: str
    document: list[VisiblePiece]
    hidden: int
    mixed: list[str]
    service: list[tuple[str, str, str]] = field(default_factory=list)  # name, now, new
    tools: list[OfferedTool] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ServiceRow:
    row: ToolService
    source_status: SourceStatus
    tools: list[str]


class ServiceFilters(Filters):
    q = search_field("Name")
    status = choice_field("Announcement", ServiceStatus.choices)


class ServiceListing(Listing):
    view, template, noun, page_size = "services", LIST_TEMPLATE, "service", PAGE_SIZE
    filters, order, place, live, above = ServiceFilters, "service", "name", "", True
    columns = [
        Column("service", "Service", lambda row: row.row.name, sort="name"),
        Column("state", "State", lambda row: row.source_status.word),
        Column("lease", "Lease", lambda row: row.row.lease_until),
        Column("tools", "Its tools", lambda row: row.tools),
    ]

    def rows(self) -> QuerySet[ToolService]:
        rows = _services(self.request)
        if words := self.values.get("q"):
            rows = rows.filter(name__icontains=words)
        if status := self.values.get("status"):
            rows = rows.filter(status=status)
        return rows.select_related("organization")

    @cached_property
    def lives(self) -> dict[Any, ToolServiceQueueStatus | None]:
        """Of the page's services: one round trip for all."""
        return queue_statuses(self.page.rows)

    def prepare(self, rows: list[ToolService]) -> list[ServiceRow]:
        lives = self.lives if rows is self.page.rows else queue_statuses(rows)
        names = _tools_by_service(self.request, rows)
        return [
            ServiceRow(row, service_status(row, lives[row.pk]), names.get(row.name, []))
            for row in rows
        ]

    def mark(self, row: ToolService) -> str:
        shown = service_status(row, self.lives[row.pk])
        return f"{row.pk}{shown}{row.lease_until}{row.status}{row.digest}"

    def context(self) -> dict[str, Any]:
        pending = _services(self.request).filter(status=ServiceStatus.PENDING).count()
        return {
            "pending": pending,
            "full": pending >= MOST_PENDING,
            "may_add": may(self.caller, "add_toolservice"),
        }


@page("view_toolservice")
def service_list(request: PageRequest) -> HttpResponseBase:
    return ServiceListing(request).respond()


def _services(request: PageRequest) -> QuerySet[ToolService]:
    return ToolService.objects.filter(organization_id=request.caller.organization_id)


class ServiceToolFilters(Filters):
    q = search_field("Name")


class ServiceToolListing(Listing):
    """The tools of a service, on its page."""

    view, template, noun, order, place = "service", SERVICE_TEMPLATE, "tool", "tool", "name"
    filters, page_size, results = ServiceToolFilters, PAGE_SIZE, f"{SERVICE_TEMPLATE}#results"
    columns = [
        Column("tool", "Tool", lambda tool: tool.name, sort="name"),
        Column("state", "State", lambda tool: tool.status, sort="status"),
    ]

    def __init__(self, request: PageRequest, service: ToolService) -> None:
        self.service = service
        super().__init__(request)

    def rows(self) -> QuerySet[Tool]:
        rows = tools_of(self.service)
        return rows.filter(name__icontains=words) if (words := self.values.get("q")) else rows

    def context(self) -> dict[str, Any]:
        row, life = self.service, queue_status(self.service)
        return {
            "row": row,
            "source_status": service_status(row, life),
            "life": life,
            "review": review_announcement(row) if row.announced else None,
            "waits": row.announced and row.status != ServiceStatus.APPROVED,
            "calls": _recent_calls(self.request, row),
            "may_change": may(self.caller, "change_toolservice"),
            "may_delete": may(self.caller, "delete_toolservice"),
        }


@page("view_toolservice")
def service_page(request: PageRequest, name: str) -> HttpResponseBase:
    row = find_service(request.user.organization, name)
    return ServiceToolListing(request, row).respond()


def service_status(row: ToolService, life: ToolServiceQueueStatus | None) -> SourceStatus:
    """The status of a service, as its list shows it."""
    if not row.announced:
        return _unannounced_status(life)
    if not row.digest:
        if row.status == ServiceStatus.REJECTED:
            return SourceStatus("rejected", "rejected", since=row.last_seen)
        return SourceStatus("announced", "pending", since=row.last_seen, about="waits for a person")
    if row.serving:
        return SourceStatus("available", "active", until=row.lease_until)
    if row.lease_until is None:
        return SourceStatus("approved", "changed", about="nobody has served it yet")
    # The end of a lease that was released early may be in the future.
    over = row.lease_until <= timezone.now()
    since = row.lease_until if over else row.last_seen
    return SourceStatus("lapsed", "denied", since=since, about="its tools are closed")


def queue_status(row: ToolService) -> ToolServiceQueueStatus | None:
    """The state of the service in the broker; None where the broker does not answer."""
    return queue_statuses([row])[row.pk]


def queue_statuses(rows: Sequence[ToolService]) -> dict[Any, ToolServiceQueueStatus | None]:
    """By service, in one round trip."""
    asked = [row for row in rows if row.request_queue]
    found: dict[Any, ToolServiceQueueStatus | None] = dict.fromkeys(
        [row.pk for row in rows], ToolServiceQueueStatus(0, 0, 0.0, 0.0)
    )
    queues = [Queue(row.organization.slug, row.request_queue) for row in asked]
    try:
        lives: Sequence[ToolServiceQueueStatus | None] = default_client().queue_statuses(queues)
    except redis.RedisError:
        lives = [None] * len(asked)
    return found | {row.pk: life for row, life in zip(asked, lives, strict=True)}


def review_announcement(row: ToolService) -> AnnouncementReview:
    text = visible_pieces(row.announcement)
    hidden, mixed = sum(bool(piece.name) for piece in text), mixed_words(row.announcement)
    try:
        said = read_announcement(row.announcement, organization=row.organization.slug)
    except InvalidDefinition as error:
        return AnnouncementReview(error.message, text, hidden, mixed)
    named = {one["name"] for one in said.tools}
    there = {tool.name: tool for tool in tools_of(row).filter(name__in=named)}
    retired = tools_of(row).exclude(name__in=named) if named else Tool.objects.none()
    return AnnouncementReview(
        flaw="",
        document=text,
        # JSON may escape hidden characters, so they are counted in the parsed values.
        hidden=max(hidden, sum(bool(one.name) for one in visible_pieces(pretty([*said.tools])))),
        mixed=mixed or mixed_words(pretty([*said.tools])),
        service=_service_differences(row, said),
        tools=[_compare_tool(one, there.get(one["name"])) for one in said.tools],
        retired=[*retired.order_by("name").values_list("name", flat=True)],
    )


@action_page(Proof.NEEDED, "change_toolservice")
def decide_announcement(request: PageRequest, name: str) -> HttpResponseBase:
    """Decide on the announcement with the digest that was shown; of another one, show the page
    again and decide nothing."""
    row = services.find_service(request.user.organization, name)
    given = request.POST
    digest, word = given.get("digest", ""), given.get("do", "")
    if word not in {"approve", "reject"}:
        raise Malformed("The form names nothing to do. Reload the page and try again.")
    by = actor_of(request.caller)
    try:
        if word == "approve":
            announcements.approve_service(row=row, digest=digest, by=by)
        else:
            reason = given.get("reason", "").strip()[:500]
            announcements.reject_service(row=row, digest=digest, by=by, reason=reason)
    except Conflict as conflict:
        if conflict.code == "digest_differs":
            fresh = services.find_service(request.user.organization, name)
            response = ServiceToolListing(request, fresh).respond(stale=True)
            response.status_code = conflict.http_status
            return response
        messages.error(request, conflict.message, extra_tags=conflict.code)
    except InvalidDefinition as error:
        messages.error(request, _error_text(error))
    else:
        said = "holds now as you read it" if word == "approve" else "is rejected"
        messages.success(request, f"What {row.name} announced {said}.")
    return redirect("service", name=row.name)


class ParametersField(LinesField):
    """Parameters that tools configure, one a line, with "optional" after an optional one."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(
            f"{one['name']}{'' if one.get('required') else ' optional'}" for one in value
        )

    def to_python(self, value: Any) -> Any:
        lines = [line.split() for line in str(value or "").splitlines() if line.strip()]
        return [_config_parameter(words) for words in lines]


class ServiceForm(ActionForm):
    """Only the groups of a service that announced itself can be changed."""

    row: ToolService | None
    error_fields = {"default_groups": "groups"}
    id = forms.CharField(
        label="Name", max_length=128, help_text="Letters, digits, '_', '.' and '-'."
    )
    request_queue = forms.CharField(label="Queue of requests", max_length=500)
    response_queue = forms.CharField(label="Queue of answers", max_length=500)
    config_params = ParametersField(
        label="Parameters that its tools configure",
        help_text="One a line; a name, and “optional” after it where a tool may leave it out.",
    )
    groups_kind = forms.ChoiceField(
        label="Groups of its tools",
        choices=GROUP_CHOICES,
        help_text="Where a tool names none of its own.",
    )
    groups = NamesField(label="Names of groups", help_text="Separated by commas.")

    def build(self) -> None:
        left_out = ["id"] if self.row else []
        if self.row and self.row.announced:
            left_out += ["request_queue", "response_queue", "config_params"]
        for name in left_out:
            del self.fields[name]

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        kind, names = name_choice(self.row.default_groups)
        values = services.written(self.row) | {"groups_kind": kind, "groups": names}
        return {name: values[name] for name in self.fields}

    def act(self, changes: dict[str, Any]) -> Any:
        given = {name: one for name, one in changes.items() if name not in _GROUPS}
        if _GROUPS & changes.keys():
            kind, names = (self.cleaned_data[name] for name in ("groups_kind", "groups"))
            given["default_groups"] = chosen_names(kind, names)
        organization, by = self.request.user.organization, actor_of(self.request.caller)
        if self.row is None:
            return services.create_service(organization=organization, service=given, by=by)
        before = services.written(self.row)
        return (
            services.written(services.change_service(row=self.row, changes=given, by=by)) != before
        )


@form_page(Proof.NEEDED, "add_toolservice")
def write_service(request: PageRequest) -> HttpResponseBase:
    form = ServiceForm(request)
    if not form.save():
        return form.show(FORM_TEMPLATE)
    made = form.result.name
    return form.redirect(f"{made} is registered.", "service", name=made)


@form_page(Proof.NEEDED, "change_toolservice")
def change_service(request: PageRequest, name: str) -> HttpResponseBase:
    row = services.find_service(request.user.organization, name)
    form = ServiceForm(request, row)
    if not form.save():
        return form.show(FORM_TEMPLATE, {"row": row})
    return form.redirect(f"{row.name} is changed.", "service", name=row.name)


@form_page(Proof.NEEDED, "delete_toolservice")
def remove_service(request: PageRequest, name: str) -> HttpResponseBase:
    """Delete the service, after a confirmation page; refused while tools use it."""
    row = services.find_service(request.user.organization, name)
    if request.method != "POST":
        tools = [tool.name for tool in services.tools_of(row)]
        return render(request, REMOVE_TEMPLATE, {"row": row, "tools": tools})
    services.delete_service(row=row, by=actor_of(request.caller))
    messages.success(request, f"{row.name} is removed.")
    return redirect("services")


def _unannounced_status(life: ToolServiceQueueStatus | None) -> SourceStatus:
    if life is None:
        return SourceStatus("unknown", "pending", about="the broker does not answer")
    if life.processes:
        return SourceStatus("available", "active")
    return SourceStatus("silent", "denied", about="no process takes its requests")


def _service_differences(row: ToolService, said: Announcement) -> list[tuple[str, str, str]]:
    wanted = said.service
    groups = _groups_text(wanted["default_groups"])
    now = (row.request_queue, row.response_queue, _parameters_text(row.config_params))
    holds = (*now, _groups_text(row.default_groups)) if row.digest else ("",) * 4
    new = (
        wanted["request_queue"],
        wanted["response_queue"],
        _parameters_text(wanted["config_params"]),
    )
    labels = ("Requests", "Answers", "Parameters", "Groups")
    return list(zip(labels, holds, (*new, groups), strict=True))


def _parameters_text(params: list[dict[str, Any]]) -> str:
    words = (f"{one['name']}{'' if one.get('required') else ' (optional)'}" for one in params)
    return ", ".join(words) or "none"


def _groups_text(names: list[str] | None) -> str:
    return "default" if names is None else ", ".join(names) or "none: only through *"


def _compare_tool(definition: dict[str, Any], tool: Tool | None) -> OfferedTool:
    whole = visible_pieces(pretty(ordered_definition(definition)))
    if tool is None or tool.version is None:
        return OfferedTool(definition["name"], "new", whole)
    lines = (
        diff_definitions(
            _canonical_definition(tool.version.definition), _canonical_definition(definition)
        )
        or []
    )
    changes = [(line.kind, visible_pieces(line.text)) for line in lines]
    return OfferedTool(definition["name"], "changed" if lines else "same", whole, changes)


def _canonical_definition(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition in a canonical order: the database has another one than a document."""
    said = ordered_definition(definition).items()
    return {key: json.loads(json.dumps(value, sort_keys=True)) for key, value in said}


def _tools_by_service(request: PageRequest, services: list[ToolService]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    rows = Tool.objects.present().filter(
        organization_id=request.caller.organization_id,
        type=ToolType.SERVICE,
        version__definition__implementation__service__in=[one.name for one in services],
    )
    pairs = rows.order_by("name").values_list(
        "name", "version__definition__implementation__service"
    )
    for name, service in pairs:
        found.setdefault(service, []).append(name)
    return found


def _recent_calls(request: PageRequest, row: ToolService) -> list[tuple[str, int]] | None:
    """Calls of the last hour by result; None for users who may not view executions."""
    if not may(request.caller, "view_execution"):
        return None
    rows = Execution.objects.filter(
        organization_id=request.caller.organization_id,
        tool_name__in=tools_of(row).values("name"),
        created_at__gte=timezone.now() - RECENT,
    )
    return list(rows.order_by("status").values_list("status").annotate(Count("pk")))


def _config_parameter(words: list[str]) -> dict[str, Any]:
    optional = len(words) > 1 and words[-1].lower() == "optional"
    name = " ".join(words[:-1] if optional else words)
    return {"name": name, "required": not optional}


def _error_text(error: InvalidDefinition) -> str:
    flaws = error.details.get("errors") or []
    details = "; ".join(f"{one['field']} {one['message']}" for one in flaws[:5])
    return f"{error.message} {details}".strip()
