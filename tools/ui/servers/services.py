"""`/services/`: tool services, the leases of their instances, and their announcements."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import redis
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from toolcrib_service.queue_protocol import Queue
from tools.accounts.user_permissions import may, require
from tools.catalog.services.announcements import MOST_PENDING
from tools.catalog.services.services import find_service, tools_of
from tools.definitions.announcements import Announcement, read_announcement
from tools.definitions.tool import ordered_definition
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition
from tools.models import Execution, ServiceStatus, Tool, ToolService
from tools.runners.service import client
from tools.toolservices.redis_client import ToolServiceQueueStatus
from tools.ui.access import PageRequest, page
from tools.ui.display import SourceStatus, VisiblePiece, difference, mixed_words, pieces, pretty

LIST, ONE = "servers/services.html", "servers/service.html"
PAGE_SIZE = 50
LATELY = timedelta(hours=1)


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


@require_safe
@page
def service_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_toolservice")
    rows = ToolService.objects.select_related("organization").filter(
        organization_id=request.caller.organization_id
    )
    shown = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    names = _tools_by_service(request)
    pending = rows.filter(status=ServiceStatus.PENDING).count()
    context = {
        "rows": [(row, standing(row, life_of(row)), names.get(row.name, [])) for row in shown],
        "page": shown,
        "pending": pending,
        "full": pending >= MOST_PENDING,
        "may_add": may(request.caller, "add_toolservice"),
    }
    part = request.htmx and request.htmx.target == "results"
    return render(request, f"{LIST}#results" if part else LIST, context)


@require_safe
@page
def service_page(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "view_toolservice")
    return shown(request, find_service(request.user.organization, name))


def shown(
    request: PageRequest, row: ToolService, *, stale: bool = False, status: int = 200
) -> HttpResponse:
    life = life_of(row)
    tools = sorted(tools_of(row), key=lambda tool: tool.name)
    waits = row.announced and row.status != ServiceStatus.APPROVED
    context = {
        "row": row,
        "standing": standing(row, life),
        "life": life,
        "tools": tools,
        "review": review(row, tools) if row.announced else None,
        "waits": waits,
        "stale": stale,
        "calls": _lately(request, [tool.name for tool in tools]),
        "may_change": may(request.caller, "change_toolservice"),
        "may_delete": may(request.caller, "delete_toolservice"),
    }
    return render(request, ONE, context, status=status)


def standing(row: ToolService, life: ToolServiceQueueStatus | None) -> SourceStatus:
    """The status of a service, as its list shows it."""
    if not row.announced:
        return _by_hand(life)
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


def life_of(row: ToolService) -> ToolServiceQueueStatus | None:
    """The state of the service in the broker; None where the broker does not answer."""
    if not row.request_queue:
        return ToolServiceQueueStatus(0, 0, 0.0, 0.0)
    try:
        return client().life(Queue(row.organization.slug, row.request_queue))
    except redis.RedisError:
        return None


def review(row: ToolService, tools: list[Tool]) -> AnnouncementReview:
    text = pieces(row.announcement)
    hidden, mixed = sum(bool(piece.name) for piece in text), mixed_words(row.announcement)
    try:
        said = read_announcement(row.announcement, organization=row.organization.slug)
    except InvalidDefinition as error:
        return AnnouncementReview(error.message, text, hidden, mixed)
    named = {one["name"] for one in said.tools}
    there = {tool.name: tool for tool in tools}
    return AnnouncementReview(
        flaw="",
        document=text,
        # JSON may escape hidden characters, so they are counted in the parsed values.
        hidden=max(hidden, sum(bool(one.name) for one in pieces(pretty([*said.tools])))),
        mixed=mixed or mixed_words(pretty([*said.tools])),
        service=_beside(row, said),
        tools=[_offered(one, there.get(one["name"])) for one in said.tools],
        retired=sorted(set(there) - named) if named else [],
    )


def _by_hand(life: ToolServiceQueueStatus | None) -> SourceStatus:
    if life is None:
        return SourceStatus("unknown", "pending", about="the broker does not answer")
    if life.processes:
        return SourceStatus("available", "active")
    return SourceStatus("silent", "denied", about="no process takes its requests")


def _beside(row: ToolService, said: Announcement) -> list[tuple[str, str, str]]:
    wanted = said.service
    groups = _groups(wanted["default_groups"])
    now = (row.request_queue, row.response_queue, _params(row.config_params))
    holds = (*now, _groups(row.default_groups)) if row.digest else ("",) * 4
    new = (wanted["request_queue"], wanted["response_queue"], _params(wanted["config_params"]))
    labels = ("Requests", "Answers", "Parameters", "Groups")
    return list(zip(labels, holds, (*new, groups), strict=True))


def _params(params: list[dict[str, Any]]) -> str:
    words = (f"{one['name']}{'' if one.get('required') else ' (optional)'}" for one in params)
    return ", ".join(words) or "none"


def _groups(names: list[str] | None) -> str:
    return "default" if names is None else ", ".join(names) or "none: only through *"


def _offered(definition: dict[str, Any], tool: Tool | None) -> OfferedTool:
    whole = pieces(pretty(ordered_definition(definition)))
    if tool is None or tool.version is None:
        return OfferedTool(definition["name"], "new", whole)
    lines = difference(_even(tool.version.definition), _even(definition)) or []
    told = [(line.kind, pieces(line.text)) for line in lines]
    return OfferedTool(definition["name"], "changed" if lines else "same", whole, told)


def _even(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition in a canonical order: the database has another one than a document."""
    said = ordered_definition(definition).items()
    return {key: json.loads(json.dumps(value, sort_keys=True)) for key, value in said}


def _tools_by_service(request: PageRequest) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    rows = Tool.objects.present().filter(
        organization_id=request.caller.organization_id, type=ToolType.SERVICE
    )
    pairs = rows.order_by("name").values_list(
        "name", "version__definition__implementation__service"
    )
    for name, service in pairs:
        found.setdefault(service, []).append(name)
    return found


def _lately(request: PageRequest, names: list[str]) -> list[tuple[str, int]] | None:
    """Calls of the last hour by result; None for users who may not view executions."""
    if not may(request.caller, "view_execution"):
        return None
    rows = Execution.objects.filter(
        organization_id=request.caller.organization_id,
        tool_name__in=names,
        created_at__gte=timezone.now() - LATELY,
    )
    return list(rows.order_by("status").values_list("status").annotate(Count("pk")))
