"""`/batches/`: the list of batches and of runs of chains."""

from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Count
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import may
from tools.definitions.implementations.builtin import RUN_BATCH
from tools.definitions.vocabulary import ToolType
from tools.execution.reading import readable
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.ui.access import PageRequest, page
from tools.ui.executions.executions import BULKY

LIST = "executions/batches.html"
PAGE_SIZE = 25
BATCH, CHAIN = "batch", "chain"
KINDS = {BATCH: "Batches", CHAIN: "Chain runs"}
_OF_KIND = {
    BATCH: {"tool_version__definition__implementation__entry_point": RUN_BATCH},
    CHAIN: {"tool_version__definition__type": str(ToolType.CHAIN)},
}


@dataclass(frozen=True)
class CompositeExecutionRow:
    """A composite call, with the number of its calls by status."""

    execution: Execution
    counts: list[tuple[str, int]]
    url: str

    @property
    def made(self) -> int:
        return sum(count for _, count in self.counts)


@require_safe
@page
def batch_list(request: PageRequest) -> HttpResponse:
    search = _search(request.GET)
    found, older = _page_of(_found(request, search), request.GET.get("before", ""))
    context = {
        "search": search,
        "kinds": [(kind, word, _address(search | {"kind": kind})) for kind, word in KINDS.items()],
        "rows": _rows(found, search["kind"]),
        "older": _address(search, before=str(found[-1].pk)) if older else "",
        "newest": "before" not in request.GET,
        "start": _address(search),
        "everyone": may(request.caller, "view_execution"),
    }
    return render(request, LIST, context)


def _search(query: QueryDict) -> dict[str, str]:
    kind, tool = query.get("kind", ""), query.get("tool", "")
    return {
        "kind": kind if kind in KINDS else BATCH,
        "tool": tool.strip()[:128],
    }


def _found(request: PageRequest, search: dict[str, str]) -> ExecutionQuerySet:
    rows = readable(request.caller).filter(composite=True, parent__isnull=True)
    rows = rows.filter(**_OF_KIND[search["kind"]])
    if search["tool"]:
        rows = rows.filter(tool_name=search["tool"])
    return rows.select_related("agent", "user").defer(*BULKY).order_by("-created_at")


def _page_of(found: ExecutionQuerySet, before: str) -> tuple[list[Execution], bool]:
    if before:
        found = found.filter(created_at__lt=_moment_of(found, before))
    rows = list(found[: PAGE_SIZE + 1])
    return rows[:PAGE_SIZE], len(rows) > PAGE_SIZE


def _moment_of(found: ExecutionQuerySet, text: str) -> Any:
    """The time of that call; for none the minimum time, so that the page is empty."""
    try:
        rows = found.filter(pk=UUID(text))
    except ValueError:
        rows = found.none()
    return rows.values_list("created_at", flat=True).first() or "0001-01-02T00:00Z"


def _rows(found: list[Execution], kind: str) -> list[CompositeExecutionRow]:
    """Uses one query for all their calls."""
    calls = Execution.objects.filter(parent__in=[one.pk for one in found]).order_by()
    counts: dict[Any, Counter[str]] = {one.pk: Counter() for one in found}
    for parent, status, count in calls.values_list("parent", "status").annotate(Count("pk")):
        counts[parent][status] += count
    to = "batch" if kind == BATCH else "execution"
    return [
        CompositeExecutionRow(one, sorted(counts[one.pk].items()), reverse(to, args=[one.pk]))
        for one in found
    ]


def _address(search: dict[str, str], **more: str) -> str:
    query = {name: value for name, value in (search | more).items() if value}
    return f"{reverse('batches')}?{urlencode(query)}"
