"""`/playground/`: choose a tool to call by hand, or one of the last calls to make again."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import replace_url

from tools.authorization.listings import visible_tools
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.errors import Malformed, NotFound
from tools.ui.agents.agent_choices import called_as_agents
from tools.ui.playground.call_form import PlaygroundContext, playground_context
from tools.ui.playground.tool_call import call_history, replay_source
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

TEMPLATE = "playground/playground.html"
MOST_FOUND = 20


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def playground_page(request: PageRequest) -> HttpResponseBase:
    """Leads to the page of the call where the address names a tool or a call."""
    data = request.POST if request.method == "POST" else request.GET
    name = data.get("tool", "")
    if not name and (source := replay_source(request)) is not None:
        name = source.tool
    if name:
        return _redirect_to_tool(request, name)
    if request.method == "POST":
        raise Malformed("Choose a tool first.")
    return _render_choice(request, playground_context(request, request.GET.get("as", "")))


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def former_call_page(request: PageRequest, name: str) -> HttpResponseBase:
    """`/tools/<name>/try`, which was a form of the tool's page."""
    return _redirect_to_tool(request, name)


def _redirect_to_tool(request: PageRequest, name: str) -> HttpResponseBase:
    asked = request.GET.copy()
    asked.pop("tool", None)
    try:
        address = reverse("tool-call", args=[name])
    except NoReverseMatch:
        raise NotFound(f"There is no tool {name[:60]!r}.", code="tool_not_found") from None
    address += f"?{asked.urlencode()}" if asked else ""
    return redirect(address, preserve_request=request.method == "POST")


def _render_choice(request: PageRequest, playground: PlaygroundContext) -> HttpResponse:
    words = request.GET.get("q", "").strip()[:200]
    context = {
        "q": words,
        "agent": playground.agent,
        "agents": called_as_agents(request, playground.agent),
        "history": call_history(request),
        **_search_tools(playground, words),
    }
    if request.htmx.target != "found":
        return render(request, TEMPLATE, context)
    part = render(request, f"{TEMPLATE}#found", context)
    query = {name: value for name, value in (("q", words), ("as", playground.agent)) if value}
    return replace_url(part, f"{request.path}?{urlencode(query)}" if query else request.path)


def _search_tools(playground: PlaygroundContext, words: str) -> dict[str, Any]:
    tools = visible_tools(playground.viewer, playground.snapshot)
    if words:
        tools = tuple(
            one.tool for one in relevant_tools(rank_tools(playground.snapshot, words, list(tools)))
        )
    return {"found": tools[:MOST_FOUND], "total": len(tools)}
