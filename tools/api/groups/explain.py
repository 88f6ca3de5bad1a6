"""`/api/v1/tools/explain` and `/api/v1/tools/what-if`: explains access and previews changes."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import BY_NAME, page_of_tools
from tools.api.groups.explain_bodies import DifferenceAnswer, ExplanationPage, WhatIfBody
from tools.authorization.pins import snapshot_for
from tools.catalog.registry import CatalogTool
from tools.definitions.callers import Caller, Scope
from tools.definitions.values.strict_json import MAX_VALUES
from tools.execution import sessions
from tools.insight.explain import Explanation, pretended, subject_of
from tools.insight.whatif import what_if
from tools.policy.questions import EffectiveRequest
from tools.shapes import difference_shape, explained_shape, request_shape
from tools.web.pagination import PAGING_PARAMETERS
from tools.web.reauthentication import Proof, by_method

QUERY = [
    OpenApiParameter("agent", OpenApiTypes.STR, description="Whom it is about; for people."),
    OpenApiParameter("group", OpenApiTypes.STR, many=True, description="Requested groups."),
    OpenApiParameter("state", OpenApiTypes.STR, description="Current workflow state."),
    OpenApiParameter("session", OpenApiTypes.STR, description="A session of the caller."),
    OpenApiParameter("tool", OpenApiTypes.STR, many=True, description="Only these tools."),
    OpenApiParameter("q", OpenApiTypes.STR, description="Words in name, title or description."),
    OpenApiParameter("grant_group", OpenApiTypes.STR, many=True, description="Supposed grants."),
    OpenApiParameter("grant_tool", OpenApiTypes.STR, many=True, description="Supposed grants."),
    OpenApiParameter(
        "grant_permission", OpenApiTypes.STR, many=True, description="Supposed grants."
    ),
    OpenApiParameter("tier", OpenApiTypes.STR, description="A supposed tier."),
    BY_NAME,
    *PAGING_PARAMETERS,
]
SUPPOSED = {"grant_group", "grant_tool", "grant_permission", "tier"}


class ToolExplanation(CallerView):
    @extend_schema(
        operation_id="explain_tools",
        parameters=QUERY,
        responses=ExplanationPage,
    )
    def get(self, request: Request) -> Response:
        """Every tool the caller may know with every gate's answer, and what would change it."""
        explanation = self._explanation()
        if not explanation.everything:
            self.granted(explanation.asked, explanation.snapshot)
        page = page_of_tools(request, [t for t in explanation.tools if self._wanted(t)])
        explained = [explanation.of(tool) for tool in page["results"]]
        page["results"] = [explained_shape(one, explanation.snapshot) for one in explained]
        page |= {"request": request_shape(explanation), "warnings": explanation.warnings}
        return Response(page)

    def _explanation(self) -> Explanation:
        query = self.request.query_params
        about, everything = subject_of(self.caller, query.get("agent"))
        if SUPPOSED & query.keys():
            self.require("view_agent")
            self.require("view_tool")
        caller, snapshot = pretended(
            about,
            snapshot_for(about, query.get("session")),
            groups=query.getlist("grant_group"),
            tools=query.getlist("grant_tool"),
            permissions=query.getlist("grant_permission"),
            tier=query.get("tier"),
        )
        return Explanation(
            caller, self._asked_of(about), snapshot, everything, account=about.user_id
        )

    def _asked_of(self, about: Caller) -> EffectiveRequest:
        """Uses the current state of another's session; nothing is counted."""
        session = self.request.query_params.get("session")
        if session is None or about is self.caller:
            return self.asked()
        found = sessions.own(about, session)
        return EffectiveRequest(frozenset(found.groups), found.state)

    def _wanted(self, tool: CatalogTool) -> bool:
        query, raw = self.request.query_params, tool.definition.raw
        text = f"{tool.name} {raw['title'] or ''} {raw['description']}".lower()
        return (not (names := query.getlist("tool")) or tool.name in names) and all(
            word in text for word in query.get("q", "").lower().split()
        )


class WhatIf(CallerView):
    keying = Keying.IGNORED
    scope = Scope.READ
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(
        operation_id="tool_what_if",
        request=WhatIfBody,
        responses={200: DifferenceAnswer},
    )
    def post(self, request: Request) -> Response:
        """Preview the effects of a change before it is made. Nothing is written."""
        wanted: dict[str, Any] = self.body(WhatIfBody)
        difference = what_if(
            viewer=self.caller,
            change=wanted["change"],
            snapshot=self.snapshot,
            since=wanted.get("since"),
        )
        return Response(difference_shape(difference))
