"""`/messages/`, `/channels/` and `/inbox/`: sent messages, message channels with their forms, and
the user's inbox."""

from typing import Any
from uuid import UUID

from django.contrib import messages as notices
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.sandbox.credentials import MASK
from tools.errors import NotFound, ToolcribError
from tools.messaging import message_channels
from tools.messaging.message_channels import CONNECTION_SECURITIES, channel_fields, find_channel
from tools.messaging.outbox import MessageRefused, inbox_items, mark_read
from tools.models import InboxItem, Message, MessageChannel, MessageKind, MessageState
from tools.runners.messages import try_channel
from tools.ui.access import PageRequest, page
from tools.ui.display import visible_pieces
from tools.ui.inputs import FormInput, Widget, choices, form_values, place_errors, split_names
from tools.web.reauthentication import Proof, proof

PAGE_SIZE = 25
# A state with the color of the corresponding status of calls.
STATE_TONES = {
    MessageState.SENT: "active",
    MessageState.QUEUED: "disabled",
    MessageState.UNKNOWN: "rejected",
    MessageState.FAILED: "rejected",
    MessageState.BOUNCED: "rejected",
}
FORM_TEMPLATE, KEY_TEMPLATE, REMOVE_TEMPLATE = (
    "messages/channel_form.html",
    "messages/channel_key.html",
    "messages/channel_remove.html",
)
_NUMBER_FIELDS = frozenset({"port", "most_recipients", "most_an_hour"})
_SECRET_FIELDS = frozenset({"password", "url"})
_RECIPIENT_HELP = {
    MessageKind.EMAIL: "Addresses, or domains such as @example.com; nobody where it is empty.",
    MessageKind.INBOX: "Names of people; nobody where it is empty.",
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
        "rows": [
            (one, STATE_TONES[MessageState(one.state)], visible_pieces(one.subject))
            for one in found
        ],
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
        "channels": [(row, channel_fields(row)) for row in rows],
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
    recipients = form_values(request.POST).get("to", "").replace(",", " ").split()
    try:
        sent = try_channel(channel=row, recipients=recipients, by=actor_of(request.caller))
    except MessageRefused as refusal:
        notices.error(request, str(refusal))
        return redirect("channel-edit", name=row.name)
    tell = notices.success if sent.state == MessageState.SENT else notices.error
    tell(request, f"The test on {row.name} is {sent.state}. {sent.answer}")
    return redirect("channel-edit", name=row.name)


@require_safe
@page
def inbox_page(request: PageRequest) -> HttpResponseBase:
    """The user's messages, the newest first."""
    found = Paginator(_inbox_items(request), PAGE_SIZE).get_page(request.GET.get("page"))
    items = [
        (one, visible_pieces(one.message.subject), visible_pieces(one.message.body))
        for one in found
    ]
    return render(request, "messages/inbox.html", {"page": found, "items": items})


@proof(Proof.NOT_NEEDED)
@require_http_methods(["POST"])
@page
def mark_item_read(request: PageRequest, item_id: UUID) -> HttpResponseBase:
    item = _inbox_items(request).filter(pk=item_id).first()
    if item is None:
        raise NotFound("You have no such message.", code="message_not_found")
    mark_read(item)
    return redirect("inbox")


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def write_channel(request: PageRequest) -> HttpResponseBase:
    """Create a channel of the kind in the URL. The key is shown once; an inbox has none."""
    require(request.caller, "add_messagechannel")
    kind = _parse_kind(request.GET.get("kind", ""))
    inputs = _channel_inputs(kind, None)
    if request.method != "POST":
        return _render_form(request, inputs, kind, None)
    try:
        said = _parse_inputs(inputs, request) | {"kind": kind}
        row, key = message_channels.create_channel(
            organization=request.user.organization, channel=said, by=actor_of(request.caller)
        )
    except ToolcribError as error:
        return _render_form(request, inputs, kind, None, error)
    if kind == MessageKind.INBOX:
        notices.success(request, f"{row.name} is made.")
        return redirect("channels")
    return render(request, KEY_TEMPLATE, {"row": row, "key": key, "made": True})


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_channel(request: PageRequest, name: str) -> HttpResponseBase:
    """Change a channel. Empty secret inputs keep their value."""
    require(request.caller, "change_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    kind = MessageKind(row.kind)
    inputs = _channel_inputs(kind, row)
    if request.method != "POST":
        return _render_form(request, inputs, kind, row)
    try:
        changes = _parse_inputs(inputs, request)
        message_channels.change_channel(row=row, changes=changes, by=actor_of(request.caller))
    except ToolcribError as error:
        return _render_form(request, inputs, kind, row, error)
    notices.success(request, f"{row.name} is changed.")
    return redirect("channels")


@proof(Proof.NEEDED)
@require_POST
@page
def replace_key(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "change_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    key = message_channels.replace_key(row=row, by=actor_of(request.caller))
    return render(request, KEY_TEMPLATE, {"row": row, "key": key, "made": False})


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def remove_channel(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "delete_messagechannel")
    row = message_channels.find_channel(request.user.organization, name)
    if request.method != "POST":
        return render(request, REMOVE_TEMPLATE, {"row": row})
    message_channels.delete_channel(row=row, by=actor_of(request.caller))
    notices.success(request, f"{row.name} is removed.")
    return redirect("channels")


def _inbox_items(request: PageRequest) -> QuerySet[InboxItem]:
    return inbox_items(request.caller.user_id, request.caller.organization_id)


def _parse_kind(text: str) -> MessageKind:
    return MessageKind(text) if text in MessageKind.values else MessageKind.EMAIL


def _channel_inputs(kind: MessageKind, row: MessageChannel | None) -> list[FormInput]:
    asked = [] if row else [
        FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'."),
    ]  # fmt: skip
    asked += _transport_inputs(kind, row)
    if kind in _RECIPIENT_HELP:
        asked.append(
            FormInput("recipients", "Allowed recipients", Widget.AREA, help=_RECIPIENT_HELP[kind])
        )
        asked.append(FormInput("most_recipients", "Recipients of a message at most", value="10"))
    asked += [
        FormInput("most_an_hour", "Messages an hour at most", value="60"),
        FormInput("subject_template", "Subject", value="{{ subject }}",
              help="A template; may name subject, body, data, sender, channel, recipients."),
        FormInput("body_template", "Text", Widget.AREA, value="{{ body }}", help="The same."),
        FormInput("enabled", "It is on", Widget.CHECK, value="yes"),
    ]  # fmt: skip
    if row is not None:
        _fill_inputs(asked, message_channels.channel_fields(row))
    return asked


def _transport_inputs(kind: MessageKind, row: MessageChannel | None) -> list[FormInput]:
    stays = "Left empty, what is kept stays." if row else ""
    if kind == MessageKind.INBOX:
        return []
    if kind != MessageKind.EMAIL:
        said = f"Kept sealed, and never shown whole again. {stays}".strip()
        return [FormInput("url", "Address", Widget.HIDDEN, required=row is None, help=said)]
    return [
        FormInput("host", "Mail server", required=True),
        FormInput("port", "Port", help="465 for tls, 587 for starttls, where it is empty."),
        FormInput("security", "Security", Widget.SELECT, options=choices(CONNECTION_SECURITIES),
              value="starttls", help="none only into networks that the operator opened."),
        FormInput("username", "User name"),
        FormInput("password", "Password", Widget.HIDDEN,
              help=f"Kept sealed, and never shown again. {stays}".strip()),
        FormInput("sender", "Sender", required=True, help="The address that mail comes from."),
    ]  # fmt: skip


def _fill_inputs(inputs: list[FormInput], said: dict[str, Any]) -> None:
    """Fill the inputs from a channel, without secrets."""
    for one in inputs:
        value = said.get(one.key, "")
        if one.key in _SECRET_FIELDS:
            one.value = ""
        elif one.widget == Widget.CHECK:
            one.value = "yes" if value else ""
        else:
            one.value = ", ".join(value) if isinstance(value, list) else str(value)


def _parse_inputs(inputs: list[FormInput], request: PageRequest) -> dict[str, Any]:
    """The submitted values in the API's format; they stay in the form, except secrets."""
    given = form_values(request.POST)
    said: dict[str, Any] = {}
    for one in inputs:
        typed = given.get(one.key, "").replace("\r\n", "\n")
        one.value = "" if one.key in _SECRET_FIELDS else typed
        if one.widget == Widget.CHECK:
            said[one.key] = bool(typed)
        elif one.key == "recipients":
            said[one.key] = split_names(typed.replace("\n", ","))
        elif one.key in _SECRET_FIELDS:
            said |= {one.key: typed} if typed and typed != MASK else {}
        elif one.key in _NUMBER_FIELDS:
            said |= {one.key: _parse_number(typed.strip())} if typed.strip() else {}
        else:
            said[one.key] = typed.strip()
    return said


def _parse_number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _render_form(
    request: PageRequest,
    inputs: list[FormInput],
    kind: MessageKind,
    row: MessageChannel | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flaws: list[dict[str, str]] = []
    if error is not None:
        found = error.field_errors()
        flaws = place_errors(
            [one | {"field": one["field"].partition("[")[0]} for one in found], inputs
        )
    context = {
        "inputs": inputs, "row": row, "kind": kind, "kinds": MessageKind.values,
        "flaws": flaws, "refused": error is not None, "tests_to": kind in _RECIPIENT_HELP,
    }  # fmt: skip
    return render(request, FORM_TEMPLATE, context, status=error.http_status if error else 200)
