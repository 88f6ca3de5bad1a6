"""`/executions/`: the list of calls, with live updates, and the page of one call.
`/sessions/<id>/`: a workflow session of a caller, with its state, transitions and calls."""

from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.dateparse import parse_datetime

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
from tools.web.listing import Column, Filters, Listing, choice_field, text_field
from tools.web.pages import PageRequest, action_page, page, snapshot_of
from tools.web.reauthentication import Proof
from tools.workflows import retries, session_actions

PAGE_SIZE = 50
FAILED = "failed"  # a filter for every status of failure
STATUS_CHOICES = [*((one, one) for one in Status), (FAILED, "Failed in any way")]
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


def caller_name(execution: Execution) -> str:
    return execution.agent.slug if execution.agent else execution.user.username


class ExecutionFilters(Filters):
    status = choice_field("Status", STATUS_CHOICES)
    tool = text_field("Tool")
    agent = text_field("Agent")
    since = forms.CharField(label="Since", widget=forms.HiddenInput)
    within = forms.CharField(label="Called by", widget=forms.HiddenInput)


class CallListing(Listing):
    """Calls, the newest first, which are filtered by status and agent."""

    order, counted, live, live_every_s = "-started", False, "executions", 2

    def mark(self, row: Execution) -> str:
        return f"{row.pk}{row.stage}"

    def filter_calls(self, rows: ExecutionQuerySet) -> ExecutionQuerySet:
        if agent := self.values.get("agent"):
            rows = rows.filter(**agent_filter(self.request, agent))
        if status := self.values.get("status"):
            rows = rows.failed() if status == FAILED else rows.at_stage(status)
        return rows


class ExecutionListing(CallListing):
    view, template, noun = "executions", LIST_TEMPLATE, "execution"
    filters, page_size = ExecutionFilters, PAGE_SIZE
    columns = [
        Column("id", "", lambda row: row.pk),
        Column("tool", "Tool", lambda row: row.tool_name),
        Column("status", "Status", lambda row: row.stage),
        Column("error_code", "", lambda row: row.error_code),
        Column("who", "Who", caller_name),
        Column("started", "Started", lambda row: row.created_at, sort="created_at", css="number"),
        Column("duration_ms", "Duration", lambda row: row.duration_ms, css="number"),
        Column("output_bytes", "Output", lambda row: row.output_bytes, css="number"),
    ]

    def rows(self) -> ExecutionQuerySet:
        wanted: dict[str, Any] = {}
        if tool := self.values.get("tool"):
            wanted["tool_name"] = tool
        if within := self.values.get("within"):
            wanted["parent"] = _parse_id(within)
        if since := self.since:
            wanted["created_at__gte"] = since
        rows = self.filter_calls(readable_executions(self.caller).filter(**wanted))
        return rows.select_related("agent", "user", "parent").defer(*LARGE_FIELDS)

    @cached_property
    def since(self) -> datetime | None:
        return _parse_since(self.values.get("since", ""))

    def prepare(self, rows: list[Execution]) -> list[Execution]:
        for row in rows:
            row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
        return rows

    def context(self) -> dict[str, Any]:
        return {
            "within": _find_parent(self.request, self.values.get("within", "")),
            "everyone": may(self.caller, "view_execution"),
        }


@page()
def execution_list(request: PageRequest) -> HttpResponseBase:
    return ExecutionListing(request).respond()


@page()
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


@action_page(Proof.NOT_NEEDED)
def cancel_execution(request: PageRequest, execution_id: UUID) -> HttpResponseBase:
    execution = answer.find_execution(request.caller, execution_id)
    answer.cancel(caller=request.caller, execution=execution)
    if not request.htmx:
        return redirect("execution", execution_id=execution_id)
    execution = answer.find_execution(request.caller, execution_id)
    context = {"shown": execution_context(execution), **detail_context(request, execution)}
    return render(request, f"{EXECUTION_TEMPLATE}#moving", context)


@action_page(Proof.NOT_NEEDED)
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


@action_page(Proof.NEEDED)
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
        "who": caller_name(execution),
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


class SessionCallListing(Listing):
    """The calls of one session, on its page."""

    view, template, noun, page_size = "session", SESSION_TEMPLATE, "call", PAGE_SIZE
    order, counted = "-when", False
    columns = [
        Column("id", "", lambda row: row.pk),
        Column("call", "Call", lambda row: row.tool_name),
        Column("status", "Status", lambda row: row.stage),
        Column("error_code", "", lambda row: row.error_code),
        Column("state", "State", lambda row: row.state),
        Column("state_after", "", lambda row: row.state_after),
        Column("when", "When", lambda row: row.created_at, sort="pk", css="number"),
    ]

    def __init__(self, request: PageRequest, session: Session) -> None:
        self.session = session
        super().__init__(request)

    def rows(self) -> ExecutionQuerySet:
        calls: ExecutionQuerySet = self.session.executions.only(
            "tool_name", "status", "parked_below", "state", "state_after", "error_code",
            "created_at",
        )  # fmt: skip
        return calls

    def context(self) -> dict[str, Any]:
        session = self.session
        return {
            "session": session,
            "who": session.agent.slug if session.agent else session.user.username,
            "transitions": session_actions.latest_transitions(session),
            "most_transitions": session_actions.MOST_TRANSITIONS,
            "pins": sorted(session_pins(session).items()),
            "ends": session.closed_at is None and _may_end_session(self.request, session),
        }


@page()
def session_page(request: PageRequest, session_id: UUID) -> HttpResponseBase:
    session = session_actions.find_readable_session(request.caller, session_id)
    return SessionCallListing(request, session).respond()


@action_page(Proof.NOT_NEEDED)
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
            "after": f"+{format_duration((event.created_at - begun).total_seconds() * 1000)}",
        }
        for event in ExecutionEvent.objects.of_execution(execution)
    ]
    return [accepted, *followed]


def _parse_since(text: str) -> datetime | None:
    """Raises `Malformed` for a text that is not a time of this millennium with a UTC offset."""
    if not text:
        return None
    try:
        found = parse_datetime(text)
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


def _may_end_session(request: PageRequest, session: Session) -> bool:
    own: Any = session.user_id == request.caller.user_id
    return own or may(request.caller, "change_session")
