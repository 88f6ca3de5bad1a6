"""`/tools/<name>/call/`: call a tool by hand, as the user or as an agent that they may impersonate,
and show the response as a REST client gets it; or rehearse a chain. A form that is sent twice makes
one call: the second answer leads to the call of the first. `/playground/` finds a tool to call.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django_htmx.http import replace_url

from tools.accounts.callers import impersonable_agents
from tools.authorization.listings import visible_tools
from tools.authorization.pins import snapshot_for
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool
from tools.definitions.callers import Caller
from tools.definitions.values import strict_json
from tools.errors import Malformed, NotFound, ToolcribError
from tools.execution import confirmations
from tools.execution.answer import execute, refusal_of
from tools.execution.call import Call
from tools.execution.outputs import readable_executions
from tools.models import Execution
from tools.policy.questions import EffectiveRequest
from tools.shapes.executions import execution_shape, refusal_shape
from tools.ui.agents.agent_choices import called_as_agents
from tools.ui.chains.chains import dry_run_lines, has_dry_run
from tools.ui.display import format_duration, pretty, truncate
from tools.ui.executions.executions import execution_context
from tools.ui.playground.call_form import (
    CallForm,
    PlaygroundContext,
    playground_context,
    tool_choices,
)
from tools.ui.playground.parameter_form import ParameterForm
from tools.ui.playground.replay import (
    ReplaySource,
    compare_finished,
    find_replayed_execution,
    from_execution,
    from_record,
)
from tools.ui.playground.snippets import Snippet, code_snippets
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof

TEMPLATE, CHOICE_TEMPLATE = "playground/tool_call.html", "playground/playground.html"
WAIT_S = 20.0
LIVE_WAIT_S = 1.5  # after that, the part that htmx loaded follows the call
MOST_FOUND, MOST_HISTORY = 20, 20
UNREADABLE = "A field cannot be read."
_HISTORY_FIELDS = (
    "tool_name", "status", "parked_below", "agent__slug", "created_at", "duration_ms", "error_code",
)  # fmt: skip


@dataclass(frozen=True)
class PlaygroundResponse:
    """`body` is the body of the response, indented."""

    status: HTTPStatus
    body: str
    observation: str = ""


class ToolCallForm(CallForm):
    """The parameters stand in it twice: as fields of the tool's schema and as JSON. One is sent."""

    raw = forms.CharField(
        label="Parameters as JSON",
        required=False,
        strip=False,
        widget=forms.Textarea(
            {"rows": 12, "class": "mono", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    apart = False  # the fields cannot represent all of the JSON
    instead_of = ""  # the agent of the loaded call, if the user may not impersonate it
    again: Execution | None = None  # the call that it makes again
    made: Execution | None = None  # the call that it made, also a refused one
    rehearsal: list[dict[str, Any]] | None = None
    sent_parameters: dict[str, Any]

    def __init__(
        self, request: PageRequest, agent: str, name: str, source: ReplaySource | None = None
    ) -> None:
        """Raises `NotFound` for an agent, a tool or a call that is not the user's."""
        playground = playground_context(request, agent)
        self.tool = playground.tool(name)
        if source is not None and source.tool != name:
            raise _no_such_call()
        self.parameters = ParameterForm(self.tool.definition.raw)
        self.emptied = source.emptied if source else []
        loaded = self._loaded(source)
        super().__init__(request, playground, tool_choices(self.tool, playground), loaded)
        self.sends_json = self.apart
        if self.is_bound:
            self.sends_json = self.data.get("sends") == "json"
            self.parameters.fill(self.data)
            again = self.data.get("again", "")
            self.again = find_replayed_execution(request.caller, again, name)

    def clean(self) -> dict[str, Any]:
        self.sent_parameters = self._read_json() if self.sends_json else self._read_fields()
        return self.cleaned_data

    def act(self, changes: dict[str, Any]) -> Execution:
        parameters, groups = self.sent_parameters, self.requested_groups
        call = Call(self.tool.name, parameters, group=groups, state=self.requested_state)
        wait_s = LIVE_WAIT_S if self.request.htmx else WAIT_S
        return execute(caller=self.playground.caller, call=call, wait_s=wait_s)

    def place_refusal(self, refusal: ToolcribError) -> None:
        self.flaws = self.parameters.place(refusal.details.get("errors") or [])

    def call(self) -> None:
        """Make the call. A refused one is kept too."""
        if self.save():
            self.made = _find_own_execution(self.request.caller, self.result.pk)
            self.made.rate = self.result.rate
        elif self.refusal is not None and (made := self.refusal.details.get("execution_id")):
            self.made = Execution.objects.filter(pk=made).first()

    def rehearse(self) -> None:
        """What a chain would do; no tool is called."""
        asked = EffectiveRequest.from_options(self.requested_groups, self.requested_state)
        caller, snapshot = self.playground.caller, self.playground.snapshot
        self.rehearsal = dry_run_lines(caller, self.tool, self.sent_parameters, asked, snapshot)

    def show_call(self, made: Execution, again: Execution | None) -> None:
        """Show a call that was made by such a form."""
        self.made, self.again, self.refusal = made, again, refusal_of(made)
        if self.refusal is not None:
            self.place_refusal(self.refusal)

    @property
    def snippets(self) -> list[Snippet]:
        """The same call elsewhere."""
        if not self.is_bound or not self.is_valid():
            return []
        address = reverse("api-execute", args=[self.tool.name])
        return code_snippets(
            self.request.build_absolute_uri(address),
            tool=self.tool.name,
            parameters=self.sent_parameters,
            groups=self.requested_groups,
            state=self.requested_state,
        )

    def _loaded(self, source: ReplaySource | None) -> dict[str, Any]:
        """What the form is filled with: the defaults, or a call."""
        if source is None:
            return {"raw": pretty(self.parameters.parameters())}
        self.again, self.apart = source.again, not self.parameters.load(source.parameters)
        shown = source.parameters if self.apart else self.parameters.parameters()
        groups = {} if source.groups is None else {"group": source.groups}
        return {"raw": pretty(shown)} | groups | ({"state": source.state} if source.state else {})

    def _read_fields(self) -> dict[str, Any]:
        parameters = self.parameters.parameters()
        if self.parameters.errors:
            self.add_error(None, UNREADABLE)
        else:
            self.data["raw"] = pretty(parameters)
        return parameters

    def _read_json(self) -> dict[str, Any]:
        try:
            parameters = strict_json.parse(self.data.get("raw", ""))
        except strict_json.BadJson as error:
            self.add_error("raw", f"This cannot be sent: {error}.")
            return {}
        if not isinstance(parameters, dict):
            self.add_error("raw", 'Give one JSON object, such as {"path": "notes"}.')
            return {}
        self.apart = not self.parameters.load(parameters)
        return parameters


@form_page(Proof.NOT_NEEDED)
def call_page(request: PageRequest, name: str) -> HttpResponse:
    """Call through the execution pipeline; or show the form, empty or with a call."""
    if request.method == "POST":
        return _handle_form(request, ToolCallForm(request, request.POST.get("as", ""), name))
    if "follow" in request.GET and request.htmx:
        return _render_followed(request)
    source = _replay_source(request)
    agent = request.GET.get("as", "") if source is None else source.agent
    mine = source is None or _may_call_as(request, agent)
    form = ToolCallForm(request, agent if mine else "", name, source)
    form.instead_of = "" if mine else agent
    if "follow" in request.GET:
        form.show_call(*_followed(request))
    return _render_form(request, form)


@form_page(Proof.NOT_NEEDED)
def playground_page(request: PageRequest, name: str = "") -> HttpResponseBase:
    """Leads to the page of the call where the address names a tool or a call, as that of
    a former form, `/tools/<name>/try`, does."""
    data = request.POST if request.method == "POST" else request.GET
    name = name or data.get("tool", "")
    if not name and (source := _replay_source(request)) is not None:
        name = source.tool
    if name:
        return _redirect_to_tool(request, name)
    if request.method == "POST":
        raise Malformed("Choose a tool first.")
    return _render_choice(request, playground_context(request, request.GET.get("as", "")))


def _replay_source(request: PageRequest) -> ReplaySource | None:
    """The call that an address names."""
    for name, read in (("follow", from_execution), ("from", from_execution),
                       ("record", from_record)):  # fmt: skip
        if text := request.GET.get(name):
            return read(request.caller, _parse_id(text))
    return None


def _call_history(request: PageRequest, **only: str) -> list[Execution]:
    """The user's calls, the newest first."""
    rows = readable_executions(request.caller).filter(
        made_by=request.caller.user_id, parent=None, **only
    )
    found = list(
        rows.select_related("agent").only(*_HISTORY_FIELDS).order_by("-created_at")[:MOST_HISTORY]
    )
    for row in found:
        row.shown_duration = format_duration(row.duration_ms)  # type: ignore[attr-defined]
    return found


def _answer_context(
    made: Execution | None, again: Execution | None, refusal: ToolcribError | None = None
) -> dict[str, Any]:
    """The answer to a call as a REST client gets it now, beside the call that it repeats."""
    refusal = refusal or (refusal_of(made) if made else None)
    answer = _refusal_response(refusal, made) if refusal else made and _current_response(made)
    return {"answer": answer, "again": again, "compared": compare_finished(again, made)}


def _current_response(made: Execution) -> PlaygroundResponse:
    """200 once the call is over, 202 before."""
    held = confirmations.load_confirmations([made]).get(made.pk)
    status = HTTPStatus.OK if made.is_final else HTTPStatus.ACCEPTED
    return PlaygroundResponse(status, _body_text(execution_shape(made, held)), made.observation)


def _refusal_response(refusal: ToolcribError, made: Execution | None) -> PlaygroundResponse:
    named = {"request_id": made.request_id} if made and made.request_id else {}
    return PlaygroundResponse(
        HTTPStatus(refusal.http_status), _body_text(refusal_shape(refusal) | named)
    )


def _find_own_execution(person: Caller, identifier: UUID) -> Execution:
    """A call that the user has made and may read. Raises `NotFound` for any other."""
    found = (
        readable_executions(person).shown().filter(made_by=person.user_id, pk=identifier).first()
    )
    if found is None:
        raise _no_such_call()
    return found


def _handle_form(request: PageRequest, form: ToolCallForm) -> HttpResponse:
    do = request.POST.get("do")
    if do == "as":
        form.change_caller()
    elif do == "rehearse" and has_dry_run(form.tool):
        if form.is_valid():
            form.rehearse()
    elif do != "write":
        form.call()
    response = _render_form(request, form)
    if form.made is None:
        return response
    asked = {"follow": form.made.pk} | ({"again": form.again.pk} if form.again else {})
    return replace_url(response, f"{request.path}?{urlencode(asked)}")


def _render_followed(request: PageRequest) -> HttpResponse:
    """The partial with the result of a call that the user has made here."""
    made, again = _followed(request)
    shown = execution_context(made)
    if request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    context = {"shown": shown, **_answer_context(made, again)}
    return render(request, f"{TEMPLATE}#answer", context)


def _followed(request: PageRequest) -> tuple[Execution, Execution | None]:
    """A call that the user has made here, and the one that it repeats."""
    made = _find_own_execution(request.caller, _parse_id(request.GET["follow"]))
    again = request.GET.get("again", "")
    return made, find_replayed_execution(request.caller, again, made.tool_name)


def _may_call_as(request: PageRequest, agent: str) -> bool:
    agents = impersonable_agents(request.caller.user_id).filter(active=True)
    return not agent or agents.filter(slug=agent).exists()


def _render_form(request: PageRequest, form: ToolCallForm) -> HttpResponse:
    playground, tool = form.playground, form.tool
    context = {
        "form": form,
        "tool": tool,
        "tabs": not playground.agent or _sees(request.caller, tool),
        "rehearses": has_dry_run(tool),
        "shown": execution_context(form.made) if form.made else None,
        **_answer_context(form.made, form.again, form.refusal),
        "agent": playground.agent,
        "agents": called_as_agents(request, playground.agent),
        "history": _call_history(request, tool_name=tool.name),
    }
    return render(request, f"{TEMPLATE}#play" if request.htmx else TEMPLATE, context)


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
        "history": _call_history(request),
        **_search_tools(playground, words),
    }
    if request.htmx.target != "found":
        return render(request, CHOICE_TEMPLATE, context)
    part = render(request, f"{CHOICE_TEMPLATE}#found", context)
    query = {name: value for name, value in (("q", words), ("as", playground.agent)) if value}
    return replace_url(part, f"{request.path}?{urlencode(query)}" if query else request.path)


def _search_tools(playground: PlaygroundContext, words: str) -> dict[str, Any]:
    tools = visible_tools(playground.viewer, playground.snapshot)
    if words:
        tools = tuple(
            one.tool for one in relevant_tools(rank_tools(playground.snapshot, words, list(tools)))
        )
    return {"found": tools[:MOST_FOUND], "total": len(tools)}


def _sees(person: Caller, tool: CatalogTool) -> bool:
    """Whether the tool's other pages are there for the user, and not for the agent alone."""
    return any(one.name == tool.name for one in visible_tools(person, snapshot_for(person)))


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _no_such_call() from None


def _no_such_call() -> NotFound:
    return NotFound("There is no such call among yours.", code="execution_not_found")


def _body_text(value: dict[str, Any]) -> str:
    return truncate(pretty(value))
