"""`/api/v1/channels`: destinations of messages. Secrets are write-only."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common import streams
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.filters import filtered
from tools.api.common.idempotency import Keying
from tools.api.messages.channel_bodies import (
    BounceBody,
    ChannelTestBody,
    MessageAnswer,
    MessageChannelAnswer,
    MessageChannelBody,
    MessageChannelChange,
    MessageChannelPage,
    NewMessageChannelAnswer,
    SigningSecretAnswer,
)
from tools.definitions.callers import Scope
from tools.errors import Conflict, TooLarge
from tools.messaging import message_channels, outbox
from tools.messaging.outbox import NotWritten
from tools.models import MessageChannel
from tools.models.message import MessageKind
from tools.runners import messages
from tools.shapes import channel_shape, message_shape
from tools.web.pagination import CursorPages, by_name, paging_parameters
from tools.web.query_parameters import QueryView
from tools.web.reauthentication import Proof, by_method

FILTERS = [
    OpenApiParameter("kind", OpenApiTypes.STR, enum=MessageKind.values),
    OpenApiParameter("enabled", OpenApiTypes.BOOL),
]
CHANGED = {200: MessageChannelAnswer}
_MOST_BYTES = 16 * 1024


class ChannelView(ConditionalView):
    scope = Scope.CATALOG

    def representation(self, name: str) -> Representation:
        return _shown(self.row(name))

    def row(self, name: str) -> MessageChannel:
        return message_channels.find_channel(self.organization, name)


class ChannelList(ChannelView):
    secret = ("signing_key",)
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_channels",
        parameters=[*FILTERS, *paging_parameters(by_name())],
        responses=MessageChannelPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_messagechannel")
        rows = MessageChannel.objects.filter(organization_id=self.caller.organization_id)
        rows = filtered(rows, self.query, {"kind": "kind", "enabled": "enabled"})
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
            organization=self.organization, channel=self.given(), by=self.actor
        )
        headers = {"Location": f"/api/v1/channels/{row.name}"}
        return self.answer(_shown(row), status.HTTP_201_CREATED, headers, {"signing_key": key})


class ChannelDetail(ChannelView):
    proof = by_method(patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_channel", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_messagechannel")
        return self.answer(self.representation(name))

    @extend_schema(operation_id="change_channel", request=MessageChannelChange, responses=CHANGED)
    @conditional("change_messagechannel")
    def patch(self, request: Request, name: str) -> Response:
        """Missing fields are unchanged; the change applies to messages that are sent from now
        on."""
        row = self.row(name)
        changed = message_channels.change_channel(row=row, changes=self.given(), by=self.actor)
        return self.answer(_shown(changed))

    @extend_schema(operation_id="delete_channel", responses={204: None})
    @conditional("delete_messagechannel")
    def delete(self, request: Request, name: str) -> Response:
        """Messages that were sent through it are kept."""
        message_channels.delete_channel(row=self.row(name), by=self.actor)
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
        key = message_channels.replace_key(row=self.row(name), by=self.actor)
        headers = {"ETag": self.tag(self.representation(name))}
        return Response({"signing_key": key}, headers=headers)


class ChannelTest(ChannelView):
    answers_thing = False
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
        row = self.row(name)
        wanted = self.body(ChannelTestBody, optional=True)
        try:
            with streams.waiting(self.caller):
                message = messages.try_channel(channel=row, recipients=wanted["to"], by=self.actor)
        except NotWritten as refusal:
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
        channel = outbox.reporter(channel_id, signature, request.body)
        wanted = BounceBody(data=request.data)
        wanted.is_valid(raise_exception=True)
        outbox.note_bounce(channel=channel, **wanted.validated_data)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _shown(row: MessageChannel) -> Representation:
    return Representation(channel_shape(row), (row.sealed,))
