"""`/api/v1/groups/recommendations`: recommends groups for a question."""

from dataclasses import asdict

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.groups.workflow_bodies import RecommendationsAnswer
from tools.errors import Malformed
from tools.insight.recommendations import recommend

LONGEST = 4_000
ASKED = [
    OpenApiParameter(
        "question", OpenApiTypes.STR, required=True, description="What is to be done, in words."
    ),
    OpenApiParameter(
        "state", OpenApiTypes.STR, description="Only tools available in it; absent: in any."
    ),
]


class GroupRecommendations(CallerView):
    @extend_schema(
        operation_id="recommend_groups",
        parameters=ASKED,
        responses=RecommendationsAnswer,
    )
    def get(self, request: Request) -> Response:
        """Groups the caller may request, the one that fits best first, and why."""
        query = request.query_params
        question = query.get("question", "").strip()
        if not 0 < len(question) <= LONGEST:
            raise Malformed(f"question must be a text of 1 to {LONGEST} characters.")
        found = recommend(self.caller, question, self.named_state(), self.snapshot)
        return Response({"results": [asdict(one) | {"reason": one.reason} for one in found]})
