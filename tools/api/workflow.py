"""`/api/v1/states/graph` and `/api/v1/tools/lint`: what a set of groups makes of states."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from audit.proof import Proof, by_method
from tools.api.base import CallerView
from tools.api.bodies import DefinitionBody
from tools.api.idempotency import Keying
from tools.api.workflow_bodies import GraphAnswer, LintAnswer, ProposalAnswer
from tools.catalog.registry import Snapshot
from tools.catalog.workflow import EVERY_GROUP, graph
from tools.definitions.callers import Scope
from tools.definitions.names import WILDCARD
from tools.definitions.strict_json import MAX_VALUES
from tools.policy.findings import findings, findings_of_proposal

MOST_FINDINGS = 500
GROUPS = [
    OpenApiParameter(
        "group",
        OpenApiTypes.STR,
        many=True,
        description="Whose tools are looked at; absent: every group.",
    )
]


class WorkflowView(CallerView):
    """For people who may view tools: it speaks of tools whoever was granted them."""

    def groups(self) -> frozenset[str]:
        """Absent is every group: nobody's request is looked at, but the catalog."""
        query = self.request.query_params
        if "group" not in query:
            return EVERY_GROUP
        return frozenset(name for name in query.getlist("group") if name)

    def unknown(self, groups: frozenset[str], snapshot: Snapshot) -> list[str]:
        names = sorted(name for name in groups - {WILDCARD} if not snapshot.knows_group(name))
        return [f"There is no group {name}; it was ignored." for name in names]


class StateGraph(WorkflowView):
    @extend_schema(
        operation_id="get_state_graph",
        parameters=GROUPS,
        responses=GraphAnswer,
    )
    def get(self, request: Request) -> Response:
        """The states, what is available in them, and which tools lead from one to another."""
        self.require("view_tool")
        groups, snapshot = self.groups(), self.snapshot
        shown = graph(snapshot, groups).as_dict()
        return Response(shown | {"warnings": self.unknown(groups, snapshot)})


class ToolLint(WorkflowView):
    keying = Keying.IGNORED
    scope = Scope.READ
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(operation_id="lint_tools", parameters=GROUPS, responses=LintAnswer)
    def get(self, request: Request) -> Response:
        """What is wrong or odd with groups and states, the gravest first."""
        self.require("view_tool")
        groups, snapshot = self.groups(), self.snapshot
        found = findings(snapshot, groups)
        return Response(
            {
                "results": [finding.as_dict() for finding in found[:MOST_FINDINGS]],
                "left_off": max(0, len(found) - MOST_FINDINGS),
                "warnings": self.unknown(groups, snapshot),
            }
        )

    @extend_schema(
        operation_id="lint_definition",
        request=DefinitionBody,
        responses=ProposalAnswer,
    )
    def post(self, request: Request) -> Response:
        """What would concern a definition if it were saved. Nothing is."""
        self.require("view_tool")
        found = findings_of_proposal(self.snapshot, self.given())
        return Response({"findings": [finding.as_dict() for finding in found]})
