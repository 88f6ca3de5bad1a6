"""`/api/v1/usage`: calls and cost by agent, tool, group and day."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.executions.usage_bodies import UsageAnswer
from tools.errors import Malformed
from tools.shapes import usage_shape
from tools.usage.usage_reports import DIMENSIONS, UsageQuery, usage


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
            by=_dimensions(query.get("by", "day")),
            since=query.get("since"),
            until=query.get("until"),
            agent=query.get("agent"),
            tool=query.get("tool"),
            group=query.get("group"),
        )
        found = usage(self.caller, snapshot, wanted)
        return Response(usage_shape(found, wanted.by, snapshot.time_zone.key))


def _dimensions(raw: str) -> list[str]:
    names = raw.split(",")
    if not set(names) <= set(DIMENSIONS):
        raise Malformed(f"by must be one or more of {', '.join(DIMENSIONS)}, with commas.")
    return [name for name in DIMENSIONS if name in names]
