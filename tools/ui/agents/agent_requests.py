"""`/agent/requests/`: the list of requests to the product's agents, the newest first, and the page
of one request, live while it runs and readable afterwards.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Q, Sum
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from audit.actions import redactor_of
from tools.accounts.impersonation import agents_for
from tools.accounts.user_permissions import may
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunReport
from tools.agents.call_rows import THINK
from tools.agents.run_parameters import ITERATIONS, PATTERNS, PLAN, REACT, TOKENS
from tools.definitions.results import Status
from tools.errors import Conflict, NotFound
from tools.execution import actions as executions
from tools.execution.redacted import redacted
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.shapes import money
from tools.ui.access import PageRequest, page, page_or_results
from tools.ui.agents.agent_steps import Reading, ShownStep, reading_of, shown_plan, shown_steps
from tools.ui.charts import Gauge, gauge
from tools.ui.display import DiffLine, VisiblePiece, maker_of, milliseconds, pieces, text_difference
from tools.ui.executions.executions import (
    FAILED,
    LARGE_FIELDS,
    agent_filter,
    filter_older,
    list_fingerprint,
)
from tools.ui.playground.snippets import curl_snippet
from tools.web.reauthentication import Proof, proof

LIST = "agents/agent_requests.html"
PAGE_SIZE = 25
MOST_WORDS = 200  # characters of a question in the list
WORDS = {REACT: "Step by step", PLAN: "By a plan"}
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
_UNREAD = tuple(name for name in LARGE_FIELDS if name != "parameters")
_ASKED = Q(place__startswith=THINK) & ~Q(place__contains="#")  # a retry is the same step
_GIVEN = (
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
def request_list(request: PageRequest) -> HttpResponse:
    search = _search(request.GET)
    rows, older = _page_of(request, _found(request, search))
    newest = not request.GET.get("before")
    seen = list_fingerprint(rows)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)  # nothing changed: the page keeps its scroll position
    context = {
        "search": search,
        "statuses": [(status, status) for status in Status] + [(FAILED, "Failed in any way")],
        "patterns": WORDS.items(),
        "rows": _rows(request, rows),
        "newest": newest,
        "live": address(search, seen=seen) if newest else "",
        "older": address(search, before=str(rows[-1].pk)) if older else "",
        "start": address(search),
        "filtered": any(search.values()),
        "everyone": may(request.caller, "view_execution"),
        "ready": ready(),
    }
    here = address(search, before=request.GET.get("before", ""))
    return page_or_results(request, LIST, context, here=here)


def ready() -> bool:
    """Whether a model is configured."""
    return bool(settings.LLM_BASE_URL and agent_requests.models())


def address(search: dict[str, str], **more: str) -> str:
    query = {name: value for name, value in (search | more).items() if value}
    return reverse("agent-requests") + (f"?{urlencode(query)}" if query else "")


def on_one_line(question: str, organization: str) -> list[VisiblePiece]:
    """The beginning of a question, without secrets, with invisible characters shown."""
    said: str = redactor_of(organization).clean(question)
    line = " ".join(said.split())
    return pieces(line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]}…")


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


def _search(query: QueryDict) -> dict[str, str]:
    names = ("status", "agent", "pattern")
    given = {name: query.get(name, "").strip()[:128] for name in names}
    return given | {"pattern": given["pattern"] if given["pattern"] in PATTERNS else ""}


def _found(request: PageRequest, search: dict[str, str]) -> ExecutionQuerySet:
    rows = agent_requests.lately(request.caller)
    if search["agent"]:
        rows = rows.filter(**agent_filter(request, search["agent"]))
    if search["status"]:
        rows = rows.failed() if search["status"] == FAILED else rows.at_stage(search["status"])
    if search["pattern"] == PLAN:
        rows = rows.filter(parameters__pattern=PLAN)
    elif search["pattern"]:  # also of those that name none
        rows = rows.exclude(parameters__contains={"pattern": PLAN})
    return rows.select_related("agent", "user").defer(*_UNREAD)


def _page_of(request: PageRequest, found: ExecutionQuerySet) -> tuple[list[Execution], bool]:
    if before := request.GET.get("before"):
        found = filter_older(request, found, _identifier(before))
    rows = list(found[: PAGE_SIZE + 1])
    return rows[:PAGE_SIZE], len(rows) > PAGE_SIZE


def _identifier(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)  # matches no agent: the page is empty and explains it


def _rows(request: PageRequest, found: list[Execution]) -> list[AgentRequestRow]:
    """Uses one query for the steps of all rows."""
    calls = Execution.objects.filter(parent__in=[one.pk for one in found]).order_by()
    told = calls.values("parent").annotate(steps=Count("pk", filter=_ASKED), cost=Sum("cost"))
    did: dict[Any, dict[str, Any]] = {one["parent"]: dict(one) for one in told}
    return [_row(request.caller.organization, one, did.get(one.pk, {})) for one in found]


def _row(organization: str, run: Execution, did: dict[str, Any]) -> AgentRequestRow:
    return AgentRequestRow(
        run,
        on_one_line(str(run.parameters.get("question", "")), organization),
        WORDS.get(str(run.parameters.get("pattern", REACT)), ""),
        did.get("steps", 0),
        money(did.get("cost") or Decimal(0)),
        milliseconds(run.duration_ms),
    )


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
