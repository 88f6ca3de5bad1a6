"""`/agent/requests/new/`: ask an agent, as the user or as an agent that they may impersonate. The
form has values, errors, and the call that it makes.
"""

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunRequest
from tools.agents.recordings import find_run
from tools.agents.run_parameters import (
    ITERATIONS,
    MOST_ITERATIONS,
    MOST_QUESTION,
    MOST_TOKENS,
    PLAN,
    REACT,
    THRESHOLD,
    TOKENS,
)
from tools.agents.usable_tools import Toolbox, build_toolbox
from tools.authorization.listings import visible_tools
from tools.authorization.pins import snapshot_for
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import DEFAULT_GROUP
from tools.errors import NotFound, ToolcribError
from tools.execution import answer
from tools.execution.call import Call
from tools.models import Execution, Session
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest
from tools.ui.agents.agent_choices import called_as_agents
from tools.ui.agents.agent_requests import PATTERN_LABELS, model_configured, question_line
from tools.ui.inputs import FormInput, Widget, choices, split_names
from tools.ui.playground.playground import (
    PlaygroundContext,
    playground_context,
)
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

PAGE = "agents/agent_request_form.html"
CONTINUES, REPLAYS = "continues", "replays"
MOST_OFFERED = 60  # groups and states that the form offers
MOST_TIME_S = 86_400
MOST_SHARED, MOST_NAME = 20, 63  # agents, and characters of a name
_MOST_SESSIONS = 50
_MONEY = re.compile(r"\d{1,9}(\.\d{1,6})?")
_SHARE = re.compile(r"0(\.\d{1,6})?|1(\.0{1,6})?")
_WHOLE_NUMBERS = {
    "max_iterations": MOST_ITERATIONS,
    "max_tokens": MOST_TOKENS,
    "timeout_s": MOST_TIME_S,
}
_TEXTS = ("question", "pattern", "model", "max_cost")
_PLACEHOLDER = "?"  # placeholder for a question


@dataclass(frozen=True)
class ToolboxPreview:
    """The tools that the filter leaves, or why they cannot be determined."""

    toolbox: Toolbox | None = None
    why_not: str = ""


@dataclass
class AgentRequestForm:
    """`kind` says whether the run continues or replays another one, whose groups and state it then
    uses."""

    playground: PlaygroundContext
    inputs: dict[str, FormInput]
    groups: list[str]
    offered: list[str]
    state: str
    states: list[str]
    kind: str = ""
    earlier: Execution | None = None
    other: str = ""
    refusal: ToolcribError | None = None
    flaws: list[dict[str, str]] = field(default_factory=list)

    @property
    def flawed(self) -> bool:
        return any(one.errors for one in self.inputs.values())

    @property
    def budgets(self) -> list[FormInput]:
        return [self.inputs[name] for name in (*_WHOLE_NUMBERS, "max_cost")]

    def fill(self, data: QueryDict) -> None:
        """Read the submitted values, which stay in the form."""
        for name, one in self.inputs.items():
            if name in data:
                one.value = _clean_text(str(data[name]))[: MOST_QUESTION + 1]
        if "state" in data:
            self.groups = [_clean_text(name)[:100] for name in data.getlist("group")][:MOST_OFFERED]
            self.other = _clean_text(data.get("other_group", ""))[:100]
            self.state = _clean_text(str(data["state"]))[:100] or DEFAULT_STATE

    def check(self) -> None:
        """Set the error of each invalid value."""
        self._check_question()
        for name, most in _WHOLE_NUMBERS.items():
            _check_whole(self.inputs[name], most)
        _check_form(self.inputs["max_cost"], _MONEY, "Give an amount such as 2.50.")
        _check_form(self.inputs["confidence"], _SHARE, "Give a number from 0 to 1, such as 0.7.")
        for name in ("pattern", "model", "session"):
            _check_choice(self.inputs[name])
        _check_names(self.inputs["shared_with"])

    def call(self) -> Call:
        """The call of a valid form. Raises as `actions.call_of` does."""
        time = self.inputs["timeout_s"].value.strip()
        return self._call(self._parameters(), float(time) if time else None)

    def call_so_far(self) -> Call:
        """A call with the same groups and state, for a form that may be invalid. Raises the
        same."""
        return self._call({"question": _PLACEHOLDER} | self._follows())

    def refuse(self, refusal: ToolcribError) -> None:
        """Set the refusal at the field that it is about."""
        self.refusal = refusal
        for flaw in refusal.details.get("errors") or []:
            self._place(str(flaw.get("place", "")).strip("/"), str(flaw.get("message", "")))
        if about := self.inputs.get(str(refusal.details.get("field", ""))):
            about.errors.append(refusal.message)

    def _place(self, place: str, message: str) -> None:
        owner = self.inputs.get(place.partition("/")[0])
        if owner is None:
            self.flaws.append({"field": place, "message": message})
        else:
            owner.errors.append(message)

    def _check_question(self) -> None:
        one = self.inputs["question"]
        if len(one.value) > MOST_QUESTION:
            one.errors.append(f"It has more than {MOST_QUESTION:,} characters. Say less.")
        elif not one.value.strip() and self.kind != REPLAYS:
            one.errors.append("Write what the agent is to find out or to do.")

    def _call(self, parameters: dict[str, Any], timeout_s: float | None = None) -> Call:
        own = self.kind == ""
        session = self.inputs["session"].value if own else ""
        outside = own and not session
        wanted = AgentRunRequest(
            parameters,
            group=self._requested_groups() if outside else None,
            state=self.state if outside else None,
            session=session or None,
            timeout_s=timeout_s,
        )
        return agent_requests.build_call(self.playground.caller, wanted)

    def _parameters(self) -> dict[str, Any]:
        given: dict[str, Any] = {name: self.inputs[name].value.strip() for name in _TEXTS}
        given |= {
            name: _parse_number(self.inputs[name]) for name in ("max_iterations", "max_tokens")
        }
        if given["pattern"] == PLAN and self.inputs["confidence"].value.strip():
            given["confidence"] = float(self.inputs["confidence"].value)
        given["shared_with"] = split_names(self.inputs["shared_with"].value)
        known = {name: one for name, one in given.items() if one not in ("", None, [])}
        return known | self._follows()

    def _follows(self) -> dict[str, str]:
        return {self.kind: str(self.earlier.pk)} if self.earlier is not None else {}

    def _requested_groups(self) -> list[str]:
        other = [self.other] if self.other and self.other not in self.groups else []
        return self.groups + other


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def create_request(request: PageRequest) -> HttpResponseBase:
    data = request.POST if request.method == "POST" else request.GET
    request_form = initial_form(playground_context(request, data.get("as", "")), data)
    if request.method != "POST":
        return _render_form(request, request_form)
    usual = request_form.groups
    request_form.fill(data)
    if data.get("do") == "as":
        request_form.groups, request_form.other = usual, ""
    elif data.get("do") != "preview":
        return _send_request(request, request_form)
    return _render_form(request, request_form)


def _question_inputs(kind: str) -> list[FormInput]:
    label, about = "Question", "What it is to find out or to do. Its tools are all it has."
    if kind == CONTINUES:
        label, about = "Follow-up question", "It knows the steps of the request it goes on from."
    return [FormInput("question", label, Widget.AREA, help=about, required=kind != REPLAYS)]


def _option_inputs(playground: PlaygroundContext) -> list[FormInput]:
    usual = settings.LLM_MODEL or "none"
    mine = Session.objects.filter(
        organization_id=playground.caller.organization_id, user_id=playground.caller.user_id
    )
    open_ones = [(str(one.pk), _session_label(one)) for one in mine.open()[:_MOST_SESSIONS]]
    return [
        FormInput("session", "Session", Widget.SELECT, value="",
              options=(("", "One of its own, closed at its end"), *open_ones),
              help="In a session, groups and state are the session's."),
        FormInput("pattern", "Pattern", Widget.SELECT, value=REACT,
              options=tuple(PATTERN_LABELS.items()),
              help="By a plan, it says how sure it is of each step before it takes any."),
        FormInput("confidence", "Ask a person below", value=f"{THRESHOLD:g}",
              help="Of a plan: steps that are less sure than this wait for a person."),
        FormInput("model", "Model", Widget.SELECT, value="",
              options=(("", f"The installation's ({usual})"),
                       *choices(agent_requests.available_models()))),
        FormInput("shared_with", "Shared with",
              help="Agents that may go on from it, with commas between them. They need the same"
              " rights."),
    ]  # fmt: skip


def _budget_inputs() -> list[FormInput]:
    return [
        FormInput("max_iterations", "Turns", value=str(ITERATIONS),
              help=f"At most {MOST_ITERATIONS}. In the last one it gives the best answer it has."),
        FormInput("max_tokens", "Tokens", value=str(TOKENS),
              help="Of all it asks the model and is told."),
        FormInput("timeout_s", "Seconds", help="Empty: what the tool allows."),
        FormInput("max_cost", "Money", help="Empty: what its caller's budget allows."),
    ]  # fmt: skip


def initial_form(playground: PlaygroundContext, data: QueryDict) -> AgentRequestForm:
    """A form with the defaults, or with the values of the run that it continues. Raises
    `NotFound`."""
    kind, earlier = _earlier_run(playground, data)
    offered, usual = _offered_groups(playground)
    states = _offered_states(playground)
    request_form = AgentRequestForm(
        playground,
        _form_inputs(kind, playground),
        usual,
        offered,
        DEFAULT_STATE,
        states,
        kind,
        earlier,
    )
    if earlier is not None:
        _copy_context(request_form, earlier)
    return request_form


def _send_request(request: PageRequest, request_form: AgentRequestForm) -> HttpResponseBase:
    """Send the request and redirect to its page; show the form again where it is refused."""
    request_form.check()
    if request_form.flawed or not model_configured():
        return _render_form(request, request_form, sent=True)
    try:
        call = request_form.call()
        made = answer.execute(caller=request_form.playground.caller, call=call, wait_s=0.0)
    except ToolcribError as refusal:
        request_form.refuse(refusal)
        return _render_form(request, request_form, sent=True)
    return redirect("agent-request", request_id=made.pk)


def _render_form(
    request: PageRequest, request_form: AgentRequestForm, *, sent: bool = False
) -> HttpResponse:
    refusal = request_form.refusal
    context = {
        "request_form": request_form,
        "item": request_form.inputs,
        "sent": sent,
        "agent": request_form.playground.agent,
        "agents": called_as_agents(request, request_form.playground.agent),
        "ready": model_configured(),
        "preview": _preview(request_form),
        "refused_as": refusal.details.get("execution_id") if refusal else None,
        "earlier": _earlier_question(request, request_form),
    }
    if request.htmx and request.htmx.target == "toolbox":
        return render(request, f"{PAGE}#toolbox", context)
    return render(request, PAGE, context, status=refusal.http_status if refusal else 200)


def _earlier_question(request: PageRequest, request_form: AgentRequestForm) -> object:
    if request_form.earlier is None:
        return None
    question = str(request_form.earlier.parameters.get("question", ""))
    return question_line(question, request.caller.organization)


def _preview(request_form: AgentRequestForm) -> ToolboxPreview:
    """The tools as of now; every gate is evaluated again for each call."""
    if request_form.inputs["session"].value not in dict(request_form.inputs["session"].options):
        return ToolboxPreview(why_not="Choose a session of the list.")
    question = request_form.inputs["question"].value
    try:
        call = request_form.call_so_far()
        caller, asked = request_form.playground.caller, _effective_request(call)
        return ToolboxPreview(
            build_toolbox(caller, asked, snapshot_for(caller, call.session), question)
        )
    except ToolcribError as refusal:
        return ToolboxPreview(why_not=refusal.message)


def _effective_request(call: Call) -> EffectiveRequest:
    if call.session is None:
        return EffectiveRequest.from_options(call.group, call.state)
    session = Session.objects.only("groups", "state").get(pk=UUID(call.session))
    return EffectiveRequest.from_options(session.groups, session.state)


def _offered_groups(playground: PlaygroundContext) -> tuple[list[str], list[str]]:
    """The groups that are offered, and those of them that are checked initially."""
    granted = sorted(playground.caller.granted_groups - {WILDCARD})
    if WILDCARD in playground.caller.granted_groups:
        granted = [WILDCARD, *sorted({DEFAULT_GROUP, *playground.snapshot.groups})]
    usual = [DEFAULT_GROUP] if DEFAULT_GROUP in granted else granted[:1]
    return list(dict.fromkeys([*usual, *granted]))[:MOST_OFFERED], usual


def _offered_states(playground: PlaygroundContext) -> list[str]:
    tools = visible_tools(playground.viewer, playground.snapshot)
    named = {state for one in tools for state in one.definition.states} - {WILDCARD}
    return sorted(named | {DEFAULT_STATE})[:MOST_OFFERED]


def _session_label(session: Session) -> str:
    opened = f"{session.created_at:%d %b %H:%M}"
    return f"{session.state}, of {opened}, {', '.join(session.groups)}"[:90]


def _form_inputs(kind: str, playground: PlaygroundContext) -> dict[str, FormInput]:
    found = (
        *_question_inputs(kind),
        *_option_inputs(playground),
        *_budget_inputs(),
    )
    return {one.key: one for one in found}


def _earlier_run(playground: PlaygroundContext, data: QueryDict) -> tuple[str, Execution | None]:
    """The kind, and the earlier run, which the user must be allowed to read."""
    for kind in (CONTINUES, REPLAYS):
        if text := data.get(kind):
            return kind, find_run(playground.person, _parse_id(text))
    return "", None


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such request of an agent among yours.") from None


def _copy_context(request_form: AgentRequestForm, earlier: Execution) -> None:
    """Copy the pattern, model and budgets of the earlier run."""
    given = earlier.parameters
    for name in ("pattern", "model", "max_cost", "max_iterations", "max_tokens", "confidence"):
        if isinstance(given.get(name), str | int | float) and name in request_form.inputs:
            request_form.inputs[name].value = str(given[name])
    if (asked_s := earlier.options.get("timeout_s")) is not None:
        request_form.inputs["timeout_s"].value = f"{float(asked_s):g}"


def _clean_text(text: str) -> str:
    """Converts the line ends of browsers to a newline."""
    return text.replace("\r\n", "\n")


def _parse_number(one: FormInput) -> int | None:
    return int(one.value) if one.value.strip() else None


def _check_whole(one: FormInput, most: int) -> None:
    text = one.value.strip()
    good = text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most
    if text and not good:
        one.errors.append(f"Give a whole number from 1 to {most:,}.")


def _check_form(one: FormInput, form: re.Pattern[str], says: str) -> None:
    if one.value.strip() and not form.fullmatch(one.value.strip()):
        one.errors.append(says)


def _check_names(one: FormInput) -> None:
    names = split_names(one.value)
    if len(names) > MOST_SHARED or any(len(name) > MOST_NAME for name in names):
        one.errors.append(
            f"Name at most {MOST_SHARED} agents, each with at most {MOST_NAME} characters."
        )


def _check_choice(one: FormInput) -> None:
    if one.value not in dict(one.options):
        one.errors.append("This cannot be chosen. Choose one of the list.")
