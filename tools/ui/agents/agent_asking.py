"""`/agent/requests/new/`: ask an agent, as the user or as an agent that they may impersonate."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.agents.toolbox import Toolbox, toolbox_of
from tools.authorization.pins import snapshot_for
from tools.errors import ToolcribError
from tools.execution import actions as executions
from tools.execution.call import Call
from tools.models import Session
from tools.policy.questions import EffectiveRequest
from tools.ui.access import PageRequest, page
from tools.ui.agents.agent_requests import on_one_line, ready
from tools.ui.agents.asking import Asking, asking_of
from tools.ui.playground.playground import impersonable_agents, playground_context
from tools.web.reauthentication import Proof, proof

PAGE = "agents/agent_ask.html"


@dataclass(frozen=True)
class ToolboxPreview:
    """The tools that the filter leaves, or why they cannot be determined."""

    toolbox: Toolbox | None = None
    why_not: str = ""


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def ask(request: PageRequest) -> HttpResponseBase:
    data = request.POST if request.method == "POST" else request.GET
    asking = asking_of(playground_context(request, data.get("as", "")), data)
    if request.method != "POST":
        return _form(request, asking)
    usual = asking.groups
    asking.fill(data)
    if data.get("do") == "as":
        asking.groups, asking.other = usual, ""
    elif data.get("do") != "preview":
        return _asked(request, asking)
    return _form(request, asking)


def _asked(request: PageRequest, asking: Asking) -> HttpResponseBase:
    """Send the request and redirect to its page; show the form again where it is refused."""
    asking.check()
    if asking.flawed or not ready():
        return _form(request, asking, sent=True)
    try:
        call = asking.call()
        made = executions.execute(caller=asking.standing.caller, call=call, wait_s=0.0)
    except ToolcribError as refusal:
        asking.refuse(refusal)
        return _form(request, asking, sent=True)
    return redirect("agent-request", request_id=made.pk)


def _form(request: PageRequest, asking: Asking, *, sent: bool = False) -> HttpResponse:
    refusal = asking.refusal
    context = {
        "asking": asking,
        "item": asking.inputs,
        "sent": sent,
        "agent": asking.standing.agent,
        "agents": impersonable_agents(request),
        "ready": ready(),
        "preview": _preview(asking),
        "refused_as": refusal.details.get("execution_id") if refusal else None,
        "earlier": _earlier(request, asking),
    }
    if request.htmx and request.htmx.target == "toolbox":
        return render(request, f"{PAGE}#toolbox", context)
    return render(request, PAGE, context, status=refusal.http_status if refusal else 200)


def _earlier(request: PageRequest, asking: Asking) -> object:
    if asking.earlier is None:
        return None
    question = str(asking.earlier.parameters.get("question", ""))
    return on_one_line(question, request.caller.organization)


def _preview(asking: Asking) -> ToolboxPreview:
    """The tools as of now; every gate is evaluated again for each call."""
    if asking.inputs["session"].value not in dict(asking.inputs["session"].options):
        return ToolboxPreview(why_not="Choose a session of the list.")
    question = asking.inputs["question"].value
    try:
        call = asking.call_so_far()
        caller, asked = asking.standing.caller, _filter(call)
        return ToolboxPreview(
            toolbox_of(caller, asked, snapshot_for(caller, call.session), question)
        )
    except ToolcribError as refusal:
        return ToolboxPreview(why_not=refusal.message)


def _filter(call: Call) -> EffectiveRequest:
    if call.session is None:
        return EffectiveRequest.of(call.group, call.state)
    session = Session.objects.only("groups", "state").get(pk=UUID(call.session))
    return EffectiveRequest.of(session.groups, session.state)
