"""`/changes/`: changes of upstream tools that await approval, and their approval or rejection."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.signatures import drift
from tools.definitions.differences import make_value_visible
from tools.definitions.tool import ordered_definition
from tools.errors import Malformed, ToolcribError
from tools.models import Decision, OnDrift, UpstreamChange
from tools.ui.access import PageRequest, page
from tools.ui.approvals.drawn import draw_difference, fields_of
from tools.ui.catalog.origins import ToolOrigin, source_of
from tools.ui.results import page_or_results
from tools.ui.shown import pretty
from tools.web.reauthentication import Proof, proof

LIST, ONE = "approvals/changes.html", "approvals/change.html"
PAGE_SIZE = 25
_STATES = {"open": "Waiting", "approved": "Approved", "rejected": "Rejected", "withdrawn": "Gone"}
_VERBS = {"approve": True, "reject": False}
_MOST_FIELDS = 6
NOT_READ = (
    "Nothing was decided: what you read is not what there is now. Below stands what it is now; "
    "read it before you decide."
)


@dataclass(frozen=True)
class UpstreamChangeItem:
    """One row of the list."""

    change: UpstreamChange
    source: ToolOrigin | None
    fields: list[str]
    more: int
    warned: bool


def waiting(request: HttpRequest) -> dict[str, Any]:
    """A context processor: the number of pending changes, counted when a template shows it."""
    return {"changes_waiting": SimpleLazyObject(lambda: _count(request))}


@require_safe
@page
def change_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_tool")
    state = request.GET.get("state", Decision.OPEN)
    if state not in _STATES:
        raise Malformed(f"state must be one of {', '.join(_STATES)}.")
    rows = _rows(request).filter(decision=state).select_related("tool__version")
    found = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "state": state,
        "states": _counted(request),
        "page": found,
        "items": _items(found),
        "decides": may(request.caller, "change_tool"),
    }
    return page_or_results(request, LIST, context, here=request.get_full_path())


@require_safe
@page
def change_page(request: PageRequest, change_id: UUID) -> HttpResponse:
    require(request.caller, "view_tool")
    change = drift.find_change(request.caller.organization_id, change_id)
    return render(request, ONE, _shown(request, change))


@proof(Proof.NEEDED)
@require_POST
@page
def decide(request: PageRequest, change_id: UUID) -> HttpResponseBase:
    """Approve or reject a change. A refusal redirects to the current difference."""
    require(request.caller, "change_tool")
    change = drift.find_change(request.caller.organization_id, change_id)
    try:
        _decide(request, change)
    except ToolcribError as refusal:
        latest = _latest(change)
        other = refusal.code == "change_not_read" or latest != change
        messages.error(
            request,
            NOT_READ if other else f"Nothing was decided: {_told(refusal)}",
            extra_tags=refusal.code,
        )
        return redirect("change", latest.pk)
    return redirect("change", change.pk)


def _decide(request: PageRequest, change: UpstreamChange) -> None:
    given = request.POST
    approve = _VERBS.get(given.get("word", ""))
    if approve is None:
        raise Malformed("the form names nothing to do. Try again.")
    words = given.get("reason", "").strip()[:500]
    if not approve and not words:
        raise Malformed("say why you reject it; whoever looks at it next will want to know.")
    tool = drift.decide_change(
        change=change,
        approve=approve,
        read_digest=given.get("digest", ""),
        read_against=given.get("against", ""),
        by=actor_of(request.caller),
        words=words,
    )
    assert tool.version is not None
    said = f"is version {tool.version.label} now" if approve else "stays as it was approved"
    messages.success(request, f"{tool.name} {said}.")


def _told(refusal: ToolcribError) -> str:
    flaws = refusal.details.get("errors") or []
    return "; ".join([refusal.message, *(f"{one['field']} {one['message']}" for one in flaws)])


def _shown(request: PageRequest, change: UpstreamChange) -> dict[str, Any]:
    before, latest = drift.compared_to(change), _latest(change)
    tool = change.tool
    return {
        "change": change,
        "tool": tool,
        "source": source_of(tool),
        "before": before,
        "drawn": draw_difference(drift.difference_of(change)),
        "whole": pretty(make_value_visible(ordered_definition(change.seen))),
        "newer": latest if latest != change else None,
        "decides": may(request.caller, "change_tool"),
        "serves": tool.on_drift == OnDrift.SERVE,
        "gone": tool.deleted_at is not None,
    }


def _latest(change: UpstreamChange) -> UpstreamChange:
    """The pending change of the same tool, where there is one."""
    waits = change.tool.upstream_changes.filter(decision=Decision.OPEN)
    return waits.order_by("-seen_at").first() or change


def _items(found: Page[UpstreamChange]) -> list[UpstreamChangeItem]:
    items = []
    for change in found:
        told = drift.difference_of(change)
        fields = fields_of(told)
        warned = any(one.warnings for one in told)
        more = max(0, len(fields) - _MOST_FIELDS)
        items.append(
            UpstreamChangeItem(change, source_of(change.tool), fields[:_MOST_FIELDS], more, warned)
        )
    return items


def _rows(request: PageRequest) -> QuerySet[UpstreamChange]:
    return UpstreamChange.objects.filter(
        tool__organization_id=request.caller.organization_id, tool__deleted_at=None
    )


def _counted(request: PageRequest) -> list[tuple[str, str, int]]:
    """Each state with its name and number."""
    found = _rows(request).order_by().values_list("decision").annotate(Count("pk"))
    counts = dict(found)
    return [(state, word, counts.get(state, 0)) for state, word in _STATES.items()]


def _count(request: HttpRequest) -> int:
    """Pending changes of the user's organization; 0 for users who may not see them."""
    user = getattr(request, "user", None)
    if user is None or not user.has_perm("tools.view_tool"):
        return 0
    return UpstreamChange.objects.filter(
        tool__organization_id=user.organization_id,
        tool__deleted_at=None,
        decision=Decision.OPEN,
    ).count()
