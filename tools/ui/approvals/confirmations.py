"""`/confirmations/`: calls that await approval, and the decisions on them.

Everything that would run is shown from the stored row, never in the caller's words. A call that is
too long for the queue is decided on its own page, which shows all of it.
"""

import hashlib
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core import signing
from django.db.models import Count, Max, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from tools.accounts.user_permissions import may
from tools.approvals import decisions
from tools.approvals.decisions import MOST_AT_ONCE, PERMISSION, Decided, Word
from tools.errors import Forbidden, Malformed
from tools.models import Confirmation, ConfirmationStatus
from tools.shapes.scalars import money
from tools.ui.approvals.call_context import EarlierCall, LastRead, compare_calls
from tools.ui.approvals.call_preview import preview_sentences
from tools.ui.display import VisiblePiece, impersonator_name, mixed_words, pretty, visible_pieces
from tools.web.keyset import count_at_most
from tools.web.listing import Column, Listing
from tools.web.pages import PageRequest, action_page, page
from tools.web.reauthentication import Proof

QUEUE, ONE = "approvals/confirmations.html", "approvals/confirmation.html"
MOST_DECIDED = 20
MOST_CHARACTERS = 4_000  # characters of arguments that the queue shows
_SALT = "confirmation shown"
_VERBS = {"approve": True, "reject": False}


@dataclass(frozen=True)
class ApprovalCard:
    """One held call as an approver sees it."""

    confirmation: Confirmation
    who: str
    kind: str
    made_by: str
    arguments: list[VisiblePiece]
    length: int
    hidden: int
    mixed: list[str]
    cost: str
    approvals: int
    obstacle: Forbidden | None
    issued: bool
    minutes_left: float
    preview: list[str]
    last_read: LastRead | None
    earlier: EarlierCall | None
    reason: str  # as it is typed
    picked: bool

    @property
    def long(self) -> bool:
        return self.length > MOST_CHARACTERS

    @property
    def waits(self) -> bool:
        return self.confirmation.status == ConfirmationStatus.PENDING and self.minutes_left > 0


def count_held_calls(request: HttpRequest) -> dict[str, Any]:
    """A context processor: the number of held calls, counted when a template shows it."""
    return {"held": SimpleLazyObject(lambda: _count_pending(request))}


class ApprovalListing(Listing):
    """The held calls, the most urgent first."""

    view, template, noun, order, swaps = "confirmations", QUEUE, "call", "expires", False
    columns = [
        Column("tool", "", lambda card: card.confirmation.execution.tool_name),
        Column("who", "", lambda card: card.who),
        Column("asked", "", lambda card: card.confirmation.created_at),
        Column("expires", "", lambda card: card.confirmation.expires_at, sort="expires_at"),
        Column("approvals", "", lambda card: card.approvals),
        Column("cost", "", lambda card: card.cost),
    ]

    def rows(self) -> QuerySet[Confirmation]:
        return decisions.pending(self.request.caller)

    def prepare(self, rows: list[Confirmation]) -> list[ApprovalCard]:
        return _approval_cards(self.request, rows)

    def context(self) -> dict[str, Any]:
        done = decisions.readable(self.request.caller).exclude(status=ConfirmationStatus.PENDING)
        return {
            "queue_mark": _queue_fingerprint(self.rows()),
            "decided": done.order_by("-decided_at")[:MOST_DECIDED],
            "decides": may(self.request.caller, PERMISSION),
            "shown_at": _display_stamp(self.request),
        }


@page()
def approval_queue(request: PageRequest) -> HttpResponseBase:
    if request.GET.get("part") == "fresh":
        return _change_notice(request, decisions.pending(request.caller))
    return ApprovalListing(request).respond()


@page()
def confirmation_page(request: PageRequest, confirmation_id: UUID) -> HttpResponse:
    return _show_call(request, confirmation_id)


def _show_call(
    request: PageRequest, confirmation_id: UUID, status: int = 200, **more: Any
) -> HttpResponse:
    confirmation = decisions.one_of(request.caller, confirmation_id)
    context = {
        "card": _approval_cards(request, [confirmation])[0],
        "decides": may(request.caller, PERMISSION),
        "shown_at": _display_stamp(request),
    }
    return render(request, ONE, context | more, status=status)


@action_page(Proof.NEEDED)
def decide_calls(request: PageRequest) -> HttpResponseBase:
    """Decide one call by its button, or all selected calls, each with the hash that was shown.

    A script replaces the one call's card by the outcome; other cards keep what was typed.
    """
    words = _read_decisions(request)
    if unsaid := [one.id for one in words if not one.approve and not one.reason]:
        return _ask_for_reasons(request, unsaid)
    before = _queue_fingerprint(decisions.pending(request.caller)) if request.htmx else ""
    if not words:
        messages.warning(request, "No call was picked.")
    for said, found in zip(
        words, decisions.decide_many(caller=request.caller, words=words), strict=True
    ):
        if request.htmx and found.refusal:
            raise found.refusal
        _add_message(request, said, found)
    if not request.htmx:
        return redirect("confirmations")
    context: dict[str, Any] = {"decided_one": True}
    if before == request.POST.get("queue_mark"):  # or others have changed it: that is said
        context["queue_mark"] = _queue_fingerprint(decisions.pending(request.caller))
    return render(request, f"{QUEUE}#outcome", context)


def _ask_for_reasons(request: PageRequest, unsaid: list[UUID]) -> HttpResponseBase:
    """The page of the form again, with all that was typed, and an error at each call that would be
    rejected without a reason. Nothing was decided."""
    needed = Malformed("Give a reason for the rejection: the caller gets it.", code="reason_needed")
    if request.htmx:
        raise needed
    refused = {"unsaid": unsaid, "refusal": needed}
    if request.POST.get("from") == "call":
        return _show_call(request, unsaid[0], needed.http_status, **refused)
    response = ApprovalListing(request).respond(**refused)
    response.status_code = needed.http_status
    return response


_VIEW_PERMISSIONS = ("view_confirmation", "decide_confirmation")


def _count_pending(request: HttpRequest) -> int | str:
    """Held calls of the user's organization; 0 for users who may not see them."""
    user = getattr(request, "user", None)
    if user is None or not any(user.has_perm(f"tools.{name}") for name in _VIEW_PERMISSIONS):
        return 0
    return count_at_most(
        Confirmation.objects.filter(
            organization_id=user.organization_id,
            status=ConfirmationStatus.PENDING,
            expires_at__gt=timezone.now(),
        )
    )


def _change_notice(request: PageRequest, rows: QuerySet[Confirmation]) -> HttpResponse:
    """A notice when the queue has changed since the page was loaded; else nothing."""
    if _queue_fingerprint(rows) == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render(request, f"{QUEUE}#fresh", {"changed": True})


def _queue_fingerprint(rows: QuerySet[Confirmation]) -> str:
    """Of a queue that has lost or gained a call it differs: it gains newer ones alone."""
    found = rows.order_by().aggregate(count=Count("pk"), newest=Max("created_at"))
    return hashlib.sha256(f"{found}".encode()).hexdigest()[:16]


def _approval_cards(request: PageRequest, rows: list[Confirmation]) -> list[ApprovalCard]:
    compared = compare_calls(request.caller, rows)
    return [_approval_card(request, row, *compared[row.pk]) for row in rows]


def _approval_card(
    request: PageRequest,
    confirmation: Confirmation,
    read: LastRead | None,
    earlier: EarlierCall | None,
) -> ApprovalCard:
    execution = confirmation.execution
    text = pretty(execution.parameters)
    arguments = visible_pieces(text)
    left = confirmation.expires_at - timezone.now()
    agent = execution.agent
    return ApprovalCard(
        confirmation=confirmation,
        who=agent.slug if agent else execution.user.username,
        kind="agent" if agent else "person",
        made_by=impersonator_name(execution),
        arguments=arguments,
        length=len(text),
        hidden=sum(bool(piece.name) for piece in arguments),
        mixed=mixed_words(text),
        cost=money(execution.cost),
        approvals=sum(word.approved for word in confirmation.decisions.all()),
        obstacle=_obstacle(request, confirmation),
        issued=decisions.issued_its_token(request.caller, execution),
        minutes_left=left.total_seconds() / 60,
        preview=preview_sentences(execution.tool_version),
        last_read=read,
        earlier=earlier,
        reason=request.POST.get(f"reason.{confirmation.pk}", ""),
        picked=str(confirmation.pk) in request.POST.getlist("pick"),
    )


def _obstacle(request: PageRequest, confirmation: Confirmation) -> Forbidden | None:
    said = [word.user_id for word in confirmation.decisions.all()]
    if request.caller.user_id in said:
        return Forbidden("You have agreed; the call waits for another person.")
    return decisions.obstacle(request.caller, confirmation)


def _read_decisions(request: PageRequest) -> list[Word]:
    given, displayed_s = request.POST, _displayed_s(request)
    if chosen := given.get("one"):
        verb, _, identifier = chosen.partition(" ")
        picked = [identifier]
    else:
        verb, picked = given.get("many", ""), given.getlist("pick")
    if verb not in _VERBS:
        raise Malformed("The form names nothing to do. Reload the page and try again.")
    if len(picked) > MOST_AT_ONCE:
        raise Malformed(f"At most {MOST_AT_ONCE} calls are decided at once.")
    return [_read_decision(given, item, _VERBS[verb], displayed_s) for item in picked]


def _read_decision(given: QueryDict, item: str, approve: bool, displayed_s: float | None) -> Word:
    try:
        identifier = UUID(item)
    except ValueError:
        raise Malformed("The form names no call. Reload the page and try again.") from None
    reason = given.get(f"reason.{item}", "").strip() or given.get("reason", "").strip()
    return Word(
        identifier,
        given.get(f"hash.{item}", ""),
        approve,
        reason=reason,
        displayed_s=displayed_s,
    )


def _add_message(request: PageRequest, said: Word, found: Decided) -> None:
    if found.confirmation is None:
        reason = found.refusal.message if found.refusal else ""
        messages.error(request, f"Not decided: {reason}")
        return
    tool = found.confirmation.execution.tool_name
    if not said.approve:
        messages.success(request, f"{tool} was refused.")
    elif found.confirmation.status == ConfirmationStatus.PENDING:
        messages.success(request, f"You agreed to {tool}; it waits for another person.")
    else:
        messages.success(request, f"{tool} may run.")


def _display_stamp(request: PageRequest) -> str:
    """The signed time of this page, to record how long an approver read it."""
    return signing.dumps({"at": time.time(), "for": str(request.user.pk)}, salt=_SALT)


def _displayed_s(request: PageRequest) -> float | None:
    try:
        stamp = signing.loads(request.POST.get("shown_at", ""), salt=_SALT)
    except signing.BadSignature:
        return None
    return round(time.time() - stamp["at"], 1) if stamp["for"] == str(request.user.pk) else None
