"""`/api/v1/usage`: calls and cost by agent, tool, group and day."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.pagination import AGENT, PERIOD, SESSION, Page, filter_rows
from tools.api.common.views import CallerView
from tools.authorization import request_records
from tools.errors import Malformed
from tools.shapes.reports import usage_shape
from tools.shapes.scalars import moment
from tools.usage.usage_reports import DIMENSIONS, UsageQuery, usage_report
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters

_ORDERS = newest_first("at")


class UsageRow(serializers.Serializer[Any]):
    """Of day, agent, tool and group those that were asked for."""

    day = serializers.DateField(required=False)
    agent = serializers.CharField(required=False, allow_null=True)
    tool = serializers.CharField(required=False)
    group = serializers.CharField(required=False, allow_null=True)
    calls = serializers.IntegerField(help_text="All that were asked for.")
    failures = serializers.IntegerField()
    denials = serializers.IntegerField(help_text="Those of them that a gate refused.")
    cached = serializers.IntegerField()
    cost = serializers.CharField()


class UsageAnswer(serializers.Serializer[Any]):
    since = serializers.DateField()
    until = serializers.DateField()
    time_zone = serializers.CharField(help_text="Of the organization: its days are meant.")
    by = serializers.ListField(child=serializers.CharField())
    results = UsageRow(many=True)
    truncated = serializers.BooleanField(help_text="There is more: ask for fewer days.")


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


class RequestRecordPage(Page):
    results = RequestRecordAnswer(many=True)


class UsageView(CallerView):
    @extend_schema(
        operation_id="get_usage",
        responses=UsageAnswer,
        parameters=[
            OpenApiParameter("agent", OpenApiTypes.STR),
            OpenApiParameter("tool", OpenApiTypes.STR),
            OpenApiParameter("group", OpenApiTypes.STR, description="As tools are in it now."),
            OpenApiParameter("since", OpenApiTypes.DATE, description="First day; 30 by default."),
            OpenApiParameter("until", OpenApiTypes.DATE, description="Last day; today by default."),
            OpenApiParameter(
                "by",
                OpenApiTypes.STR,
                description="Of agent, tool, group and day, with commas; day by default.",
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        """An agent's own; everybody's for people who may view executions."""
        query, snapshot = self.query, self.snapshot
        wanted = UsageQuery(
            by=_parse_dimensions(query.get("by", "day")),
            since=query.get("since"),
            until=query.get("until"),
            agent=query.get("agent"),
            tool=query.get("tool"),
            group=query.get("group"),
        )
        found = usage_report(self.caller, snapshot, wanted)
        return Response(usage_shape(found, wanted.by, snapshot.time_zone.key))


def _parse_dimensions(raw: str) -> list[str]:
    names = raw.split(",")
    if not set(names) <= set(DIMENSIONS):
        raise Malformed(f"by must be one or more of {', '.join(DIMENSIONS)}, with commas.")
    return [name for name in DIMENSIONS if name in names]


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
            since=self.query.get("since"),
            until=self.query.get("until"),
        )
        found = filter_rows(found, self.query, {"session": "session_id"})
        pages = CursorPages(_ORDERS)
        page = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(
            [_request_record_shape(one) for one in request_records.describe_records(page)]
        )


def _request_record_shape(record: request_records.RequestDetails) -> dict[str, Any]:
    row, lists = record.row, record.row.tool_filter
    return {
        "request_id": row.request_id,
        "kind": row.kind,
        "caller": f"{row.actor_kind}:{row.actor}",
        "requested_groups": row.requested_groups,
        "initial_state": row.initial_state,
        "state_transitions": record.transitions,
        "available_tools": lists.available_tools,
        "filtered_by_group": lists.filtered_by_group,
        "filtered_by_state": lists.filtered_by_state,
        "execution_time": None
        if record.duration_ms is None
        else f"{record.duration_ms / 1000:.3f}s",
        "session": row.session_id,
        "execution_id": row.execution_id,
        "at": moment(row.at),
    }
