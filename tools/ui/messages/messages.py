"""`/messages/`, `/channels/` and `/inbox/`: sent messages, message channels with their forms, and
the user's inbox."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages as notices
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.errors import NotFound
from tools.messaging import message_channels
from tools.messaging.message_channels import (
    CONNECTION_SECURITIES,
    channel_fields,
    channel_secrets,
    find_channel,
)
from tools.messaging.outbox import MessageRefused, inbox_items, mark_read
from tools.models import InboxItem, Message, MessageChannel, MessageKind, MessageState
from tools.runners.messages import try_channel
from tools.ui.display import VisiblePiece, visible_pieces
from tools.web.form_fields import NamesField, NumberField, SecretField, choices
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, choice_field, text_field
from tools.web.one_time import redirect_with_secrets, take_secrets
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

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
NAME_HELP = "Letters, digits, '_', '.' and '-'."
_RECIPIENT_HELP = {
    MessageKind.EMAIL: "Addresses, or domains such as @example.com; nobody where it is empty.",
    MessageKind.INBOX: "Names of people; nobody where it is empty.",
}
_MAIL = frozenset({"host", "port", "security", "username", "password", "sender"})
_ADDRESSED = frozenset({"recipients", "most_recipients"})
_FIELDS_OF_OTHERS = {
    MessageKind.EMAIL: frozenset({"url"}),
    MessageKind.INBOX: _MAIL | {"url"},
    MessageKind.WEBHOOK: _MAIL | _ADDRESSED,
    MessageKind.SLACK: _MAIL | _ADDRESSED,
}


@dataclass(frozen=True)
class MessageRow:
    message: Message
    tone: str
    subject: list[VisiblePiece]


@dataclass(frozen=True)
class InboxRow:
    item: InboxItem
    subject: list[VisiblePiece]
    body: list[VisiblePiece]


@dataclass(frozen=True)
class ChannelRow:
    channel: MessageChannel
    fields: dict[str, Any]


class MessageFilters(Filters):
    state = choice_field("State", MessageState.choices)
    channel = text_field("Channel")


class MessageListing(Listing):
    """Messages, the newest first."""

    view, template, noun, filters = "messages", "messages/messages.html", "message", MessageFilters
    order = "-when"
    columns = [
        Column("message", "Message", lambda row: row.message.subject),
        Column("answer", "", lambda row: row.message.answer),
        Column("state", "State", lambda row: row.message.state, sort="state"),
        Column("channel", "Channel", lambda row: row.message.channel_name, sort="channel_name"),
        Column("kind", "", lambda row: row.message.kind),
        Column("to", "To", lambda row: row.message.recipients),
        Column("when", "When", lambda row: row.message.created_at, sort="pk", css="number"),
    ]

    def rows(self) -> QuerySet[Message]:
        rows = Message.objects.filter(organization_id=self.caller.organization_id)
        if state := self.values.get("state"):
            rows = rows.filter(state=state)
        if channel := self.values.get("channel"):
            rows = rows.filter(channel_name=channel)
        return rows.defer("body")

    def prepare(self, rows: list[Message]) -> list[MessageRow]:
        return [
            MessageRow(one, STATE_TONES[MessageState(one.state)], visible_pieces(one.subject))
            for one in rows
        ]


class ChannelListing(Listing):
    view, template, noun = "channels", "messages/channels.html", "channel"
    order, place = "channel", "name"
    columns = [
        Column("channel", "Channel", lambda row: row.channel.name, sort="name"),
        Column("kind", "", lambda row: row.channel.kind),
        Column("state", "State", lambda row: "on" if row.channel.enabled else "off"),
        Column("where", "Where to", lambda row: row.fields.get("url") or row.fields.get("host")),
        Column("recipients", "Allowed recipients", lambda row: row.channel.recipients),
        Column("an_hour", "An hour", lambda row: row.channel.most_an_hour, css="number"),
    ]

    def rows(self) -> QuerySet[MessageChannel]:
        return MessageChannel.objects.filter(organization_id=self.caller.organization_id)

    def prepare(self, rows: list[MessageChannel]) -> list[ChannelRow]:
        return [ChannelRow(row, channel_fields(row)) for row in rows]

    def context(self) -> dict[str, Any]:
        return {"tries": may(self.caller, "change_messagechannel")}


class InboxListing(Listing):
    """The user's messages, the newest first."""

    view, template, noun, order = "inbox", "messages/inbox.html", "message", "-when"
    columns = [
        Column("message", "Message", lambda row: row.item.message.subject),
        Column("text", "", lambda row: row.item.message.body),
        Column("from", "From", lambda row: row.item.message.sender),
        Column("when", "When", lambda row: row.item.message.created_at, sort="pk", css="number"),
        Column("read", "State", lambda row: row.item.read_at),
    ]

    def rows(self) -> QuerySet[InboxItem]:
        return _inbox_items(self.request)

    def prepare(self, rows: list[InboxItem]) -> list[InboxRow]:
        return [
            InboxRow(one, visible_pieces(one.message.subject), visible_pieces(one.message.body))
            for one in rows
        ]


@page("view_message")
def message_list(request: PageRequest) -> HttpResponseBase:
    return MessageListing(request).respond()


@page("view_messagechannel")
def channel_list(request: PageRequest) -> HttpResponseBase:
    return ChannelListing(request).respond()


@page()
def inbox_page(request: PageRequest) -> HttpResponseBase:
    return InboxListing(request).respond()


@action_page(Proof.NOT_NEEDED, "change_messagechannel")
def test_channel(request: PageRequest, name: str) -> HttpResponseBase:
    """Send a test message over the channel to the addressees of the form."""
    row = find_channel(request.user.organization, name)
    recipients = request.POST.get("to", "").replace(",", " ").split()
    try:
        sent = try_channel(channel=row, recipients=recipients, by=actor_of(request.caller))
    except MessageRefused as refusal:
        notices.error(request, str(refusal))
        return redirect("channel-edit", name=row.name)
    tell = notices.success if sent.state == MessageState.SENT else notices.error
    tell(request, f"The test on {row.name} is {sent.state}. {sent.answer}")
    return redirect("channel-edit", name=row.name)


@action_page(Proof.NOT_NEEDED)
def mark_item_read(request: PageRequest, item_id: UUID) -> HttpResponseBase:
    item = _inbox_items(request).filter(pk=item_id).first()
    if item is None:
        raise NotFound("You have no such message.", code="message_not_found")
    mark_read(item)
    return redirect("inbox")


class ChannelForm(ActionForm):
    """The fields depend on the kind; a new channel also has a name."""

    row: MessageChannel | None
    error_fields = {}
    name = forms.CharField(label="Name", max_length=63, help_text=NAME_HELP)
    host = forms.CharField(label="Mail server", max_length=253)
    port = NumberField(
        label="Port", required=False, help_text="465 for tls, 587 for starttls, where it is empty."
    )
    security = forms.ChoiceField(
        label="Security",
        choices=choices(CONNECTION_SECURITIES),
        initial="starttls",
        help_text="none only into networks that the operator opened.",
    )
    username = forms.CharField(label="User name", required=False, max_length=200)
    password = SecretField(label="Password", required=False)
    sender = forms.CharField(
        label="Sender", max_length=320, help_text="The address that mail comes from."
    )
    url = SecretField(label="Address")
    recipients = NamesField(label="Allowed recipients", widget=forms.Textarea(attrs={"rows": 3}))
    most_recipients = NumberField(label="Recipients of a message at most", initial=10)
    most_an_hour = NumberField(label="Messages an hour at most", initial=60)
    subject_template = forms.CharField(
        label="Subject",
        initial="{{ subject }}",
        required=False,
        help_text="A template; may name subject, body, data, sender, channel, recipients.",
    )
    body_template = forms.CharField(
        label="Text",
        widget=forms.Textarea(attrs={"rows": 3}),
        initial="{{ body }}",
        required=False,
        help_text="The same.",
    )
    enabled = forms.BooleanField(label="It is on", initial=True, required=False)

    def __init__(
        self, request: PageRequest, kind: MessageKind, row: MessageChannel | None = None
    ) -> None:
        self.kind = kind
        super().__init__(request, row)

    def build(self) -> None:
        left_out = _FIELDS_OF_OTHERS[self.kind] | (frozenset() if self.is_new else {"name"})
        for name in left_out:
            del self.fields[name]
        if "recipients" in self.fields:
            self.fields["recipients"].help_text = _RECIPIENT_HELP[self.kind]
        for name in ("most_recipients", "most_an_hour"):  # empty is the default
            if name in self.fields:
                self.fields[name].required = not self.is_new
        kept = "" if self.is_new else " Left empty, the stored one stays."
        if "password" in self.fields:
            self.fields["password"].help_text = f"Stored encrypted, and never shown again.{kept}"
        if "url" in self.fields:
            self.fields["url"].required = self.is_new
            self.fields["url"].help_text = f"Stored encrypted, and never shown whole again.{kept}"

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        values = channel_fields(self.row) | channel_secrets(self.row)
        return {name: values.get(name, "") for name in self.fields}

    def act(self, changes: dict[str, Any]) -> Any:
        by = actor_of(self.request.caller)
        by_default = {"port"} if self.row else {*self.fields}
        given = {
            name: value for name, value in changes.items() if value != "" or name not in by_default
        }
        if self.row is not None:
            return message_channels.change_channel(row=self.row, changes=given, by=by)
        return message_channels.create_channel(
            organization=self.request.user.organization,
            channel=given | {"kind": self.kind},
            by=by,
        )


@form_page(Proof.NEEDED, "add_messagechannel")
def write_channel(request: PageRequest) -> HttpResponseBase:
    """Create a channel of the kind in the URL. Its key is shown once; an inbox has none."""
    kind = _parse_kind(request.GET.get("kind", ""))
    form = ChannelForm(request, kind)
    if not form.save():
        return form.show(FORM_TEMPLATE, {"kind": kind, "kinds": MessageKind.values})
    row, key = form.result
    if kind == MessageKind.INBOX:
        return form.redirect(f"{row.name} is created.", "channels")
    return redirect_with_secrets(request, {"key": key}, "channel-key", name=row.name)


@form_page(Proof.NEEDED, "change_messagechannel")
def change_channel(request: PageRequest, name: str) -> HttpResponseBase:
    """Change a channel. Empty secret fields keep their value."""
    row = find_channel(request.user.organization, name)
    form = ChannelForm(request, MessageKind(row.kind), row)
    if not form.save():
        context = {"row": row, "kind": row.kind, "tests_to": row.kind in _RECIPIENT_HELP}
        return form.show(FORM_TEMPLATE, context)
    return form.redirect(f"{row.name} is changed.", "channels")


@form_page(Proof.NEEDED, "change_messagechannel")
def channel_key(request: PageRequest, name: str) -> HttpResponseBase:
    """Replace the signing key by a POST; the page that follows shows it once."""
    row = find_channel(request.user.organization, name)
    if request.method == "POST":
        key = message_channels.replace_key(row=row, by=actor_of(request.caller))
        return redirect_with_secrets(request, {"key": key}, "channel-key", name=row.name)
    return render(request, KEY_TEMPLATE, {"row": row, **take_secrets(request)})


@form_page(Proof.NEEDED, "delete_messagechannel")
def remove_channel(request: PageRequest, name: str) -> HttpResponseBase:
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
