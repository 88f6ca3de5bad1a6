"""`/agent/requests/<id>/`: one request of an agent, live while it runs and readable afterwards."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from tools.accounts.impersonation import agents_for
from tools.accounts.user_permissions import may
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunReport
from tools.agents.run_parameters import ITERATIONS, TOKENS
from tools.definitions.results import Status
from tools.errors import Conflict, NotFound
from tools.execution import actions as executions
from tools.execution.redacted import redacted
from tools.models import Execution
from tools.shapes import money
from tools.ui.access import PageRequest, page
from tools.ui.agents.agent_plan import shown_plan
from tools.ui.agents.agent_requests import WORDS, ready
from tools.ui.agents.agent_steps import Reading, ShownStep, reading_of, shown_steps
from tools.ui.gauges import Gauge, gauge
from tools.ui.playground.snippets import curl_snippet
from tools.ui.shown import DiffLine, maker_of, milliseconds, text_difference
from tools.ui.visible import VisiblePiece, pieces
from tools.web.reauthentication import Proof, proof

PAGE = "agents/agent_request.html"
TO_DO = {
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
_GIVEN = (
    "question", "pattern", "model", "max_iterations", "max_tokens", "max_cost", "confidence",
    "thresholds", "continues", "replays", "shared_with",
)  # fmt: skip


@dataclass(frozen=True)
class RunBudgetUse:
    """The usage of one budget."""

    name: str
    gauge: Gauge


@dataclass(frozen=True)
class Activity:
    """The current activity of a request, by name and as a sentence."""

    name: str
    sentence: str


@dataclass(frozen=True)
class Recorded:
    """The recorded run of a replay, and how their answers differ: None where one has no answer."""

    report: AgentRunReport
    answer: list[VisiblePiece]
    lines: list[DiffLine] | None


@require_safe
@page
def request_page(request: PageRequest, request_id: UUID) -> HttpResponse:
    run = agent_requests.one_of(request.caller, request_id)
    report = agent_requests.report_of(request.caller, run)
    seen = _seen(report)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)  # keeps the focus and selection of the page
    context = _context(request, report) | {"seen": seen}
    return render(request, f"{PAGE}#moving" if request.htmx else PAGE, context)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def cancel(request: PageRequest, request_id: UUID) -> HttpResponseBase:
    run = agent_requests.one_of(request.caller, request_id)
    try:
        executions.cancel(caller=request.caller, execution=run)
    except Conflict as refusal:  # it has ended already
        messages.error(request, refusal.message, extra_tags=refusal.code)
    else:
        messages.success(request, "It is told to stop; what it has done stays done.")
    return redirect("agent-request", request_id=request_id)


def _context(request: PageRequest, report: AgentRunReport) -> dict[str, Any]:
    run, said = report.run, redacted(report.run)
    recorded = _recorded(request, run)
    reading = reading_of(request.caller.organization, report.steps)
    steps = shown_steps(report, recorded, reading)
    return {
        "run": run,
        "report": report,
        "question": reading.clean(report.question),
        "pattern": WORDS.get(report.pattern, report.pattern),
        "who": run.agent.slug if run.agent else run.user.username,
        "made_by": maker_of(run),
        "answer": _answer(report, said),
        "error": said["error_message"],
        "to_do": TO_DO.get(run.error_code, ""),
        "steps": steps,
        "answer_warnings": [
            warning
            for one in report.steps[-1:]
            if one.move.answer is not None
            for warning in one.move.warnings
        ],
        "plan": shown_plan(report.plan, reading),
        "now": _now(run, steps),
        "bounds": _bounds(report),
        "tokens": report.spent,
        "cost": money(report.spent.cost),
        "duration": milliseconds(run.duration_ms),
        "recorded": _compared(report, recorded, reading),
        "continues": _named(request, run, "continues"),
        "may_cancel": _may_cancel(request, run),
        "snippet": _snippet(request, run, said["parameters"]),
        **_goes_on(request, run),
    }


def _answer(report: AgentRunReport, said: dict[str, Any]) -> list[VisiblePiece] | None:
    if report.answer is None:
        return None
    output = said["output"]
    return pieces(str(output.get("answer", "")) if isinstance(output, dict) else "")


def _now(run: Execution, steps: list[ShownStep]) -> Activity | None:
    """The current activity; None where the request is over."""
    if run.over:
        return None
    if run.status == Status.REQUIRES_CONFIRMATION:
        return Activity("awaits-approval", "It waits for a person to agree before it begins.")
    if steps and steps[-1].waits:
        return Activity("action-awaits-approval", "It waits for a person to agree to its action.")
    if steps and steps[-1].open:
        return Activity("awaits-action", "It waits for what its action gives back.")
    if run.started_at is None:
        return Activity("awaits-worker", "It waits for a free worker.")
    return Activity("asks-model", "It asks the model.")


def _bounds(report: AgentRunReport) -> list[RunBudgetUse]:
    given, spent, run = report.run.parameters, report.spent, report.run
    turns, most = len(report.steps), _number(given.get("max_iterations"), ITERATIONS)
    tokens = _number(given.get("max_tokens"), TOKENS)
    found = [
        RunBudgetUse("Turns", gauge(turns, most, f"{turns} of {most}")),
        RunBudgetUse("Tokens", gauge(spent.tokens, tokens, f"{spent.tokens:,} of {tokens:,}")),
        _time(run, run.completed_at or timezone.now()),
    ]
    if (cost := _amount(given.get("max_cost"))) is not None:
        says = f"{money(spent.cost)} of {money(cost)}"
        found.insert(2, RunBudgetUse("Money", gauge(spent.cost, cost, says)))
    return found


def _time(run: Execution, until: datetime) -> RunBudgetUse:
    took = (until - (run.started_at or until)).total_seconds()
    most = run.timeout_s
    bound = f"{most / 3600:g} h" if most >= 3600 else milliseconds(most * 1000)
    says = f"{milliseconds(took * 1000)} of {bound}"
    return RunBudgetUse("Time", gauge(max(0.0, took), most, says))


def _number(given: Any, usual: int) -> int:
    """The number, or `usual`: the parameters of a refused request may hold any value."""
    return given if type(given) is int and 0 < given < 10**9 else usual


def _amount(given: Any) -> Decimal | None:
    try:
        found = Decimal(given) if isinstance(given, str) and given else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


def _recorded(request: PageRequest, run: Execution) -> AgentRunReport | None:
    """The run that this one replays, where the user may read it."""
    found = _named(request, run, "replays")
    return agent_requests.report_of(request.caller, found) if found is not None else None


def _named(request: PageRequest, run: Execution, name: str) -> Execution | None:
    try:
        return agent_requests.one_of(request.caller, UUID(str(run.parameters.get(name))))
    except (NotFound, ValueError):
        return None


def _compared(
    report: AgentRunReport, recorded: AgentRunReport | None, reading: Reading
) -> Recorded | None:
    if recorded is None:
        return None
    was: str = reading.redactor.clean(recorded.answer or "")
    now: str = reading.redactor.clean(report.answer or "")
    both = recorded.answer is not None and report.answer is not None
    lines = text_difference(was.splitlines(), now.splitlines()) if both else None
    return Recorded(recorded, pieces(was), lines)


def _may_cancel(request: PageRequest, run: Execution) -> bool:
    if run.over:
        return False
    own = request.caller.user_id in (run.user_id, run.made_by_id)
    return own or may(request.caller, "change_execution")


def _goes_on(request: PageRequest, run: Execution) -> dict[str, Any]:
    """The caller to continue or replay the request as: an agent's request only as that agent."""
    if not run.over or not run.started_at:
        return {"goes_on": False}
    mine = run.agent is None or (
        agents_for(request.caller.user_id).filter(pk=run.agent.pk, active=True).exists()
    )
    return {
        "goes_on": mine,
        "acts_as": run.agent.slug if run.agent else "",
        "models": agent_requests.models(),
        "ready": ready(),
    }


def _snippet(request: PageRequest, run: Execution, asked: Any) -> str:
    """The same request over REST, with redacted secrets."""
    given = asked if isinstance(asked, dict) else {}
    body = {name: given[name] for name in _GIVEN if given.get(name) not in (None, "", {}, [])}
    if run.session_id is None:
        body |= {"group": run.requested_groups, "state": run.state}
    else:
        body["session"] = str(run.session_id)
    return curl_snippet(request.build_absolute_uri(reverse("api-agent-requests")), body)


def _seen(report: AgentRunReport) -> str:
    """A fingerprint that changes when the report changes."""
    asked = "c" if report.run.cancel_requested_at else ""
    steps = "".join(f"{one.number}{one.status}." for one in report.steps)
    return f"{report.run.stage}{asked}-{steps}-{report.spent.tokens}-{bool(report.answer)}"
