"""`/playground/`: call any tool, as the user or as an agent that they may impersonate."""

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import replace_url

from tools.accounts.callers import caller_at_playground
from tools.accounts.impersonation import agents_for
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tool, visible_tools
from tools.authorization.pins import snapshot_for
from tools.catalog.registry import CatalogTool, Snapshot
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.definitions.callers import Caller
from tools.definitions.values import strict_json
from tools.errors import Malformed, NotFound, ToolcribError
from tools.execution import actions
from tools.execution.call import Call
from tools.execution.reading import readable
from tools.models import Execution
from tools.ui.access import PageRequest, address_of, page
from tools.ui.display import milliseconds, pretty
from tools.ui.executions.executions import shown_execution
from tools.ui.executions.replaying import (
    ReplayComparison,
    ReplaySource,
    compared,
    from_execution,
    from_record,
    replayed,
)
from tools.ui.playground.answering import PlaygroundResponse, answer_of, answer_to
from tools.ui.playground.attempts import PlaygroundAttempt, attempt_of
from tools.ui.playground.snippets import Snippet, snippets_of
from tools.web.proof import Proof, proof

TEMPLATE = "playground/playground.html"
WAIT_S = 20.0
LIVE_WAIT_S = 1.5  # after that, the part that htmx loaded follows the call
FORM, JSON = "form", "json"
MOST_FOUND = 20
MOST_AGENTS = 500
MOST_REMEMBERED = 20
_HISTORY = (
    "tool_name", "status", "parked_below", "agent__slug", "created_at", "duration_ms", "error_code",
)  # fmt: skip


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
class Play:
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
@require_http_methods(["GET", "POST"])
@page
def playground_page(request: PageRequest) -> HttpResponse:
    if request.method == "POST":
        return _posted(request)
    if "follow" in request.GET:
        return _followed(request)
    source = _source(request)
    if source is None:
        standing = standing_of(request, request.GET.get("as", ""))
        name = request.GET.get("tool", "")
        return _page(request, standing, _begun(standing, name) if name else None)
    agents = agents_for(request.caller.user_id).filter(active=True)
    mine = not source.agent or agents.filter(slug=source.agent).exists()
    standing = standing_of(request, source.agent if mine else "")
    play = _begun(standing, source.tool, source)
    play.instead_of = "" if mine else source.agent
    return _page(request, standing, play)


def _posted(request: PageRequest) -> HttpResponse:
    """Call through the execution pipeline; or show the form for another caller, or snippets."""
    data = request.POST
    standing = standing_of(request, data.get("as", ""))
    if not data.get("tool"):
        raise Malformed("Choose a tool first.")
    tool = standing.tool(data["tool"])
    play = Play(tool, attempt_of(tool, standing.caller, standing.snapshot))
    usual = replace(play.attempt)
    play.attempt.fill(data)
    parameters = play.read(data)
    play.again = replayed(request.caller, data.get("again", ""), tool.name)
    if data.get("do") == "as":
        play.attempt.groups, play.attempt.offered = usual.groups, usual.offered
    elif not play.flawed:
        if data.get("do") != "write":
            _call(request, standing, play, parameters)
        play.snippets = _snippets(request, play, parameters)
    if request.htmx:
        return render(request, f"{TEMPLATE}#play", _context(request, standing, play))
    return _page(request, standing, play)


def _call(
    request: PageRequest, standing: PlaygroundContext, play: Play, parameters: dict[str, Any]
) -> None:
    attempt = play.attempt
    call = Call(play.tool.name, parameters, group=attempt.asked, state=attempt.state)
    wait_s = LIVE_WAIT_S if request.htmx else WAIT_S
    try:
        execution = actions.execute(caller=standing.caller, call=call, wait_s=wait_s)
    except ToolcribError as refusal:
        row = attempt.refused(refusal)
        play.answer = answer_to(refusal)
    else:
        row = _made(request.caller, execution.pk)
        row.rate = execution.rate
        play.answer = answer_of(row)
    attempt.execution = shown_execution(row) if row else None
    play.compared = _compared(play.again, row)


def _followed(request: PageRequest) -> HttpResponse:
    """The partial with the result of a call that the user has made here."""
    execution = _made(request.caller, _identifier(request.GET.get("follow", "")))
    shown = shown_execution(execution)
    if request.htmx and request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    again = replayed(request.caller, request.GET.get("again", ""), execution.tool_name)
    context = {
        "shown": shown,
        "answer": answer_of(execution),
        "again": again,
        "compared": _compared(again, execution),
    }
    return render(request, f"{TEMPLATE}#answer", context)


def _made(person: Caller, identifier: UUID) -> Execution:
    """A call that the user has made and may read. Raises `NotFound` for any other."""
    found = readable(person).shown().filter(made_by=person.user_id, pk=identifier).first()
    if found is None:
        raise NotFound("There is no such call among yours.", code="execution_not_found")
    return found


def standing_of(request: PageRequest, agent: str) -> PlaygroundContext:
    caller = caller_at_playground(request.caller, agent, source_ip=address_of(request))
    return PlaygroundContext(request.caller, agent, caller, snapshot_for(caller))


def _source(request: PageRequest) -> ReplaySource | None:
    """The call to load."""
    for name, read in (("from", from_execution), ("record", from_record)):
        if text := request.GET.get(name):
            return read(request.caller, _identifier(text))
    return None


def _begun(standing: PlaygroundContext, name: str, source: ReplaySource | None = None) -> Play:
    tool = standing.tool(name)
    play = Play(tool, attempt_of(tool, standing.caller, standing.snapshot))
    if source is None:
        play.raw = pretty(play.attempt.form.parameters())
        for item in play.attempt.form.every:
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


def _compared(before: Execution | None, after: Execution | None) -> ReplayComparison | None:
    """The comparison, once the new call is over too."""
    return compared(before, after) if before and after and after.over else None


def _snippets(request: PageRequest, play: Play, parameters: dict[str, Any]) -> list[Snippet]:
    address = request.build_absolute_uri(reverse("api-execute", args=[play.tool.name]))
    attempt = play.attempt
    return snippets_of(
        address,
        tool=play.tool.name,
        parameters=parameters,
        groups=attempt.asked,
        state=attempt.state,
    )


def _page(request: PageRequest, standing: PlaygroundContext, play: Play | None) -> HttpResponse:
    context = _context(request, standing, play)
    if play is not None:
        return render(request, TEMPLATE, context)
    words = request.GET.get("q", "").strip()[:200]
    context |= {"q": words, **_found(standing, words)}
    if request.htmx.target != "found":
        return render(request, TEMPLATE, context)
    part = render(request, f"{TEMPLATE}#found", context)
    return replace_url(part, _address({"q": words, "as": standing.agent}))


def _context(
    request: PageRequest, standing: PlaygroundContext, play: Play | None
) -> dict[str, Any]:
    return {
        "play": play,
        "tool": play.tool if play else None,
        "attempt": play.attempt if play else None,
        "shown": play.attempt.execution if play else None,
        "answer": play.answer if play else None,
        "compared": play.compared if play else None,
        "again": play.again if play else None,
        "agent": standing.agent,
        "agents": agents_of(request),
        "history": _history(request),
    }


def _found(standing: PlaygroundContext, words: str) -> dict[str, Any]:
    tools = visible_tools(standing.viewer, standing.snapshot)
    if words:
        tools = tuple(
            one.tool for one in relevant_tools(rank_tools(standing.snapshot, words, list(tools)))
        )
    return {"found": tools[:MOST_FOUND], "total": len(tools)}


def agents_of(request: PageRequest) -> list[str]:
    """The agents that the user may impersonate."""
    active = agents_for(request.caller.user_id).filter(active=True)
    return list(active.order_by("slug").values_list("slug", flat=True)[:MOST_AGENTS])


def _history(request: PageRequest) -> list[Execution]:
    """The user's calls, the newest first."""
    rows = readable(request.caller).filter(made_by=request.caller.user_id, parent=None)
    found = list(
        rows.select_related("agent").only(*_HISTORY).order_by("-created_at")[:MOST_REMEMBERED]
    )
    for row in found:
        row.shown_duration = milliseconds(row.duration_ms)  # type: ignore[attr-defined]
    return found


def _identifier(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such call among yours.", code="execution_not_found") from None


def _address(asked: dict[str, str]) -> str:
    query = {name: value for name, value in asked.items() if value}
    return reverse("playground") + (f"?{urlencode(query)}" if query else "")
