"""`/sessions/<id>/`: one workflow session of a caller: its state, its transitions and its calls."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from tools.accounts.people import may
from tools.execution import session_actions
from tools.models import Session
from tools.policy.pins import session_pins
from tools.ui.access import PageRequest, page
from tools.web.reauthentication import Proof, proof

SESSION_TEMPLATE = "executions/session.html"
PAGE_SIZE = 50


@require_safe
@page
def session_page(request: PageRequest, session_id: UUID) -> HttpResponse:
    session = session_actions.one_of(request.caller, session_id)
    calls = session.executions.only(
        "tool_name", "status", "parked_below", "state", "state_after", "error_code", "created_at",
    ).order_by("-pk")  # fmt: skip
    context = {
        "session": session,
        "who": session.agent.slug if session.agent else session.user.username,
        "transitions": session_actions.transitions(session),
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
    session = session_actions.one_of(request.caller, session_id)
    session_actions.close_session(caller=request.caller, session=session)
    messages.success(request, "The session is ended: no call begins in it any more.")
    return redirect("session", session_id=session_id)


def _may_end_session(request: PageRequest, session: Session) -> bool:
    own: Any = session.user_id == request.caller.user_id
    return own or may(request.caller, "change_session")
