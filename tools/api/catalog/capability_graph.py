"""`/api/v1/tools/graph` and `/api/v1/chains/proposals`: which tool's output fits which tool's
input."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.catalog.capability_bodies import ChainProposalsAnswer, ProposalsBody, ToolGraphAnswer
from tools.api.catalog.tools import LISTING, Listing
from tools.api.common.base import CallerView
from tools.api.common.idempotency import Keying
from tools.catalog.registry import CatalogTool
from tools.catalog.workflow.capabilities import graph_of, proposals
from tools.definitions.callers import Scope
from tools.definitions.capability.capability_search import PlanningTarget, given_ports, target_port
from tools.definitions.capability.graph import CapabilityEdge, CapabilityNode
from tools.definitions.capability.ports import normalize_key
from tools.definitions.capability.proposals import Proposal
from tools.definitions.chains.expressions import OUTPUT
from tools.policy import gates
from tools.policy.questions import EffectiveRequest
from tools.web.proof import Proof, by_method

MOST_EDGES = 1_000


class ToolGraph(Listing):
    @extend_schema(
        operation_id="get_capability_graph",
        parameters=LISTING,
        responses=ToolGraphAnswer,
    )
    def get(self, request: Request) -> Response:
        """A page of the tools that exist for this request, what each consumes and produces, and
        which of all of them go together with these."""
        tools, warnings = self.usable()
        page, graph = self.page(tools), graph_of(self.snapshot)
        shown: list[CatalogTool] = page.pop("results")
        names = [tool.name for tool in shown]
        edges, more = graph.edges(names, frozenset(tool.name for tool in tools), MOST_EDGES)
        return Response(
            {
                "nodes": [_node(tool, graph.node(tool.name)) for tool in shown],
                "edges": [_edge(edge) for edge in edges],
                "more_edges": more,
                **page,
                "warnings": warnings,
            }
        )


class ChainProposals(CallerView):
    keying = Keying.IGNORED
    proof = by_method(post=Proof.NOT_NEEDED)
    scope = Scope.READ

    @extend_schema(
        operation_id="propose_chains",
        request=ProposalsBody,
        responses=ChainProposalsAnswer,
    )
    def post(self, request: Request) -> Response:
        """Chains of tools that the caller may use, from given values to a goal. Nothing is called,
        and nothing stored."""
        given = self.body(ProposalsBody)
        asked, snapshot = EffectiveRequest.of(given["group"], given["state"]), self.snapshot
        warnings = self.granted(asked, snapshot)
        tools = gates.usable_tools(self.caller, asked, snapshot)
        usable = frozenset(tool.name for tool in tools)
        wish = _wish(given["want"])
        found = proposals(snapshot, usable, given_ports(given["have"]), wish)
        warnings += _remarks(wish, given["have"], usable, found)
        return Response({"results": [_proposal(one) for one in found], "warnings": warnings})


def _wish(want: dict[str, Any]) -> PlanningTarget:
    if "value" in want:
        return PlanningTarget(value=target_port(want["value"], want.get("schema")))
    return PlanningTarget(capability=want.get("capability", ""), tool=want.get("tool", ""))


def _remarks(
    wish: PlanningTarget, have: dict[str, Any], usable: frozenset[str], found: list[Proposal]
) -> list[str]:
    if wish.value is not None and normalize_key(wish.called) in map(normalize_key, have):
        return [f"{wish.called} is among what you have."]
    if wish.tool and wish.tool not in usable:
        return [f"There is no tool {wish.tool} for this request."]
    return [] if found else [f"No tool that exists for this request gives {wish.called}."]


def _node(tool: CatalogTool, node: CapabilityNode) -> dict[str, Any]:
    raw = tool.definition.raw
    return {
        "name": node.name,
        "title": raw["title"],
        "consumes": [
            {"name": one.name, "required": one.sure or bool(one.only), "means": one.means or None}
            for one in node.consumes
        ],
        "produces": [
            {"name": one.name, "path": f"{OUTPUT}{one.pointer}", "always": one.sure,
             "means": one.means or None}
            for one in node.produces
        ],
        "capabilities": raw["capabilities"],
        "side_effects": node.writes,
        "requires_confirmation": node.asks,
        "cost": raw["cost_per_invocation"],
    }  # fmt: skip


def _edge(edge: CapabilityEdge) -> dict[str, Any]:
    return {
        "from": edge.source,
        "path": f"{OUTPUT}{edge.given.pointer}",
        "to": edge.target,
        "parameter": edge.taken.name,
        "fit": str(edge.link.fit),
        "why": list(edge.link.why),
    }


def _proposal(found: Proposal) -> dict[str, Any]:
    plan = found.plan
    return {
        "document": found.document,
        "tools": list(plan.names),
        "effort": plan.effort,
        "links": found.links,
        "lacks": found.lacks,
        "side_effects": plan.writing > 0,
        "confirmations": [call.node.name for call in plan.calls if call.node.asks],
        "cost": str(plan.cost),
        "warnings": [{"field": one.place, "message": one.message} for one in found.warnings],
    }
