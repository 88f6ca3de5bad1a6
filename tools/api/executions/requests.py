"""`/api/v1/requests`: records of which groups and tools a request asked for and got.

Tool groups specification, 8.2.
"""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.common.filters import AGENT, PERIOD, SESSION, filtered, in_period
from tools.authorization import request_records
from tools.shapes import moment
from tools.web.pagination import CursorPages, PageReference, newest_first, paging_parameters

_ORDERS = newest_first("at")


class RequestRecordAnswer(serializers.Serializer[Any]):
    request_id = serializers.CharField()
    kind = serializers.ChoiceField(choices=["list", "execute", "agent"])
    caller = serializers.CharField()
    requested_groups = serializers.ListField(child=serializers.CharField())
    initial_state = serializers.CharField()
    state_transitions = serializers.ListField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="tool, from, to and timestamp of each.",
    )
    available_tools = serializers.ListField(child=serializers.CharField())
    filtered_by_group = serializers.ListField(child=serializers.CharField())
    filtered_by_state = serializers.ListField(child=serializers.CharField())
    execution_time = serializers.CharField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    execution_id = serializers.UUIDField(allow_null=True)
    at = serializers.DateTimeField()


class RequestRecordPage(serializers.Serializer[Any]):
    results = RequestRecordAnswer(many=True)
    next = PageReference(allow_null=True)
    previous = PageReference(allow_null=True)


class RequestRecordList(CallerView):
    @extend_schema(
        operation_id="list_requests",
        responses=RequestRecordPage,
        parameters=[
            AGENT,
            OpenApiParameter("kind", OpenApiTypes.STR, enum=["list", "execute", "agent"]),
            OpenApiParameter("group", OpenApiTypes.STR),
            OpenApiParameter("state", OpenApiTypes.STR),
            SESSION,
            *PERIOD,
            *paging_parameters(_ORDERS),
        ],
    )
    def get(self, request: Request) -> Response:
        """The caller's requests, the newest first; a person's also others', where granted."""
        found = request_records.readable(
            self.caller,
            actor=self.query.get("agent"),
            kind=self.query.get("kind"),
            group=self.query.get("group"),
            state=self.query.get("state"),
        )
        found = filtered(found, self.query, {"session": "session_id", **in_period("at")})
        pages = CursorPages(_ORDERS)
        page = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([_shape(one) for one in request_records.told(page)])


def _shape(told: request_records.RequestDetails) -> dict[str, Any]:
    row, lists = told.row, told.row.tool_filter
    return {
        "request_id": row.request_id,
        "kind": row.kind,
        "caller": f"{row.actor_kind}:{row.actor}",
        "requested_groups": row.requested_groups,
        "initial_state": row.initial_state,
        "state_transitions": told.transitions,
        "available_tools": lists.available_tools,
        "filtered_by_group": lists.filtered_by_group,
        "filtered_by_state": lists.filtered_by_state,
        "execution_time": None if told.duration_ms is None else f"{told.duration_ms / 1000:.3f}s",
        "session": row.session_id,
        "execution_id": row.execution_id,
        "at": moment(row.at),
    }
