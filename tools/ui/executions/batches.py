"""`/batches/`: the list of batches and of runs of chains, and the page of one batch, with its
progress, the call of each input, and cancellation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Count
from django.http import QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from audit.actions import redactor_of
from tools.accounts.user_permissions import may
from tools.definitions.batches import MOST_INPUTS
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import OPEN, Status
from tools.definitions.vocabulary import ToolType
from tools.errors import Malformed, ToolcribError
from tools.execution.outputs import readable_executions
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.ui.charts import Gauge, gauge
from tools.ui.display import format_duration
from tools.ui.executions.executions import LARGE_FIELDS, caller_name
from tools.web.listing import Column, Filters, Listing, text_field
from tools.web.pages import PageRequest, action_page, page
from tools.web.reauthentication import Proof
from tools.workflows import batches
from tools.workflows.batches import BatchRow

LIST_TEMPLATE = "executions/batches.html"
BATCH, CHAIN = "batch", "chain"
KINDS = {BATCH: "Batches", CHAIN: "Chain runs"}
_FILTERS_BY_KIND = {
    BATCH: {"tool_version__definition__implementation__entry_point": RUN_BATCH},
    CHAIN: {"tool_version__definition__type": str(ToolType.CHAIN)},
}
BATCH_TEMPLATE = "executions/batch.html"
CALLS_PER_PAGE = 50  # on a page


@dataclass(frozen=True)
class CompositeExecutionRow:
    """A composite call, with the number of its calls by status."""

    execution: Execution
    counts: list[tuple[str, int]]
    url: str


@dataclass(frozen=True)
class BatchCallRow:
    """A line of a batch, with the data that its page shows of its call."""

    line: BatchRow
    took: str
    message: str
    open: bool


class BatchFilters(Filters):
    tool = text_field("Tool")


class BatchListing(Listing):
    """Batches, or runs of chains, the newest first."""

    view, template, filters = "batches", LIST_TEMPLATE, BatchFilters
    order, counted = "-called", False

    def build(self) -> None:
        self.kind = self.given.get("kind", BATCH) if self.given.get("kind") in KINDS else BATCH
        self.noun, heading = ("batch", "Batch") if self.kind == BATCH else ("chain run", "Chain")
        self.plural = KINDS[self.kind].lower()
        self.fixed = {"kind": self.kind}
        self.columns = [
            Column("id", "", lambda row: row.execution.pk),
            Column("tool", heading, lambda row: row.execution.tool_name),
            Column("status", "Status", lambda row: row.execution.stage),
            Column("error_code", "", lambda row: row.execution.error_code),
            Column("calls", "Its calls", lambda row: [f"{n} {status}" for status, n in row.counts]),
            Column("who", "Who", lambda row: caller_name(row.execution)),
            Column("called", "Called", lambda row: row.execution.created_at, sort="created_at",
                   css="number"),
        ]  # fmt: skip

    def rows(self) -> ExecutionQuerySet:
        rows = readable_executions(self.caller).filter(composite=True, parent__isnull=True)
        rows = rows.filter(**_FILTERS_BY_KIND[self.kind])
        if tool := self.values.get("tool"):
            rows = rows.filter(tool_name=tool)
        return rows.select_related("agent", "user").defer(*LARGE_FIELDS)

    def prepare(self, rows: list[Execution]) -> list[CompositeExecutionRow]:
        return _composite_rows(rows, self.kind)

    def context(self) -> dict[str, Any]:
        return {"everyone": may(self.caller, "view_execution")}

    @property
    def kinds(self) -> list[tuple[str, str, str]]:
        return [(kind, word, self.address(kind=kind)) for kind, word in KINDS.items()]


@page()
def batch_list(request: PageRequest) -> HttpResponseBase:
    return BatchListing(request).respond()


class BatchCalls(Sequence[BatchRow]):
    """What became of each input, read where it is looked at."""

    def __init__(self, caller: Caller, batch: Execution) -> None:
        self._caller, self._batch = caller, batch
        self._total = len(batches.batch_inputs(batch))

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, part: Any) -> Any:
        first, last, _ = part.indices(self._total)
        return batches.batch_rows_between(self._caller, self._batch, first, last)


class BatchCallListing(Listing):
    """The calls of one batch, in the order of its inputs."""

    view, template, noun, page_size = "batch", BATCH_TEMPLATE, "call", CALLS_PER_PAGE
    results = f"{BATCH_TEMPLATE}#results"

    def __init__(self, request: PageRequest, batch: Execution) -> None:
        self.batch, self.counts = batch, _count_by_status(batch)
        super().__init__(request)

    def build(self) -> None:
        self.may_cancel = not self.batch.is_final and _may_cancel_batch(self.request, self.batch)
        tick = [Column("tick", "Tick", css="tick", hidden=True)] if self.may_cancel else []
        self.css = "ticked" if tick else ""
        self.columns = [
            *tick,
            Column("position", "", lambda row: row.line.position),
            Column("call", "Call", lambda row: row.line.given.tool_name),
            Column("id", "", lambda row: row.line.execution.pk if row.line.execution else ""),
            Column("status", "Status", lambda row: row.line.status),
            Column("message", "", lambda row: row.message),
            Column("took", "Took", lambda row: row.took, css="number"),
        ]

    def rows(self) -> BatchCalls:
        return BatchCalls(self.caller, self.batch)

    def prepare(self, rows: list[BatchRow]) -> list[BatchCallRow]:
        return [_call_row(self.batch, row) for row in rows]

    @cached_property
    def fingerprint(self) -> str:
        return _batch_fingerprint(self.batch, self.counts, self.page.rows)

    @property
    def polled(self) -> str:
        """The address by which the page follows the batch."""
        return self.address(**self._paging, seen=self.fingerprint)

    def context(self) -> dict[str, Any]:
        batch, counts, total = self.batch, self.counts, self.page.total or 0
        progress, over = _progress_gauge(batch, counts, total)
        return {
            "batch": batch,
            "who": caller_name(batch),
            "total": total,
            "counts": sorted(counts.items()),
            "not_made": total - sum(counts.values()) if batch.is_final else 0,
            "over": over,
            "progress": progress,
            "duration": format_duration(batch.duration_ms),
            "error": _redact(batch, batch.error_message),
        }


@page()
def batch_page(request: PageRequest, batch_id: UUID) -> HttpResponseBase:
    listing = BatchCallListing(request, batches.find_batch(request.caller, batch_id))
    if (
        request.htmx
        and request.htmx.target == "moving"
        and listing.given.get("seen") != (listing.fingerprint)
    ):
        context = {"listing": listing, **listing.context()}
        return render(request, f"{BATCH_TEMPLATE}#moving", context)
    return listing.respond()


@action_page(Proof.NOT_NEEDED)
def cancel_batch(request: PageRequest, batch_id: UUID) -> HttpResponseBase:
    """Cancel the whole batch, or the selected calls."""
    batch = batches.find_batch(request.caller, batch_id)
    batches.check_may_cancel(request.caller, batch)
    wanted = None if request.POST.get("do") == "all" else _parse_positions(request.POST)
    try:
        batches.cancel_batch(caller=request.caller, batch=batch, positions=wanted)
    except ToolcribError as refusal:
        messages.error(request, refusal.message, extra_tags=refusal.code)
    else:
        what = "The batch is" if wanted is None else f"{len(wanted)} of its calls are"
        messages.success(request, f"{what} told to stop; what is over stays as it is.")
    return redirect("batch", batch_id=batch_id)


def _composite_rows(found: list[Execution], kind: str) -> list[CompositeExecutionRow]:
    """Uses one query for all their calls."""
    calls = Execution.objects.children_of(*(one.pk for one in found)).order_by()
    counts: dict[Any, Counter[str]] = {one.pk: Counter() for one in found}
    for parent, status, count in calls.values_list("parent", "status").annotate(Count("pk")):
        counts[parent][status] += count
    to = "batch" if kind == BATCH else "execution"
    return [
        CompositeExecutionRow(one, sorted(counts[one.pk].items()), reverse(to, args=[one.pk]))
        for one in found
    ]


def _parse_positions(data: QueryDict) -> list[int]:
    """Raises `Malformed`."""
    given = data.getlist("position")[:MOST_INPUTS]
    if not given or not all(one.isascii() and one.isdecimal() and len(one) < 5 for one in given):
        raise Malformed("Tick the calls that are to be cancelled.")
    return [int(one) for one in given]


def _count_by_status(batch: Execution) -> Counter[str]:
    rows = Execution.objects.children_of(batch.pk).order_by()
    return Counter(dict(rows.values_list("status").annotate(Count("pk"))))


def _progress_gauge(batch: Execution, counts: Counter[str], total: int) -> tuple[Gauge, int]:
    """The progress bar, whose tone is good without failures, and the number of finished calls."""
    over = total if batch.is_final else sum(n for status, n in counts.items() if status not in OPEN)
    made = gauge(over, total, f"{over} of {total} calls are over")
    failed = sum(n for status, n in counts.items() if status not in {*OPEN, Status.SUCCESS})
    return Gauge(made.used, 0.0, "warn" if failed else "good", made.says), over


def _call_row(batch: Execution, line: BatchRow) -> BatchCallRow:
    call = line.execution
    if call is None:
        waits = line.status == "Pending" and not batch.is_final
        return BatchCallRow(line, "–", _redact(batch, line.error_message or ""), waits)
    return BatchCallRow(line, format_duration(call.duration_ms), _redact(batch, call.error_message),
                 call.status in OPEN)  # fmt: skip


def _redact(batch: Execution, text: str) -> str:
    said: str = redactor_of(batch.organization.slug).clean(text)
    return said


def _may_cancel_batch(request: PageRequest, batch: Execution) -> bool:
    own: bool = batch.user_id == request.caller.user_id
    return own or may(request.caller, "change_execution")


def _batch_fingerprint(batch: Execution, counts: Counter[str], lines: list[BatchRow]) -> str:
    """A fingerprint that changes when the batch changes."""
    asked = "c" if batch.cancel_requested_at else ""
    known = "".join(f"{status}{count}" for status, count in sorted(counts.items()))
    waiting = sum(line.status in OPEN for line in lines)
    return f"{batch.stage}{asked}-{known}-{waiting}"
