"""`/playground/`: call any tool, as the user or as an agent that they may impersonate, and show the
response as a REST client gets it."""

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import replace_url

from tools.accounts.callers import caller_at_playground, impersonable_agents
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tool, visible_tools
from tools.authorization.pins import snapshot_for
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.values import strict_json
from tools.errors import Malformed, NotFound, ToolcribError
from tools.execution import confirmations
from tools.execution.answer import execute, refusal_of
from tools.execution.call import Call
from tools.execution.outputs import readable_executions
from tools.models import Execution
from tools.shapes.executions import execution_shape, refusal_shape
from tools.ui.agents.agent_choices import called_as_agents
from tools.ui.display import format_duration, pretty, truncate
from tools.ui.executions.executions import execution_context
from tools.ui.playground.call_form import PlaygroundAttempt, new_attempt
from tools.ui.playground.replay import (
    ReplayComparison,
    ReplaySource,
    compare_results,
    find_replayed_execution,
    from_execution,
    from_record,
)
from tools.ui.playground.snippets import Snippet, code_snippets
from tools.web.pages import PageRequest, address_of, page
from tools.web.reauthentication import Proof, proof

TEMPLATE = "playground/playground.html"
WAIT_S = 20.0
LIVE_WAIT_S = 1.5  # after that, the part that htmx loaded follows the call
FORM, JSON = "form", "json"
MOST_FOUND = 20
MOST_HISTORY = 20
_HISTORY_FIELDS = (
    "tool_name", "status", "parked_below", "agent__slug", "created_at", "duration_ms", "error_code",
)  # fmt: skip


@dataclass(frozen=True)
class PlaygroundResponse:
    """`body` is the body of the response, indented."""

    status: int
    body: str
    observation: str = ""

    @property
    def phrase(self) -> str:
        return HTTPStatus(self.status).phrase

    @property
    def good(self) -> bool:
        return self.status < HTTPStatus.BAD_REQUEST


@dataclass(frozen=True)
class PlaygroundContext:
    """The user of the playground, and the caller that they call as."""

    person: Caller
    agent: str
    caller: Caller
    snapshot: Snapshot

    @property
    def viewer(self) -> Caller:
        """Whose tools are offered: the user's if they may view every tool, else the caller's."""
        return self.person if may(self.person, "view_tool") else self.caller

    def tool(self, name: str) -> CatalogTool:
        """Raises `NotFound`, also for a tool that the viewer may not see."""
        return visible_tool(self.viewer, self.snapshot, name)


@dataclass
class PlaygroundForm:
    """One call: its form, the same arguments as JSON, and which of the two is sent."""

    tool: CatalogTool
    attempt: PlaygroundAttempt
    sends: str = FORM
    raw: str = "{}"
    raw_errors: list[str] = field(default_factory=list)
    apart: bool = False  # the form cannot represent all of the JSON
    emptied: list[str] = field(default_factory=list)
    instead_of: str = ""  # the agent of the loaded call, if the user may not impersonate it
    again: Execution | None = None
    answer: PlaygroundResponse | None = None
    compared: ReplayComparison | None = None
    snippets: list[Snippet] = field(default_factory=list)

    @property
    def flawed(self) -> bool:
        return bool(self.raw_errors) or (self.sends == FORM and self.attempt.form.flawed)

    def load(self, parameters: dict[str, Any]) -> None:
        """Load arguments into both; where the form cannot represent them, the JSON is sent."""
        if self.attempt.form.load(parameters):
            self.raw = pretty(self.attempt.form.parameters())  # in the order of the definition
        else:
            self.raw, self.sends, self.apart = pretty(parameters), JSON, True

    def read(self, data: QueryDict) -> dict[str, Any]:
        """The arguments of the one of the two that the form sends."""
        self.sends = JSON if data.get("sends") == JSON else FORM
        self.raw = data.get("raw", "").replace("\r\n", "\n")
        if self.sends == FORM:
            parameters = self.attempt.form.parameters()
            if not self.attempt.form.flawed:
                self.raw = pretty(parameters)
            return parameters
        return self._read_raw()

    def _read_raw(self) -> dict[str, Any]:
        try:
            parameters = strict_json.parse(self.raw)
        except strict_json.BadJson as error:
            self.raw_errors.append(f"This cannot be sent: {error}.")
            return {}
        if not isinstance(parameters, dict):
            self.raw_errors.append('Give one JSON object, such as {"path": "notes"}.')
            return {}
        self.apart = not self.attempt.form.load(parameters)
        return parameters


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def playground_page(request: PageRequest) -> HttpResponse:
    if request.method == "POST":
        return _handle_form(request)
    if "follow" in request.GET:
        return _render_followed(request)
    source = _replay_source(request)
    if source is None:
        playground = playground_context(request, request.GET.get("as", ""))
        name = request.GET.get("tool", "")
        return _render_page(request, playground, _new_form(playground, name) if name else None)
    agents = impersonable_agents(request.caller.user_id).filter(active=True)
    mine = not source.agent or agents.filter(slug=source.agent).exists()
    playground = playground_context(request, source.agent if mine else "")
    play = _new_form(playground, source.tool, source)
    play.instead_of = "" if mine else source.agent
    return _render_page(request, playground, play)


def playground_context(request: PageRequest, agent: str) -> PlaygroundContext:
    caller = caller_at_playground(request.caller, agent, source_ip=address_of(request))
    return PlaygroundContext(request.caller, agent, caller, snapshot_for(caller))


def current_response(execution: Execution) -> PlaygroundResponse:
    """The current response: 200 once the call is over, 202 before, else the refusal's status."""
    refusal = refusal_of(execution)
    if refusal is not None:
        return refusal_response(refusal, execution.request_id)
    held = confirmations.load_confirmations([execution]).get(execution.pk)
    status = HTTPStatus.OK if execution.is_final else HTTPStatus.ACCEPTED
    return PlaygroundResponse(
        status, _body_text(execution_shape(execution, held)), execution.observation
    )


def refusal_response(refusal: ToolcribError, request_id: str = "") -> PlaygroundResponse:
    named = {"request_id": request_id} if request_id else {}
    return PlaygroundResponse(refusal.http_status, _body_text(refusal_shape(refusal) | named))


def _handle_form(request: PageRequest) -> HttpResponse:
    """Call through the execution pipeline; or show the form for another caller, or snippets."""
    data = request.POST
    playground = playground_context(request, data.get("as", ""))
    if not data.get("tool"):
        raise Malformed("Choose a tool first.")
    tool = playground.tool(data["tool"])
    play = PlaygroundForm(tool, new_attempt(tool, playground.caller, playground.snapshot))
    usual = replace(play.attempt)
    play.attempt.fill(data)
    parameters = play.read(data)
    play.again = find_replayed_execution(request.caller, data.get("again", ""), tool.name)
    if data.get("do") == "as":
        play.attempt.groups, play.attempt.offered = usual.groups, usual.offered
    elif not play.flawed:
        if data.get("do") != "write":
            _execute(request, playground, play, parameters)
        play.snippets = _call_snippets(request, play, parameters)
    if request.htmx:
        return render(request, f"{TEMPLATE}#play", _template_context(request, playground, play))
    return _render_page(request, playground, play)


def _execute(
    request: PageRequest,
    playground: PlaygroundContext,
    play: PlaygroundForm,
    parameters: dict[str, Any],
) -> None:
    attempt = play.attempt
    call = Call(play.tool.name, parameters, group=attempt.requested_groups, state=attempt.state)
    wait_s = LIVE_WAIT_S if request.htmx else WAIT_S
    try:
        execution = execute(caller=playground.caller, call=call, wait_s=wait_s)
    except ToolcribError as refusal:
        row = attempt.refused(refusal)
        play.answer = refusal_response(refusal)
    else:
        row = _find_own_execution(request.caller, execution.pk)
        row.rate = execution.rate
        play.answer = current_response(row)
    attempt.execution = execution_context(row) if row else None
    play.compared = _compare_finished(play.again, row)


def _render_followed(request: PageRequest) -> HttpResponse:
    """The partial with the result of a call that the user has made here."""
    execution = _find_own_execution(request.caller, _parse_id(request.GET.get("follow", "")))
    shown = execution_context(execution)
    if request.htmx and request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    again = find_replayed_execution(
        request.caller, request.GET.get("again", ""), execution.tool_name
    )
    context = {
        "shown": shown,
        "answer": current_response(execution),
        "again": again,
        "compared": _compare_finished(again, execution),
    }
    return render(request, f"{TEMPLATE}#answer", context)


def _find_own_execution(person: Caller, identifier: UUID) -> Execution:
    """A call that the user has made and may read. Raises `NotFound` for any other."""
    found = (
        readable_executions(person).shown().filter(made_by=person.user_id, pk=identifier).first()
    )
    if found is None:
        raise NotFound("There is no such call among yours.", code="execution_not_found")
    return found


def _replay_source(request: PageRequest) -> ReplaySource | None:
    """The call to load."""
    for name, read in (("from", from_execution), ("record", from_record)):
        if text := request.GET.get(name):
            return read(request.caller, _parse_id(text))
    return None


def _new_form(
    playground: PlaygroundContext, name: str, source: ReplaySource | None = None
) -> PlaygroundForm:
    tool = playground.tool(name)
    play = PlaygroundForm(tool, new_attempt(tool, playground.caller, playground.snapshot))
    if source is None:
        play.raw = pretty(play.attempt.form.parameters())
        for item in play.attempt.form.all_fields:
            item.errors = []
        return play
    play.load(source.parameters)
    play.emptied, play.again = source.emptied, source.again
    play.attempt.state = source.state or play.attempt.state
    if source.groups is not None:
        play.attempt.groups = source.groups
        others = [name for name in source.groups if name not in play.attempt.offered]
        play.attempt.offered = play.attempt.offered + others
    return play


def _compare_finished(before: Execution | None, after: Execution | None) -> ReplayComparison | None:
    """The comparison, once the new call is over too."""
    return compare_results(before, after) if before and after and after.is_final else None


def _call_snippets(
    request: PageRequest, play: PlaygroundForm, parameters: dict[str, Any]
) -> list[Snippet]:
    address = request.build_absolute_uri(reverse("api-execute", args=[play.tool.name]))
    attempt = play.attempt
    return code_snippets(
        address,
        tool=play.tool.name,
        parameters=parameters,
        groups=attempt.requested_groups,
        state=attempt.state,
    )


def _render_page(
    request: PageRequest, playground: PlaygroundContext, play: PlaygroundForm | None
) -> HttpResponse:
    context = _template_context(request, playground, play)
    if play is not None:
        return render(request, TEMPLATE, context)
    words = request.GET.get("q", "").strip()[:200]
    context |= {"q": words, **_search_tools(playground, words)}
    if request.htmx.target != "found":
        return render(request, TEMPLATE, context)
    part = render(request, f"{TEMPLATE}#found", context)
    return replace_url(part, _playground_url({"q": words, "as": playground.agent}))


def _template_context(
    request: PageRequest, playground: PlaygroundContext, play: PlaygroundForm | None
) -> dict[str, Any]:
    return {
        "play": play,
        "tool": play.tool if play else None,
        "attempt": play.attempt if play else None,
        "shown": play.attempt.execution if play else None,
        "answer": play.answer if play else None,
        "compared": play.compared if play else None,
        "again": play.again if play else None,
        "agent": playground.agent,
        "agents": called_as_agents(request, playground.agent),
        "history": _call_history(request),
    }


def _search_tools(playground: PlaygroundContext, words: str) -> dict[str, Any]:
    tools = visible_tools(playground.viewer, playground.snapshot)
    if words:
        tools = tuple(
            one.tool for one in relevant_tools(rank_tools(playground.snapshot, words, list(tools)))
        )
    return {"found": tools[:MOST_FOUND], "total": len(tools)}


def _call_history(request: PageRequest) -> list[Execution]:
    """The user's calls, the newest first."""
    rows = readable_executions(request.caller).filter(made_by=request.caller.user_id, parent=None)
    found = list(
        rows.select_related("agent").only(*_HISTORY_FIELDS).order_by("-created_at")[:MOST_HISTORY]
    )
    for row in found:
        row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
    return found


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such call among yours.", code="execution_not_found") from None


def _playground_url(asked: dict[str, str]) -> str:
    query = {name: value for name, value in asked.items() if value}
    return reverse("playground") + (f"?{urlencode(query)}" if query else "")


def _body_text(value: dict[str, Any]) -> str:
    return truncate(pretty(value))
