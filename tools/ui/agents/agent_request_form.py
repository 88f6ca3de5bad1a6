"""`/agent/requests/new/`: ask an agent, as the user or as an agent that they may impersonate."""

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

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
from tools.ui.playground.call_form import (
    CallChoices,
    CallForm,
    PlaygroundContext,
    playground_context,
)
from tools.web.form_fields import NamesField, WholeField, choices
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof

PAGE = "agents/agent_request_form.html"
CONTINUES, REPLAYS = "continues", "replays"
MOST_OFFERED = 60  # groups and states that the form offers
MOST_TIME_S = 86_400
MOST_SHARED, MOST_NAME = 20, 63  # agents, and characters of a name
_MOST_SESSIONS = 50
_MONEY = re.compile(r"\A\d{1,9}(\.\d{1,6})?\Z", re.ASCII)
_SHARE = re.compile(r"\A(0(\.\d{1,6})?|1(\.0{1,6})?)\Z", re.ASCII)
_NOT_OFFERED = {"invalid_choice": "This cannot be chosen. Choose one of the list."}
_COPIED = ("pattern", "model", "max_cost", "max_iterations", "max_tokens", "confidence")
_PLACEHOLDER = "?"  # placeholder for a question


@dataclass(frozen=True)
class ToolboxPreview:
    """The tools that the filter leaves, or why they cannot be determined."""

    toolbox: Toolbox | None = None
    why_not: str = ""


def _whole_field(most: int, **options: Any) -> WholeField:
    said = f"Give a whole number from 1 to {most:,}."
    errors = dict.fromkeys(("invalid", "min_value", "max_value"), said)
    return WholeField(min_value=1, max_value=most, required=False, error_messages=errors, **options)


class AgentRequestForm(CallForm):
    """`kind` says whether the run continues or replays another one, whose groups and state it then
    uses."""

    question = forms.CharField(
        label="Question",
        max_length=MOST_QUESTION,
        widget=forms.Textarea({"rows": 3}),
        help_text="What it is to find out or to do. Its tools are all it has.",
        error_messages={
            "required": "Write what the agent is to find out or to do.",
            "max_length": f"It has more than {MOST_QUESTION:,} characters. Say less.",
        },
    )
    session = forms.ChoiceField(
        label="Session",
        required=False,
        error_messages=_NOT_OFFERED,
        help_text="In a session, groups and state are the session's.",
    )
    pattern = forms.ChoiceField(
        label="Pattern",
        choices=PATTERN_LABELS.items(),
        initial=REACT,
        error_messages=_NOT_OFFERED,
        help_text="By a plan, it says how sure it is of each step before it takes any.",
    )
    confidence = forms.RegexField(
        _SHARE,
        label="Ask a person below",
        required=False,
        initial=f"{THRESHOLD:g}",
        error_messages={"invalid": "Give a number from 0 to 1, such as 0.7."},
        help_text="Of a plan: steps that are less sure than this wait for a person.",
    )
    model = forms.ChoiceField(label="Model", required=False, error_messages=_NOT_OFFERED)
    shared_with = NamesField(
        label="Shared with",
        most=MOST_SHARED,
        longest=MOST_NAME,
        help_text="Agents that may go on from it, with commas between them. They need the same"
        " rights.",
    )
    max_iterations = _whole_field(
        MOST_ITERATIONS,
        label="Turns",
        initial=ITERATIONS,
        help_text=f"At most {MOST_ITERATIONS}. In the last one it gives the best answer it has.",
    )
    max_tokens = _whole_field(
        MOST_TOKENS,
        label="Tokens",
        initial=TOKENS,
        help_text="Of all questions to the model and its answers.",
    )
    timeout_s = _whole_field(MOST_TIME_S, label="Seconds", help_text="Empty: what the tool allows.")
    max_cost = forms.RegexField(
        _MONEY,
        label="Money",
        required=False,
        error_messages={"invalid": "Give an amount such as 2.50."},
        help_text="Empty: what its caller's budget allows.",
    )

    def __init__(self, request: PageRequest, data: QueryDict) -> None:
        """Raises `NotFound` for an agent or an earlier run that is not the user's."""
        playground = playground_context(request, data.get("as", ""))
        self.kind, self.earlier = _earlier_run(playground, data)
        super().__init__(request, playground, _choices(playground), _copied(self.earlier))

    def build(self) -> None:
        question, fields = self.fields["question"], self.fields
        if self.kind == CONTINUES:
            question.label = "Follow-up question"
            question.help_text = "It knows the steps of the request it goes on from."
        question.required = self.kind != REPLAYS
        usual = f"The installation's ({settings.LLM_MODEL or 'none'})"
        models = [("", usual), *choices(agent_requests.available_models())]
        fields["model"].choices = models  # type: ignore[attr-defined]
        self.sessions = _session_choices(self.playground)
        fields["session"].choices = self.sessions  # type: ignore[attr-defined]
        super().build()
        short = "state" not in self.data  # of the page of the earlier run: the rest is as usual
        for name, field in self.fields.items():
            if self.is_bound and name not in self.data and (short or name != "group"):
                initial = field.prepare_value(self.get_initial_for_field(field, name))
                self.data.setlist(name, initial if isinstance(initial, list) else [initial or ""])

    def act(self, changes: dict[str, Any]) -> Execution:
        given = {name: changes[name] for name in ("question", *_COPIED, "shared_with")}
        plans = given["pattern"] == PLAN and given["confidence"]
        given["confidence"] = float(given["confidence"]) if plans else None
        timeout_s = changes["timeout_s"]
        call = self.call(
            {name: value for name, value in given.items() if value not in ("", None, [])},
            None if timeout_s is None else float(timeout_s),
        )
        return answer.execute(caller=self.playground.caller, call=call, wait_s=0.0)

    def call(self, parameters: dict[str, Any], timeout_s: float | None = None) -> Call:
        """Raises as `agent_requests.build_call` does."""
        session = "" if self.kind else str(self["session"].value() or "")
        outside = not self.kind and not session
        wanted = AgentRunRequest(
            parameters | ({self.kind: str(self.earlier.pk)} if self.earlier else {}),
            group=self.requested_groups if outside else None,
            state=self.requested_state if outside else None,
            session=session or None,
            timeout_s=timeout_s,
        )
        return agent_requests.build_call(self.playground.caller, wanted)

    def place_refusal(self, refusal: ToolcribError) -> None:
        for flaw in refusal.details.get("errors") or []:
            place = str(flaw.get("place", "")).strip("/")
            if (name := place.partition("/")[0]) in self.fields:
                self.add_error(name, str(flaw.get("message", "")))
            else:
                self.flaws.append({"field": place, "message": str(flaw.get("message", ""))})
        if (about := str(refusal.details.get("field", ""))) in self.fields:
            self.add_error(about, refusal.message)

    def toolbox_preview(self) -> ToolboxPreview:
        """The tools as of now; every gate is evaluated again for each call."""
        if str(self["session"].value() or "") not in dict(self.sessions):
            return ToolboxPreview(why_not="Choose a session of the list.")
        try:
            call = self.call({"question": _PLACEHOLDER})
            caller, asked = self.playground.caller, _effective_request(call)
            question = str(self["question"].value() or "")
            return ToolboxPreview(
                build_toolbox(caller, asked, snapshot_for(caller, call.session), question)
            )
        except ToolcribError as refusal:
            return ToolboxPreview(why_not=refusal.message)


@form_page(Proof.NOT_NEEDED)
def create_request(request: PageRequest) -> HttpResponseBase:
    """Redirects to the page of the request; shows the form again where it is refused."""
    form = AgentRequestForm(request, request.POST if request.method == "POST" else request.GET)
    do = request.POST.get("do")
    if do == "as":
        form.change_caller()
    elif do == "preview":
        form.show_typed()
    elif model_configured() and form.save():
        return redirect("agent-request", request_id=form.result.pk)
    return _render_form(request, form)


def _render_form(request: PageRequest, form: AgentRequestForm) -> HttpResponse:
    context = {
        "form": form,
        "agent": form.playground.agent,
        "agents": called_as_agents(request, form.playground.agent),
        "ready": model_configured(),
        "preview": form.toolbox_preview(),
        "refused_as": form.refusal.details.get("execution_id") if form.refusal else None,
        "earlier": _earlier_question(request, form.earlier),
    }
    if request.htmx and request.htmx.target == "toolbox":
        return render(request, f"{PAGE}#toolbox", context)
    return render(request, PAGE, context, status=form.status)


def _earlier_question(request: PageRequest, earlier: Execution | None) -> object:
    if earlier is None:
        return None
    return question_line(str(earlier.parameters.get("question", "")), request.caller.organization)


def _effective_request(call: Call) -> EffectiveRequest:
    if call.session is None:
        return EffectiveRequest.from_options(call.group, call.state)
    session = Session.objects.only("groups", "state").get(pk=UUID(call.session))
    return EffectiveRequest.from_options(session.groups, session.state)


def _choices(playground: PlaygroundContext) -> CallChoices:
    granted = sorted(playground.caller.granted_groups - {WILDCARD})
    if WILDCARD in playground.caller.granted_groups:
        granted = [WILDCARD, *sorted({DEFAULT_GROUP, *playground.snapshot.groups})]
    usual = [DEFAULT_GROUP] if DEFAULT_GROUP in granted else granted[:1]
    tools = visible_tools(playground.viewer, playground.snapshot)
    states = {state for one in tools for state in one.definition.states} - {WILDCARD}
    return CallChoices(
        usual,
        list(dict.fromkeys([*usual, *granted]))[:MOST_OFFERED],
        DEFAULT_STATE,
        sorted(states | {DEFAULT_STATE})[:MOST_OFFERED],
    )


def _session_choices(playground: PlaygroundContext) -> list[tuple[str, str]]:
    mine = Session.objects.filter(
        organization_id=playground.caller.organization_id, user_id=playground.caller.user_id
    )
    labels = [(str(one.pk), _session_label(one)) for one in mine.open()[:_MOST_SESSIONS]]
    return [("", "One of its own, closed at its end"), *labels]


def _session_label(session: Session) -> str:
    opened = f"{session.created_at:%d %b %H:%M}"
    return f"{session.state}, of {opened}, {', '.join(session.groups)}"[:90]


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


def _copied(earlier: Execution | None) -> dict[str, Any]:
    """The pattern, model and budgets of the earlier run."""
    if earlier is None:
        return {}
    given = earlier.parameters
    copied = {
        name: given[name] for name in _COPIED if isinstance(given.get(name), str | int | float)
    }
    if (asked_s := earlier.options.get("timeout_s")) is not None:
        copied["timeout_s"] = f"{float(asked_s):g}"
    return copied
