"""`/api/v1/channels`: destinations of messages. Secrets are write-only."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common import event_streams
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import PERIOD, Page, filter_rows, period_columns
from tools.api.common.serializer_fields import Strict, Text, text_list
from tools.api.common.views import CallerView
from tools.definitions.callers import Scope
from tools.errors import Conflict, NotFound, TooLarge
from tools.messaging import message_channels, outbox
from tools.messaging.outbox import MessageRefused
from tools.models import InboxItem, Message, MessageChannel, MessageKind, MessageState
from tools.runners import messages
from tools.shapes.messages import channel_shape, inbox_shape, message_shape
from tools.web.cursor_pagination import CursorPages, by_name, newest_first, paging_parameters
from tools.web.query_parameters import QueryView
from tools.web.reauthentication import Proof, by_method

_CHANNEL_FILTERS = [
    OpenApiParameter("kind", OpenApiTypes.STR, enum=MessageKind.values),
    OpenApiParameter("enabled", OpenApiTypes.BOOL),
]
_MOST_BYTES = 16 * 1024
_MESSAGE_FILTERS = [
    OpenApiParameter("state", str, enum=MessageState.values),
    OpenApiParameter("channel", str, description="A channel's name."),
    *PERIOD,
]
_MESSAGE_COLUMNS = {"state": "state", "channel": "channel_name", **period_columns("created_at")}
_INBOX = newest_first("received_at")
UNREAD = OpenApiParameter("unread", bool, description="Whether it was not read yet.")


class MessageChannelBody(serializers.Serializer[Any]):
    """Which fields there are depends on the kind; the catalog reads them."""

    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(choices=MessageKind.choices)
    enabled = serializers.BooleanField(required=False)
    recipients = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Exact addresses and @domains of e-mail, names of people of an inbox; none is "
        "nobody.",
    )
    subject_template = serializers.CharField(required=False)
    body_template = serializers.CharField(
        required=False, help_text="May name subject, body, data, sender, channel, recipients."
    )
    most_recipients = serializers.IntegerField(required=False)
    most_an_hour = serializers.IntegerField(required=False)
    host = serializers.CharField(required=False, help_text="Of e-mail.")
    port = serializers.IntegerField(required=False)
    security = serializers.CharField(required=False, help_text="tls, starttls or none.")
    username = serializers.CharField(required=False)
    password = serializers.CharField(required=False, help_text="Kept sealed, never shown again.")
    sender = serializers.CharField(required=False, help_text="The address mail comes from.")
    url = serializers.CharField(required=False, help_text="Of a webhook or a chat; kept sealed.")


class MessageChannelChange(MessageChannelBody):
    name = serializers.CharField(required=False)
    kind = serializers.ChoiceField(choices=MessageKind.choices, required=False)


class MessageChannelAnswer(MessageChannelBody):
    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class NewMessageChannelAnswer(MessageChannelAnswer):
    signing_key = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )


class MessageChannelPage(Page):
    results = MessageChannelAnswer(many=True)


class SigningSecretAnswer(serializers.Serializer[Any]):
    signing_key = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )


class ChannelTestBody(Strict):
    to = text_list(required=False, default=list)


class BounceBody(Strict):
    message_id = serializers.UUIDField(help_text="What stands in its Message-ID, or its delivery.")
    recipient = Text(max_length=254, required=False, default="")
    reason = Text(max_length=300, required=False, default="")


class MessageAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    channel = serializers.CharField()
    kind = serializers.ChoiceField(choices=MessageKind.choices)
    execution_id = serializers.UUIDField(allow_null=True)
    sender = serializers.CharField()
    recipients = serializers.ListField(child=serializers.CharField())
    subject = serializers.CharField()
    state = serializers.ChoiceField(choices=MessageState.choices)
    answer = serializers.CharField(help_text="What the provider said, or why nothing was sent.")
    refused = serializers.DictField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class MessageDetailAnswer(MessageAnswer):
    body = serializers.CharField()


class MessagePage(Page):
    results = MessageAnswer(many=True)


class InboxItemAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    channel = serializers.CharField()
    sender = serializers.CharField()
    subject = serializers.CharField()
    body = serializers.CharField()
    received_at = serializers.DateTimeField()
    read_at = serializers.DateTimeField(allow_null=True)


class InboxPage(Page):
    results = InboxItemAnswer(many=True)


CHANGED = {200: MessageChannelAnswer}


class ChannelView(ConditionalView):
    scope = Scope.CATALOG

    def representation(self, name: str) -> Representation:
        return _channel_representation(self.find_channel(name))

    def find_channel(self, name: str) -> MessageChannel:
        return message_channels.find_channel(self.organization, name)


class ChannelList(ChannelView):
    secret = ("signing_key",)
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_channels",
        parameters=[*_CHANNEL_FILTERS, *paging_parameters(by_name())],
        responses=MessageChannelPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_messagechannel")
        rows = MessageChannel.objects.filter(organization_id=self.caller.organization_id)
        rows = filter_rows(rows, self.query, {"kind": "kind", "enabled": "enabled"})
        pages = CursorPages(by_name())
        page: list[MessageChannel] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([channel_shape(row) for row in page])

    @extend_schema(
        operation_id="create_channel",
        request=MessageChannelBody,
        responses={201: NewMessageChannelAnswer},
    )
    def post(self, request: Request) -> Response:
        """The signing key is shown only in this response: webhooks are signed with it, and bounce
        reports must be."""
        self.require("add_messagechannel")
        row, key = message_channels.create_channel(
            organization=self.organization, channel=self.json_body(), by=self.actor
        )
        headers = {"Location": f"/api/v1/channels/{row.name}"}
        return self.resource_response(
            _channel_representation(row), status.HTTP_201_CREATED, headers, {"signing_key": key}
        )


class ChannelDetail(ChannelView):
    proof = by_method(patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_channel", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_messagechannel")
        return self.resource_response(self.representation(name))

    @extend_schema(operation_id="change_channel", request=MessageChannelChange, responses=CHANGED)
    @conditional("change_messagechannel")
    def patch(self, request: Request, name: str) -> Response:
        """Missing fields are unchanged; the change applies to messages that are sent from now
        on."""
        row = self.find_channel(name)
        changed = message_channels.change_channel(row=row, changes=self.json_body(), by=self.actor)
        return self.resource_response(_channel_representation(changed))

    @extend_schema(operation_id="delete_channel", responses={204: None})
    @conditional("delete_messagechannel")
    def delete(self, request: Request, name: str) -> Response:
        """Messages that were sent through it are kept."""
        message_channels.delete_channel(row=self.find_channel(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ChannelKey(ChannelView):
    secret = ("signing_key",)
    proof = by_method(post=Proof.NEEDED)
    bodiless = frozenset({"POST"})

    @extend_schema(
        operation_id="replace_channel_key",
        request=None,
        responses=SigningSecretAnswer,
    )
    @conditional("change_messagechannel")
    def post(self, request: Request, name: str) -> Response:
        """A new signing key, shown only in this response; the old one is invalid at once."""
        key = message_channels.replace_key(row=self.find_channel(name), by=self.actor)
        headers = {"ETag": self.entity_tag(self.representation(name))}
        return Response({"signing_key": key}, headers=headers)


class ChannelTest(ChannelView):
    answers_resource = False
    keying = Keying.IN_PROGRESS
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="try_channel",
        request=ChannelTestBody,
        responses=MessageAnswer,
    )
    @conditional("change_messagechannel", held=False)
    def post(self, request: Request, name: str) -> Response:
        """Send one test message; `state` is its delivery status."""
        row = self.find_channel(name)
        wanted = self.body(ChannelTestBody, optional=True)
        try:
            with event_streams.required_waiting_slot(self.caller):
                message = messages.try_channel(channel=row, recipients=wanted["to"], by=self.actor)
        except MessageRefused as refusal:
            raise Conflict(str(refusal), code=refusal.code.lower()) from None
        return Response(message_shape(message))


class ChannelBounces(QueryView):
    """For providers, who have no token: a report is signed with the channel's own key."""

    proof = by_method(post=Proof.NOT_NEEDED)

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @extend_schema(
        operation_id="report_bounce",
        request=BounceBody,
        responses={204: None},
        auth=[],
    )
    def post(self, request: Request, channel_id: Any) -> Response:
        """A message came back. Signed as webhooks are, in `Toolcrib-Signature`."""
        if int(request.META.get("CONTENT_LENGTH") or 0) > _MOST_BYTES:
            raise TooLarge("A report has at most 16 KiB.")
        signature = request.headers.get("Toolcrib-Signature", "")
        channel = outbox.authenticate_report(channel_id, signature, request.body)
        wanted = BounceBody(data=request.data)
        wanted.is_valid(raise_exception=True)
        outbox.record_bounce(channel=channel, **wanted.validated_data)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _channel_representation(row: MessageChannel) -> Representation:
    return Representation(channel_shape(row), (row.sealed,))


class MessageList(CallerView):
    @extend_schema(
        operation_id="list_messages",
        parameters=[*_MESSAGE_FILTERS, *paging_parameters(newest_first())],
        responses=MessagePage,
    )
    def get(self, request: Request) -> Response:
        """The newest first."""
        self.require("view_message")
        found = Message.objects.filter(organization_id=self.caller.organization_id)
        found = filter_rows(found, self.query, _MESSAGE_COLUMNS)
        pages = CursorPages()
        page: list[Message] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([message_shape(one) for one in page])


class MessageDetail(CallerView):
    @extend_schema(operation_id="get_message", responses=MessageDetailAnswer)
    def get(self, request: Request, message_id: UUID) -> Response:
        self.require("view_message")
        own = Message.objects.filter(organization_id=self.caller.organization_id)
        found = own.filter(pk=message_id).first()
        if found is None:
            raise NotFound("There is no such message.", code="message_not_found")
        return Response(message_shape(found) | {"body": found.body})


class InboxView(CallerView):
    scope = Scope.READ

    def items(self) -> QuerySet[InboxItem]:
        return outbox.inbox_items(self.caller.user_id, self.caller.organization_id)


class InboxList(InboxView):
    @extend_schema(
        operation_id="list_inbox",
        parameters=[UNREAD, *PERIOD, *paging_parameters(_INBOX)],
        responses=InboxPage,
    )
    def get(self, request: Request) -> Response:
        """The caller's own, the newest first."""
        columns = {"unread": "read_at__isnull", **period_columns("message__created_at")}
        found = filter_rows(self.items(), self.query, columns)
        pages = CursorPages(_INBOX)
        page: list[InboxItem] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([inbox_shape(one) for one in page])


class InboxRead(InboxView):
    proof = by_method(post=Proof.NOT_NEEDED)
    bodiless = frozenset({"POST"})

    @extend_schema(
        operation_id="read_inbox_item",
        request=None,
        responses=InboxItemAnswer,
    )
    def post(self, request: Request, item_id: UUID) -> Response:
        """Mark it as read; a second time changes nothing."""
        item = self.items().filter(pk=item_id).first()
        if item is None:
            raise NotFound("You have no such message.", code="message_not_found")
        outbox.mark_read(item)
        return Response(inbox_shape(item))
