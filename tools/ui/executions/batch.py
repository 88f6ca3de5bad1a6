"""`/batches/<id>/`: one batch with its progress, the call of each input, and cancellation."""

from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import Count
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from audit.actions import redactor_of
from tools.accounts.user_permissions import may
from tools.definitions.batches import MOST_INPUTS
from tools.definitions.results import OPEN, Status
from tools.errors import Malformed, ToolcribError
from tools.models import Execution
from tools.ui.access import PageRequest, page
from tools.ui.charts import Gauge, gauge
from tools.ui.display import milliseconds
from tools.web.proof import Proof, proof
from tools.workflows import batches
from tools.workflows.batches import BatchRow

PAGE = "executions/batch.html"
LINES = 50  # on a page


@dataclass(frozen=True)
class BatchCallRow:
    """A line of a batch, with the data that its page shows of its call."""

    line: BatchRow
    took: str
    message: str
    open: bool


@require_safe
@page
def batch_page(request: PageRequest, batch_id: UUID) -> HttpResponse:
    batch = batches.one_of(request.caller, batch_id)
    shown = _shown(request, batch)
    if request.htmx and request.GET.get("seen") == shown["seen"]:
        return HttpResponse(status=204)  # keeps the user's selection
    part = "lines" if request.GET.get("part") == "lines" else "moving"
    return render(request, f"{PAGE}#{part}" if request.htmx else PAGE, shown)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def cancel(request: PageRequest, batch_id: UUID) -> HttpResponseBase:
    """Cancel the whole batch, or the selected calls."""
    batch = batches.one_of(request.caller, batch_id)
    batches.check_may_cancel(request.caller, batch)
    wanted = None if request.POST.get("do") == "all" else _positions(request.POST)
    try:
        batches.cancel(caller=request.caller, batch=batch, positions=wanted)
    except ToolcribError as refusal:
        messages.error(request, refusal.message, extra_tags=refusal.code)
    else:
        what = "The batch is" if wanted is None else f"{len(wanted)} of its calls are"
        messages.success(request, f"{what} told to stop; what is over stays as it is.")
    return redirect("batch", batch_id=batch_id)


def _positions(data: QueryDict) -> list[int]:
    """Raises `Malformed`."""
    given = data.getlist("position")[:MOST_INPUTS]
    if not given or not all(one.isascii() and one.isdecimal() and len(one) < 5 for one in given):
        raise Malformed("Tick the calls that are to be cancelled.")
    return [int(one) for one in given]


def _shown(request: PageRequest, batch: Execution) -> dict[str, Any]:
    total = len(batches.given_to(batch))
    pages = Paginator(range(total), LINES).get_page(request.GET.get("page"))
    first = (pages.number - 1) * LINES
    lines = batches.lines_between(request.caller, batch, first, first + LINES)
    counts = _counts(batch)
    progress, over = _progress(batch, counts, total)
    return {
        "batch": batch,
        "who": batch.agent.slug if batch.agent else batch.user.username,
        "lines": [_line(batch, line) for line in lines],
        "first": first,
        "page": pages,
        "total": total,
        "counts": sorted(counts.items()),
        "not_made": total - sum(counts.values()) if batch.over else 0,
        "over": over,
        "progress": progress,
        "duration": milliseconds(batch.duration_ms),
        "error": _clean(batch, batch.error_message),
        "may_cancel": not batch.over and _may_cancel(request, batch),
        "links": _links(batch, pages),
        "seen": _seen(batch, counts, lines),
    }


def _counts(batch: Execution) -> Counter[str]:
    rows = Execution.objects.filter(parent=batch.pk).order_by()
    return Counter(dict(rows.values_list("status").annotate(Count("pk"))))


def _progress(batch: Execution, counts: Counter[str], total: int) -> tuple[Gauge, int]:
    """The progress bar, whose tone is good without failures, and the number of finished calls."""
    over = total if batch.over else sum(n for status, n in counts.items() if status not in OPEN)
    made = gauge(over, total, f"{over} of {total} calls are over")
    failed = sum(n for status, n in counts.items() if status not in {*OPEN, Status.SUCCESS})
    return Gauge(made.used, 0.0, "warn" if failed else "good", made.says), over


def _line(batch: Execution, line: BatchRow) -> BatchCallRow:
    call = line.execution
    if call is None:
        waits = line.status == "Pending" and not batch.over
        return BatchCallRow(line, "–", _clean(batch, line.error_message or ""), waits)
    return BatchCallRow(line, milliseconds(call.duration_ms), _clean(batch, call.error_message),
                 call.status in OPEN)  # fmt: skip


def _clean(batch: Execution, text: str) -> str:
    said: str = redactor_of(batch.organization.slug).clean(text)
    return said


def _may_cancel(request: PageRequest, batch: Execution) -> bool:
    own: bool = batch.user_id == request.caller.user_id
    return own or may(request.caller, "change_execution")


def _seen(batch: Execution, counts: Counter[str], lines: list[BatchRow]) -> str:
    """A fingerprint that changes when the batch changes."""
    asked = "c" if batch.cancel_requested_at else ""
    known = "".join(f"{status}{count}" for status, count in sorted(counts.items()))
    waiting = sum(line.status in OPEN for line in lines)
    return f"{batch.stage}{asked}-{known}-{waiting}"


def _links(batch: Execution, pages: Page[int]) -> dict[str, str]:
    def address(number: int) -> str:
        return f"{reverse('batch', args=[batch.pk])}?{urlencode({'page': number})}"

    return {
        "here": address(pages.number),
        "previous": address(pages.number - 1) if pages.has_previous() else "",
        "next": address(pages.number + 1) if pages.has_next() else "",
    }
