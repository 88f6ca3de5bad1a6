"""`/messages/`, `/channels/` and `/inbox/`: sent messages, message channels, the user's inbox."""

from uuid import UUID

from django.contrib import messages as notices
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.errors import NotFound
from tools.messaging.message_channels import find_channel, written
from tools.messaging.outbox import NotWritten, items_of, mark_read
from tools.models import InboxItem, Message, MessageChannel, MessageState
from tools.runners.messages import try_channel
from tools.ui.access import PageRequest, page
from tools.ui.display import pieces
from tools.ui.inputs import plain
from tools.web.proof import Proof, proof

PAGE_SIZE = 25
# A state with the color of the corresponding status of calls.
TONES = {
    MessageState.SENT: "active",
    MessageState.QUEUED: "disabled",
    MessageState.UNKNOWN: "rejected",
    MessageState.FAILED: "rejected",
    MessageState.BOUNCED: "rejected",
}


@require_safe
@page
def message_list(request: PageRequest) -> HttpResponseBase:
    """Messages, the newest first, optionally of one state."""
    require(request.caller, "view_message")
    rows = Message.objects.filter(organization_id=request.caller.organization_id)
    state = request.GET.get("state", "")
    if state in MessageState.values:
        rows = rows.filter(state=state)
    found = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": found,
        "rows": [(one, TONES[MessageState(one.state)], pieces(one.subject)) for one in found],
        "state": state,
        "states": MessageState.values,
    }
    return render(request, "messages/messages.html", context)


@require_safe
@page
def channel_list(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "view_messagechannel")
    rows = MessageChannel.objects.filter(organization_id=request.caller.organization_id)
    context = {
        "channels": [(row, written(row)) for row in rows],
        "tries": may(request.caller, "change_messagechannel"),
    }
    return render(request, "messages/channels.html", context)


@proof(Proof.NOT_NEEDED)
@require_http_methods(["POST"])
@page
def test_channel(request: PageRequest, name: str) -> HttpResponseBase:
    """Send a test message over the channel to the addressees of the form."""
    require(request.caller, "change_messagechannel")
    row = find_channel(request.user.organization, name)
    recipients = plain(request.POST).get("to", "").replace(",", " ").split()
    try:
        sent = try_channel(channel=row, recipients=recipients, by=actor_of(request.caller))
    except NotWritten as refusal:
        notices.error(request, str(refusal))
        return redirect("channel-edit", name=row.name)
    tell = notices.success if sent.state == MessageState.SENT else notices.error
    tell(request, f"The test on {row.name} is {sent.state}. {sent.answer}")
    return redirect("channel-edit", name=row.name)


@require_safe
@page
def inbox(request: PageRequest) -> HttpResponseBase:
    """The user's messages, the newest first."""
    found = Paginator(_own(request), PAGE_SIZE).get_page(request.GET.get("page"))
    items = [(one, pieces(one.message.subject), pieces(one.message.body)) for one in found]
    return render(request, "messages/inbox.html", {"page": found, "items": items})


@proof(Proof.NOT_NEEDED)
@require_http_methods(["POST"])
@page
def read(request: PageRequest, item_id: UUID) -> HttpResponseBase:
    item = _own(request).filter(pk=item_id).first()
    if item is None:
        raise NotFound("You have no such message.", code="message_not_found")
    mark_read(item)
    return redirect("inbox")


def _own(request: PageRequest) -> QuerySet[InboxItem]:
    return items_of(request.caller.user_id, request.caller.organization_id)
