"""`/api/v1/states/graph` and `/api/v1/tools/lint`: the state graph of a set of groups, and lint
findings."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts.user_permissions import may
from tools.api.catalog.tools import DefinitionBody
from tools.api.common.idempotency import Keying
from tools.api.common.views import CallerView
from tools.catalog.snapshot import Snapshot
from tools.catalog.workflow.lint import WorkflowSeverity
from tools.catalog.workflow.workflow import EVERY_GROUP, START, graph
from tools.definitions.callers import Scope
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.strict_json import MAX_VALUES
from tools.errors import Malformed
from tools.insight.recommendations import recommend
from tools.insight.tool_reach import reach_of
from tools.insight.workflow_findings import findings, findings_of_proposal
from tools.policy.questions import EffectiveRequest
from tools.web.reauthentication import Proof, by_method

MOST_FINDINGS = 500
GROUPS = [
    OpenApiParameter(
        "group",
        OpenApiTypes.STR,
        many=True,
        description="Whose tools are looked at; absent: every group.",
    )
]
LONGEST = 4_000
ASKED = [
    OpenApiParameter(
        "question", OpenApiTypes.STR, required=True, description="What is to be done, in words."
    ),
    OpenApiParameter(
        "state", OpenApiTypes.STR, description="Only tools available in it; absent: in any."
    ),
]


class FindingAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=[str(one) for one in WorkflowSeverity])
    message = serializers.CharField()
    hint = serializers.CharField()
    tool = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    tools = serializers.ListField(child=serializers.CharField())
    states = serializers.ListField(child=serializers.CharField())


class LintAnswer(serializers.Serializer[Any]):
    results = FindingAnswer(many=True)
    left_off = serializers.IntegerField(help_text="Findings beyond those shown.")
    warnings = serializers.ListField(child=serializers.CharField())


class ProposalAnswer(serializers.Serializer[Any]):
    findings = FindingAnswer(many=True)


class StateAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    start = serializers.BooleanField()
    tools = serializers.ListField(child=serializers.CharField())
    tool_count = serializers.IntegerField()
    reachable = serializers.BooleanField()
    dead_end = serializers.ChoiceField(
        choices=["no_tool", "no_way_on"],
        allow_null=True,
        help_text="no_tool: none is available. no_way_on: those available stay in the state.",
    )


class EdgeAnswer(serializers.Serializer[Any]):
    to = serializers.CharField()
    tool = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        start = serializers.CharField(
            allow_null=True, help_text="null: from every state, for the tool is available in all."
        )
        return {"from": start, **super().get_fields()}


class GraphAnswer(serializers.Serializer[Any]):
    nodes = StateAnswer(many=True)
    edges = EdgeAnswer(many=True)
    left_off = serializers.IntegerField(help_text="States and edges beyond those shown.")
    warnings = serializers.ListField(child=serializers.CharField())


class FittingAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    score = serializers.FloatField()
    proven = serializers.BooleanField(help_text="Used with success in the last 30 days.")


class RecommendationAnswer(serializers.Serializer[Any]):
    group = serializers.CharField()
    score = serializers.FloatField(help_text="Beside the best group, whose score is 1.")
    tools = FittingAnswer(many=True)
    reason = serializers.CharField()


class RecommendationsAnswer(serializers.Serializer[Any]):
    results = RecommendationAnswer(many=True)


class WorkflowView(CallerView):
    """For people who may view tools: it speaks of all tools, granted or not."""

    def requested_groups(self) -> frozenset[str]:
        """Without the parameter, every group: the view inspects the catalog and no caller's
        request."""
        query = self.request.query_params
        if "group" not in query:
            return EVERY_GROUP
        return frozenset(name for name in query.getlist("group") if name)

    def unknown_group_warnings(self, groups: frozenset[str], snapshot: Snapshot) -> list[str]:
        names = sorted(name for name in groups - {WILDCARD} if not snapshot.knows_group(name))
        return [f"There is no group {name}; it was ignored." for name in names]


class StateGraph(WorkflowView):
    @extend_schema(
        operation_id="get_state_graph",
        parameters=GROUPS,
        responses=GraphAnswer,
    )
    def get(self, request: Request) -> Response:
        """The states, what is available in them, and which tools lead from one to another. Needs
        the scope `read`. A caller without the permission `view_tool`, such as an agent, reads the
        graph of the tools that it was granted."""
        groups, snapshot = self.requested_groups(), self.snapshot
        if may(self.caller, "view_tool"):
            shown, warnings = graph(snapshot, groups), self.unknown_group_warnings(groups, snapshot)
        else:
            asked = EffectiveRequest(
                self.caller.granted_groups if groups == EVERY_GROUP else groups, START
            )
            warnings = self.check_requested_groups(asked, snapshot)
            shown = graph(snapshot, groups, reach_of(snapshot).reachable_names(self.caller))
        return Response(shown.as_dict() | {"warnings": warnings})


class ToolLint(WorkflowView):
    keying = Keying.IGNORED
    scope = Scope.READ
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(operation_id="lint_tools", parameters=GROUPS, responses=LintAnswer)
    def get(self, request: Request) -> Response:
        """Errors and oddities of groups and states, the most serious first."""
        self.require("view_tool")
        groups, snapshot = self.requested_groups(), self.snapshot
        found = findings(snapshot, groups)
        return Response(
            {
                "results": [finding.as_dict() for finding in found[:MOST_FINDINGS]],
                "left_off": max(0, len(found) - MOST_FINDINGS),
                "warnings": self.unknown_group_warnings(groups, snapshot),
            }
        )

    @extend_schema(
        operation_id="lint_definition",
        request=DefinitionBody,
        responses=ProposalAnswer,
    )
    def post(self, request: Request) -> Response:
        """Findings for a definition as if it were saved. Nothing is saved."""
        self.require("view_tool")
        found = findings_of_proposal(self.snapshot, self.json_body())
        return Response({"findings": [finding.as_dict() for finding in found]})


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
        found = recommend(self.caller, question, self.requested_state(), self.snapshot)
        return Response({"results": [asdict(one) | {"reason": one.reason} for one in found]})
