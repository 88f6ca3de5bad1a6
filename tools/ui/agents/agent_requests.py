"""`/agent/requests/`: the list of requests to the product's agents, the newest first, and the page
of one request, live while it runs and readable afterwards.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Q, Sum
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from audit.actions import redactor_of
from tools.accounts.callers import impersonable_agents
from tools.accounts.user_permissions import may
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunReport
from tools.agents.recordings import find_run
from tools.agents.run_parameters import ITERATIONS, PLAN, REACT, TOKENS
from tools.agents.steps import THINK
from tools.definitions.results import Status
from tools.errors import Conflict, NotFound
from tools.execution import answer as executions
from tools.execution.outputs import redact_execution
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.shapes.scalars import money
from tools.ui.agents.agent_steps import (
    AgentStepView,
    StepReader,
    plan_view,
    step_reader,
    step_views,
)
from tools.ui.charts import Gauge, gauge
from tools.ui.display import (
    DiffLine,
    VisiblePiece,
    diff_texts,
    format_duration,
    impersonator_name,
    visible_pieces,
)
from tools.ui.executions.executions import LARGE_FIELDS, STATUS_CHOICES, CallListing, caller_name
from tools.ui.playground.snippets import curl_snippet
from tools.web.listing import Column, Filters, choice_field, text_field
from tools.web.pages import PageRequest, action_page, page
from tools.web.reauthentication import Proof

LIST = "agents/agent_requests.html"
MOST_WORDS = 200  # characters of a question in the list
PATTERN_LABELS = {REACT: "Step by step", PLAN: "By a plan"}
PAGE = "agents/agent_request.html"
ADVICE = {
    "NO_ANSWER": "Ask again with a narrower question, or with another model.",
    "TOKENS_SPENT": "Ask again with more tokens, or go on from here.",
    "MONEY_SPENT": "Ask again with more money, or go on from here.",
    "TIMEOUT": "Ask again with more time, or go on from here.",
    "PROMPT_TOO_LONG": "Go on from here with a narrower question.",
    "DIVERGED": "The other model goes another way. Ask it anew, and its tools are called.",
    "MODEL_BUSY": "Ask again in a while.",
    "MODEL_UNAVAILABLE": "Ask again in a while. Where it stays so, whoever runs this installation"
    " looks at LLM_BASE_URL.",
    "MODEL_CUT": "Ask again in a while.",
    "MODEL_REFUSED": "Whoever runs this installation looks at LLM_API_KEY.",
    "MODEL_REJECTED": "Ask another model, or whoever runs this installation looks at LLM_MODEL.",
    "NO_MODEL": "Whoever runs this installation sets LLM_BASE_URL and LLM_MODEL.",
    "quota_exceeded": "Wait until the budget begins anew, or ask for a larger one.",
}
_UNREAD = tuple(name for name in LARGE_FIELDS if name != "parameters")
_MODEL_CALLS = Q(place__startswith=THINK) & ~Q(place__contains="#")  # a retry is the same step
_PARAMETERS = (
    "question", "pattern", "model", "max_iterations", "max_tokens", "max_cost", "confidence",
    "thresholds", "continues", "replays", "shared_with",
)  # fmt: skip


@dataclass(frozen=True)
class AgentRequestRow:
    execution: Execution
    question: list[VisiblePiece]
    pattern: str
    steps: int
    cost: str
    took: str


@dataclass(frozen=True)
class RunBudgetUse:
    """The usage of one budget."""

    name: str
    gauge: Gauge


@dataclass(frozen=True)
class AgentActivity:
    """The current activity of a request, by name and as a sentence."""

    name: str
    sentence: str


@dataclass(frozen=True)
class RecordedRun:
    """The recorded run of a replay, and how their answers differ: None where one has no answer."""

    report: AgentRunReport
    answer: list[VisiblePiece]
    lines: list[DiffLine] | None


class RequestFilters(Filters):
    status = choice_field("Status", STATUS_CHOICES)
    pattern = choice_field("Pattern", PATTERN_LABELS.items())
    agent = text_field("Agent")


class RequestListing(CallListing):
    view, template, css, noun = "agent-requests", LIST, "requests", "request"
    filters, page_size, order = RequestFilters, 25, "-asked"
    columns = [
        Column("id", "", lambda row: row.execution.pk),
        Column("question", "Question", lambda row: "".join(one.text for one in row.question)),
        Column("pattern", "", lambda row: row.pattern),
        Column("status", "Status", lambda row: row.execution.stage),
        Column("error_code", "", lambda row: row.execution.error_code),
        Column("who", "Who", lambda row: caller_name(row.execution)),
        Column("steps", "Steps", lambda row: row.steps, css="number"),
        Column("cost", "Cost", lambda row: row.cost, css="number"),
        Column("asked", "Asked", lambda row: row.execution.created_at, sort="created_at",
               css="number"),
        Column("duration_ms", "Took", lambda row: row.execution.duration_ms, css="number"),
    ]  # fmt: skip

    def rows(self) -> ExecutionQuerySet:
        rows = self.filter_calls(agent_requests.recent_runs(self.caller))
        if self.values.get("pattern") == PLAN:
            rows = rows.filter(parameters__pattern=PLAN)
        elif "pattern" in self.values:  # also of those that name none
            rows = rows.exclude(parameters__contains={"pattern": PLAN})
        return rows.select_related("agent", "user").defer(*_UNREAD)

    def prepare(self, rows: list[Execution]) -> list[AgentRequestRow]:
        return _request_rows(self.request, rows)

    def context(self) -> dict[str, Any]:
        return {"everyone": may(self.caller, "view_execution"), "ready": model_configured()}


@page()
def request_list(request: PageRequest) -> HttpResponseBase:
    return RequestListing(request).respond()


def model_configured() -> bool:
    """Whether a model is configured."""
    return bool(settings.LLM_BASE_URL and agent_requests.available_models())


def question_line(question: str, organization: str) -> list[VisiblePiece]:
    """The beginning of a question, without secrets, with invisible characters shown."""
    said: str = redactor_of(organization).clean(question)
    line = " ".join(said.split())
    return visible_pieces(line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]}…")


@page()
def request_page(request: PageRequest, request_id: UUID) -> HttpResponse:
    run = find_run(request.caller, request_id)
    report = agent_requests.load_report(request.caller, run)
    seen = _report_fingerprint(report)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    context = _request_context(request, report) | {"seen": seen}
    return render(request, f"{PAGE}#moving" if request.htmx else PAGE, context)


@action_page(Proof.NOT_NEEDED)
def cancel(request: PageRequest, request_id: UUID) -> HttpResponseBase:
    run = find_run(request.caller, request_id)
    try:
        executions.cancel(caller=request.caller, execution=run)
    except Conflict as refusal:  # it has ended already
        messages.error(request, refusal.message, extra_tags=refusal.code)
    else:
        messages.success(request, "It is told to stop; what it has done stays done.")
    return redirect("agent-request", request_id=request_id)


def _request_rows(request: PageRequest, found: list[Execution]) -> list[AgentRequestRow]:
    """Uses one query for the steps of all rows."""
    calls = Execution.objects.children_of(*(one.pk for one in found)).order_by()
    call_totals = calls.values("parent").annotate(
        steps=Count("pk", filter=_MODEL_CALLS), cost=Sum("cost")
    )
    did: dict[Any, dict[str, Any]] = {one["parent"]: dict(one) for one in call_totals}
    return [_request_row(request.caller.organization, one, did.get(one.pk, {})) for one in found]


def _request_row(organization: str, run: Execution, did: dict[str, Any]) -> AgentRequestRow:
    return AgentRequestRow(
        run,
        question_line(str(run.parameters.get("question", "")), organization),
        PATTERN_LABELS.get(str(run.parameters.get("pattern", REACT)), ""),
        did.get("steps", 0),
        money(did.get("cost") or Decimal(0)),
        format_duration(run.duration_ms),
    )


def _request_context(request: PageRequest, report: AgentRunReport) -> dict[str, Any]:
    run, said = report.run, redact_execution(report.run)
    recorded = _recorded_report(request, run)
    reading = step_reader(request.caller.organization, report.steps)
    steps = step_views(report, recorded, reading)
    return {
        "run": run,
        "report": report,
        "question": reading.clean(report.question),
        "pattern": PATTERN_LABELS.get(report.pattern, report.pattern),
        "who": run.agent.slug if run.agent else run.user.username,
        "made_by": impersonator_name(run),
        "answer": _answer_pieces(report, said),
        "error": said["error_message"],
        "to_do": ADVICE.get(run.error_code, ""),
        "steps": steps,
        "answer_warnings": [
            warning
            for one in report.steps[-1:]
            if one.move.answer is not None
            for warning in one.move.warnings
        ],
        "plan": plan_view(report.plan, reading),
        "now": _current_activity(run, steps),
        "bounds": _budget_uses(report),
        "tokens": report.spent,
        "cost": money(report.spent.cost),
        "duration": format_duration(run.duration_ms),
        "recorded": _compare_answers(report, recorded, reading),
        "continues": _referenced_run(request, run, "continues"),
        "may_cancel": _may_cancel(request, run),
        "snippet": _curl_snippet(request, run, said["parameters"]),
        **_follow_up_context(request, run),
    }


def _answer_pieces(report: AgentRunReport, said: dict[str, Any]) -> list[VisiblePiece] | None:
    if report.answer is None:
        return None
    output = said["output"]
    return visible_pieces(str(output.get("answer", "")) if isinstance(output, dict) else "")


def _current_activity(run: Execution, steps: list[AgentStepView]) -> AgentActivity | None:
    """The current activity; None where the request is over."""
    if run.is_final:
        return None
    if run.status == Status.REQUIRES_CONFIRMATION:
        return AgentActivity("awaits-approval", "It waits for a person to agree before it begins.")
    if steps and steps[-1].waits:
        return AgentActivity(
            "action-awaits-approval", "It waits for a person to agree to its action."
        )
    if steps and steps[-1].open:
        return AgentActivity("awaits-action", "It waits for what its action gives back.")
    if run.started_at is None:
        return AgentActivity("awaits-worker", "It waits for a free worker.")
    return AgentActivity("asks-model", "It asks the model.")


def _budget_uses(report: AgentRunReport) -> list[RunBudgetUse]:
    given, spent, run = report.run.parameters, report.spent, report.run
    turns, most = len(report.steps), _whole_number(given.get("max_iterations"), ITERATIONS)
    tokens = _whole_number(given.get("max_tokens"), TOKENS)
    found = [
        RunBudgetUse("Turns", gauge(turns, most, f"{turns} of {most}")),
        RunBudgetUse("Tokens", gauge(spent.tokens, tokens, f"{spent.tokens:,} of {tokens:,}")),
        _time_use(run, run.completed_at or timezone.now()),
    ]
    if (cost := _parse_amount(given.get("max_cost"))) is not None:
        says = f"{money(spent.cost)} of {money(cost)}"
        found.insert(2, RunBudgetUse("Money", gauge(spent.cost, cost, says)))
    return found


def _time_use(run: Execution, until: datetime) -> RunBudgetUse:
    took = (until - (run.started_at or until)).total_seconds()
    most = run.timeout_s
    bound = f"{most / 3600:g} h" if most >= 3600 else format_duration(most * 1000)
    says = f"{format_duration(took * 1000)} of {bound}"
    return RunBudgetUse("Time", gauge(max(0.0, took), most, says))


def _whole_number(given: Any, usual: int) -> int:
    """The number, or `usual`: the parameters of a refused request may hold any value."""
    return given if type(given) is int and 0 < given < 10**9 else usual


def _parse_amount(given: Any) -> Decimal | None:
    try:
        found = Decimal(given) if isinstance(given, str) and given else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


def _recorded_report(request: PageRequest, run: Execution) -> AgentRunReport | None:
    """The run that this one replays, where the user may read it."""
    found = _referenced_run(request, run, "replays")
    return agent_requests.load_report(request.caller, found) if found is not None else None


def _referenced_run(request: PageRequest, run: Execution, name: str) -> Execution | None:
    try:
        return find_run(request.caller, UUID(str(run.parameters.get(name))))
    except (NotFound, ValueError):
        return None


def _compare_answers(
    report: AgentRunReport, recorded: AgentRunReport | None, reading: StepReader
) -> RecordedRun | None:
    if recorded is None:
        return None
    was: str = reading.redactor.clean(recorded.answer or "")
    now: str = reading.redactor.clean(report.answer or "")
    both = recorded.answer is not None and report.answer is not None
    lines = diff_texts(was.splitlines(), now.splitlines()) if both else None
    return RecordedRun(recorded, visible_pieces(was), lines)


def _may_cancel(request: PageRequest, run: Execution) -> bool:
    if run.is_final:
        return False
    own = request.caller.user_id in (run.user_id, run.made_by_id)
    return own or may(request.caller, "change_execution")


def _follow_up_context(request: PageRequest, run: Execution) -> dict[str, Any]:
    """The caller to continue or replay the request as: an agent's request only as that agent."""
    if not run.is_final or not run.started_at:
        return {"continue_form": False}
    mine = run.agent is None or (
        impersonable_agents(request.caller.user_id).filter(pk=run.agent.pk, active=True).exists()
    )
    return {
        "continue_form": mine,
        "acts_as": run.agent.slug if run.agent else "",
        "models": agent_requests.available_models(),
        "ready": model_configured(),
    }


def _curl_snippet(request: PageRequest, run: Execution, asked: Any) -> str:
    """The same request over REST, with redacted secrets."""
    given = asked if isinstance(asked, dict) else {}
    body = {name: given[name] for name in _PARAMETERS if given.get(name) not in (None, "", {}, [])}
    if run.session_id is None:
        body |= {"group": run.requested_groups, "state": run.state}
    else:
        body["session"] = str(run.session_id)
    return curl_snippet(request.build_absolute_uri(reverse("api-agent-requests")), body)


def _report_fingerprint(report: AgentRunReport) -> str:
    """A fingerprint that changes when the report changes."""
    asked = "c" if report.run.cancel_requested_at else ""
    steps = "".join(f"{one.number}{one.status}." for one in report.steps)
    return f"{report.run.stage}{asked}-{steps}-{report.spent.tokens}-{bool(report.answer)}"
