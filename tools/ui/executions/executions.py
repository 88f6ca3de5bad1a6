"""`/executions/`: the list of calls, with live updates, and the page of one call.
`/sessions/<id>/`: a workflow session of a caller, with its state, transitions and calls."""

import hashlib
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST, require_safe

from tools.accounts.user_permissions import may
from tools.authorization.pins import session_pins
from tools.definitions.implementations.tool_types import RUN_AGENT, RUN_BATCH
from tools.definitions.results import Status
from tools.errors import Malformed, ToolcribError
from tools.execution import answer
from tools.execution.outputs import readable_executions, redact_execution, redact_message
from tools.models import Agent, Execution, ExecutionEvent, Resolution, Session
from tools.models.execution_queryset import ExecutionQuerySet
from tools.ui.chains.chain_drawing import draw_run
from tools.ui.display import format_duration, impersonator_name, output_text, pretty, truncate
from tools.ui.executions.execution_details import child_calls, execution_timeline, resource_usage
from tools.web.pages import PageRequest, page, page_or_results, snapshot_of
from tools.web.reauthentication import Proof, proof
from tools.workflows import retries, session_actions

PAGE_SIZE = 50
FAILED = "failed"  # a filter for every status of failure
_MOST_TRANSITIONS = 20
LIST_TEMPLATE, EXECUTION_TEMPLATE = "executions/executions.html", "executions/execution.html"
LARGE_FIELDS = (
    "parameters",
    "parameters_asked",
    "refers_to",
    "output",
    "observation",
    "error_details",
    "warnings",
    "metrics",
)
SESSION_TEMPLATE = "executions/session.html"


@require_safe
@page
def execution_list(request: PageRequest) -> HttpResponse:
    search = _parse_search(request.GET)
    found = _find_executions(request, search)
    rows, older = load_older_page(request, found, PAGE_SIZE)
    for row in rows:
        row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
    newest = not request.GET.get("before")
    seen = list_fingerprint(rows)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)  # nothing changed: the page keeps its scroll position
    context = {
        "search": search,
        "statuses": [(status, status) for status in Status] + [(FAILED, "Failed in any way")],
        "rows": rows,
        "newest": newest,
        "live": _list_url(search, seen=seen) if newest else "",
        "older": _list_url(search, before=str(rows[-1].pk)) if older else "",
        "start": _list_url(search),
        "since": _parse_since(search),
        "within": _find_parent(request, search["within"]),
        "everyone": may(request.caller, "view_execution"),
    }
    here = _list_url(search, before=request.GET.get("before", ""))
    return page_or_results(request, LIST_TEMPLATE, context, here=here)


@require_safe
@page
def execution_page(request: PageRequest, execution_id: UUID) -> HttpResponse:
    execution = answer.find_execution(request.caller, execution_id)
    # The try-it form requests only the result, the execution's page every part that changes.
    part = "result" if request.GET.get("part") == "result" else "moving"
    shown = execution_context(execution)
    if request.htmx and request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    context = {"shown": shown, **detail_context(request, execution)}
    return render(
        request, f"{EXECUTION_TEMPLATE}#{part}" if request.htmx else EXECUTION_TEMPLATE, context
    )


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def cancel_execution(request: PageRequest, execution_id: UUID) -> HttpResponseBase:
    execution = answer.find_execution(request.caller, execution_id)
    answer.cancel(caller=request.caller, execution=execution)
    if not request.htmx:
        return redirect("execution", execution_id=execution_id)
    execution = answer.find_execution(request.caller, execution_id)
    context = {"shown": execution_context(execution), **detail_context(request, execution)}
    return render(request, f"{EXECUTION_TEMPLATE}#moving", context)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def retry(request: PageRequest, execution_id: UUID) -> HttpResponseBase:
    """Call again and redirect to the new call, also where a gate has refused it."""
    execution = answer.find_execution(request.caller, execution_id)
    try:
        made = retries.retry_call(person=request.caller, execution=execution).pk
    except ToolcribError as refusal:
        made = _parse_id(str(refusal.details.get("execution_id", "")))
        if not made.int or made == execution.pk:
            raise
    return redirect("execution", execution_id=made)


@proof(Proof.NEEDED)
@require_POST
@page
def resolve(request: PageRequest, execution_id: UUID) -> HttpResponseBase:
    execution = answer.find_execution(request.caller, execution_id)
    outcome, reason = request.POST.get("outcome", ""), request.POST.get("reason", "")
    if outcome not in Resolution.values:
        raise Malformed("Say whether the effect happened or did not happen.")
    answer.resolve(
        caller=request.caller,
        execution=execution,
        outcome=Resolution(outcome),
        reason=reason.strip()[:500],
    )
    return redirect("execution", execution_id=execution_id)


def detail_context(request: PageRequest, execution: Execution) -> dict[str, Any]:
    """More data for the call's page: its gates and durations, its usage, and whether it can be
    retried."""
    failed = execution.is_final and execution.status != Status.SUCCESS
    before = execution.retry_of
    return {
        "timeline": execution_timeline(execution),
        "resource_usage": resource_usage(execution, snapshot_of(request)),
        "retry_of": readable_executions(request.caller).filter(pk=before).first()
        if before
        else None,
        "retried_as": retries.find_retry(execution) if failed else None,
        "retries": failed and execution.parent_id is None,
        "why_not": retries.retry_refusal(request.caller, execution) if failed else None,
    }


def execution_context(execution: Execution) -> dict[str, Any]:
    """One execution with everything that a page shows of it, without secrets."""
    metrics, timeline, said = (
        execution.metrics,
        _event_timeline(execution),
        redact_execution(execution),
    )
    cancelling = execution.cancel_requested_at is not None
    calls = child_calls(execution)
    of_calls = calls.fingerprint if calls else ""
    return {
        "execution": execution,
        "seen": f"{execution.status}-{len(timeline)}-{cancelling}-{of_calls}",
        "calls": calls,
        "drawing": draw_run(execution) if calls else None,
        "batch": execution.tool_name == RUN_BATCH,
        "asked": execution.tool_name == RUN_AGENT,
        "step_of": _parent_agent_request(execution),
        "who": execution.agent.slug if execution.agent else execution.user.username,
        "kind": "agent" if execution.agent else "person",
        "made_by": impersonator_name(execution),
        "parameters": truncate(pretty(said["parameters"])),
        "output": output_text(execution.status, said["output"]),
        "text": isinstance(execution.output, str),
        "observation": said["observation"],
        "error": said["error_message"],
        "details": truncate(pretty(said["error_details"])) if said["error_details"] else "",
        "warnings": said["warnings"],
        "duration": format_duration(execution.duration_ms),
        "peak_memory_bytes": metrics.get("peak_memory_bytes"),
        "cpu": format_duration(metrics.get("cpu_time_ms")),
        "queue": format_duration(metrics.get("queue_ms")),
        "sandbox_start": format_duration(metrics.get("sandbox_start_ms")),
        "timeline": timeline,
        "session": _session_context(execution),
    }


def agent_filter(request: PageRequest, slug: str) -> dict[str, Any]:
    """A filter by the agent's service account, whose calls are all of that agent, and which has an
    index. With a filter by both, PostgreSQL's generic plan would expect few rows and read all
    calls of the busiest agent."""
    rows = Agent.objects.filter(organization_id=request.caller.organization_id, slug=slug)
    agent = rows.only("service_account_id").first()
    if agent is None:
        return {"user": None}  # matches no call: the page is empty
    return {"user": agent.service_account_id}


def _filter_older(
    request: PageRequest, found: ExecutionQuerySet, before: UUID
) -> ExecutionQuerySet:
    """The calls older than that call, which may have changed since; none where it is unknown."""
    of_it = (
        readable_executions(request.caller).filter(pk=before).values_list("created_at", flat=True)
    )
    moment = of_it.first()
    if moment is None:
        return found.none()
    same = Q(created_at=moment, pk__lt=before)
    return found.filter(Q(created_at__lt=moment) | same, created_at__lte=moment)


def load_older_page(
    request: PageRequest, found: ExecutionQuerySet, size: int
) -> tuple[list[Execution], bool]:
    """The page after the call that the address names, and whether more follow."""
    if before := request.GET.get("before"):
        found = _filter_older(request, found, _parse_id(before))
    rows = list(found[: size + 1])
    return rows[:size], len(rows) > size


def list_fingerprint(rows: list[Execution]) -> str:
    text = " ".join(f"{row.pk}{row.stage}" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@require_safe
@page
def session_page(request: PageRequest, session_id: UUID) -> HttpResponse:
    session = session_actions.find_readable_session(request.caller, session_id)
    calls = session.executions.only(
        "tool_name", "status", "parked_below", "state", "state_after", "error_code", "created_at",
    ).order_by("-pk")  # fmt: skip
    context = {
        "session": session,
        "who": session.agent.slug if session.agent else session.user.username,
        "transitions": session_actions.latest_transitions(session),
        "most_transitions": session_actions.MOST_TRANSITIONS,
        "pins": sorted(session_pins(session).items()),
        "page": Paginator(calls, PAGE_SIZE).get_page(request.GET.get("page")),
        "ends": session.closed_at is None and _may_end_session(request, session),
    }
    return render(request, SESSION_TEMPLATE, context)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def end_session(request: PageRequest, session_id: UUID) -> HttpResponseBase:
    """End the session: new calls in it are refused, and running calls finish."""
    session = session_actions.find_readable_session(request.caller, session_id)
    session_actions.close_session(caller=request.caller, session=session)
    messages.success(request, "The session is ended: no call begins in it any more.")
    return redirect("session", session_id=session_id)


def _parent_agent_request(execution: Execution) -> UUID | None:
    """The agent request that made the call."""
    parent = execution.parent
    return parent.pk if parent is not None and parent.tool_name == RUN_AGENT else None


def _session_context(execution: Execution) -> dict[str, Any] | None:
    if execution.session is None:
        return None
    row = execution.session
    return {"row": row, "transitions": session_actions.latest_transitions(row)[-_MOST_TRANSITIONS:]}


def _event_timeline(execution: Execution) -> list[dict[str, Any]]:
    """Every event with its time since the call."""
    begun = execution.created_at
    accepted = {"type": "Accepted", "message": "", "at": begun, "after": ""}
    followed = [
        {
            "type": event.type,
            "message": redact_message(event),
            "at": event.created_at,
            "after": format_duration((event.created_at - begun).total_seconds() * 1000),
        }
        for event in ExecutionEvent.objects.of_execution(execution)
    ]
    return [accepted, *followed]


def _parse_search(query: QueryDict) -> dict[str, str]:
    names = ("status", "tool", "agent", "within", "since")
    return {name: query.get(name, "").strip()[:128] for name in names}


def _find_executions(request: PageRequest, search: dict[str, str]) -> ExecutionQuerySet:
    wanted: dict[str, Any] = {"tool_name": search["tool"]} if search["tool"] else {}
    if search["agent"]:
        wanted |= agent_filter(request, search["agent"])
    if search["within"]:
        wanted["parent"] = _parse_id(search["within"])
    rows = readable_executions(request.caller).filter(**wanted)
    if since := _parse_since(search):
        rows = rows.filter(created_at__gte=since)
    if search["status"]:
        rows = rows.failed() if search["status"] == FAILED else rows.at_stage(search["status"])
    return (
        rows.select_related("agent", "user", "parent")
        .defer(*LARGE_FIELDS)
        .order_by("-created_at", "-pk")
    )


def _parse_since(search: dict[str, str]) -> datetime | None:
    """Raises `Malformed` for a text that is not a time of this millennium with a UTC offset."""
    if not search["since"]:
        return None
    try:
        found = parse_datetime(search["since"])
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 2000 <= found.year <= 2999:
        raise Malformed("since must be a moment such as 2026-01-31T12:00+00:00.")
    return found


def _find_parent(request: PageRequest, text: str) -> Execution | None:
    """The parent of the listed calls, where the user may see it."""
    if not text:
        return None
    return readable_executions(request.caller).filter(pk=_parse_id(text)).only("tool_name").first()


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)  # matches no call: the page is empty and explains it


def _list_url(search: dict[str, str], **more: str) -> str:
    query = {name: value for name, value in (search | more).items() if value}
    return reverse("executions") + (f"?{urlencode(query)}" if query else "")


def _may_end_session(request: PageRequest, session: Session) -> bool:
    own: Any = session.user_id == request.caller.user_id
    return own or may(request.caller, "change_session")
