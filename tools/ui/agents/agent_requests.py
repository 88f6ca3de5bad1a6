"""`/agent/requests/`: the list of requests to the product's agents, the newest first."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.http import HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_safe

from audit.actions import redactor_of
from tools.accounts.user_permissions import may
from tools.agents import agent_requests
from tools.agents.call_rows import THINK
from tools.agents.run_parameters import PATTERNS, PLAN, REACT
from tools.definitions.results import Status
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.shapes import money
from tools.ui.access import PageRequest, page
from tools.ui.executions.executions import BULKY, FAILED, fingerprint, of_agent, older_than
from tools.ui.results import page_or_results
from tools.ui.shown import milliseconds
from tools.ui.visible import VisiblePiece, pieces

LIST = "agents/agent_requests.html"
PAGE_SIZE = 25
MOST_WORDS = 200  # characters of a question in the list
WORDS = {REACT: "Step by step", PLAN: "By a plan"}
_UNREAD = tuple(name for name in BULKY if name != "parameters")
_ASKED = Q(place__startswith=THINK) & ~Q(place__contains="#")  # a retry is the same step


@dataclass(frozen=True)
class AgentRequestRow:
    execution: Execution
    question: list[VisiblePiece]
    pattern: str
    steps: int
    cost: str
    took: str


@require_safe
@page
def request_list(request: PageRequest) -> HttpResponse:
    search = _search(request.GET)
    rows, older = _page_of(request, _found(request, search))
    newest = not request.GET.get("before")
    seen = fingerprint(rows)
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


def _search(query: QueryDict) -> dict[str, str]:
    names = ("status", "agent", "pattern")
    given = {name: query.get(name, "").strip()[:128] for name in names}
    return given | {"pattern": given["pattern"] if given["pattern"] in PATTERNS else ""}


def _found(request: PageRequest, search: dict[str, str]) -> ExecutionQuerySet:
    rows = agent_requests.lately(request.caller)
    if search["agent"]:
        rows = rows.filter(**of_agent(request, search["agent"]))
    if search["status"]:
        rows = rows.failed() if search["status"] == FAILED else rows.at_stage(search["status"])
    if search["pattern"] == PLAN:
        rows = rows.filter(parameters__pattern=PLAN)
    elif search["pattern"]:  # also of those that name none
        rows = rows.exclude(parameters__contains={"pattern": PLAN})
    return rows.select_related("agent", "user").defer(*_UNREAD)


def _page_of(request: PageRequest, found: ExecutionQuerySet) -> tuple[list[Execution], bool]:
    if before := request.GET.get("before"):
        found = older_than(request, found, _identifier(before))
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
