"""`/api/v1/messages`: sent messages and their delivery. `/api/v1/inbox`: the caller's own."""

from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.common.filters import PERIOD, filtered, in_period
from tools.api.messages.channel_bodies import (
    InboxItemAnswer,
    InboxPage,
    MessageDetailAnswer,
    MessagePage,
)
from tools.definitions.callers import Scope
from tools.errors import NotFound
from tools.messaging import outbox
from tools.models import InboxItem, Message, MessageState
from tools.shapes import inbox_shape, message_shape
from tools.web.pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

FILTERS = [
    OpenApiParameter("state", str, enum=MessageState.values),
    OpenApiParameter("channel", str, description="A channel's name."),
    *PERIOD,
]
_COLUMNS = {"state": "state", "channel": "channel_name", **in_period("created_at")}
_INBOX = newest_first("received_at")
UNREAD = OpenApiParameter("unread", bool, description="Whether it was not read yet.")


class MessageList(CallerView):
    @extend_schema(
        operation_id="list_messages",
        parameters=[*FILTERS, *paging_parameters(newest_first())],
        responses=MessagePage,
    )
    def get(self, request: Request) -> Response:
        """The newest first."""
        self.require("view_message")
        found = Message.objects.filter(organization_id=self.caller.organization_id)
        found = filtered(found, self.query, _COLUMNS)
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
        return outbox.items_of(self.caller.user_id, self.caller.organization_id)


class InboxList(InboxView):
    @extend_schema(
        operation_id="list_inbox",
        parameters=[UNREAD, *PERIOD, *paging_parameters(_INBOX)],
        responses=InboxPage,
    )
    def get(self, request: Request) -> Response:
        """The caller's own, the newest first."""
        columns = {"unread": "read_at__isnull", **in_period("message__created_at")}
        found = filtered(self.items(), self.query, columns)
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
