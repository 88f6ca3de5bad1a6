"""`/api/v1/tools/graph` and `/api/v1/chains/proposals`: which tool's output fits which tool's
input."""

import json
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.catalog.tools import LISTING, ToolListing
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import State, Strict, Text, text_list
from tools.api.common.views import CallerView
from tools.api.executions.chains import ChainBody
from tools.authorization.listings import usable_tools
from tools.catalog.snapshot import CatalogTool
from tools.catalog.workflow.chains import capability_graph, proposals
from tools.definitions.callers import Scope
from tools.definitions.capability.capability_search import (
    PlanningTarget,
    given_ports,
    schema_of_example,
    target_port,
)
from tools.definitions.capability.graph import CapabilityEdge, CapabilityNode, Fit
from tools.definitions.capability.ports import normalize_key
from tools.definitions.capability.proposals import Proposal
from tools.definitions.chains.expressions import OUTPUT
from tools.definitions.schemas.json_schemas import BadSchema, compile_schema
from tools.definitions.texts.names import flaw_in_text
from tools.policy.questions import EffectiveRequest
from tools.web.reauthentication import Proof, by_method

MOST_HAD = 50
_LONGEST_NAME = 100
# Characters of all given values, as JSON. The time to check that a schema is harmless grows with
# its size, and faster where it refers to itself: any agent may ask, so it is kept short.
_LARGEST = 20_000
_REFERENCES = ('"$ref"', '"$dynamicRef"', '"$recursiveRef"')
_FITS = [str(one) for one in Fit]
MOST_EDGES = 1_000


class ValueName(Text):
    """A name by which a value can be found: there are letters or digits in it."""

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        flaw = flaw_in_text(name, longest=_LONGEST_NAME)
        if flaw is None and not normalize_key(name):
            flaw = "holds no letter and no digit"
        if flaw is not None:
            raise serializers.ValidationError(f"This {flaw}.")
        return name


class SchemaField(serializers.JSONField):
    """A JSON Schema, as an object, in which nothing refers to anything."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError("A schema is an object.")
        text = json.dumps(data)
        if len(text) > _LARGEST:
            raise serializers.ValidationError(f"This is larger than {_LARGEST} characters.")
        if any(word in text for word in _REFERENCES):
            raise serializers.ValidationError("Write out what is meant, without $ref.")
        try:
            compile_schema(data)
        except BadSchema as error:
            raise serializers.ValidationError(
                f"This is no schema that may be used: {error}"
            ) from None
        return data


class HadBody(Strict):
    """A given value. `{}` where only its name is known."""

    schema = SchemaField(required=False)
    example = serializers.JSONField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) > 1:
            raise serializers.ValidationError("Give a schema or an example, not both.")
        return attrs


class WantBody(Strict):
    value = ValueName(required=False, help_text="A value, by its name.")
    schema = SchemaField(required=False, help_text="Of the value.")
    capability = ValueName(required=False, help_text="Any tool that declares it.")
    tool = Text(required=False, max_length=128, help_text="This very tool.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs.keys() & {"value", "capability", "tool"}) != 1:
            raise serializers.ValidationError("Name one: a value, a capability or a tool.")
        if "schema" in attrs and "value" not in attrs:
            raise serializers.ValidationError({"schema": ["This is for a value."]})
        return attrs


class HadField(serializers.DictField):
    """By name the schema of each value; None where nothing is known of it."""

    child = HadBody()

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict):
            self._check(data)
        read = super().to_internal_value(data)
        return {name: self._schema(one) for name, one in read.items()}

    def _check(self, data: dict[str, Any]) -> None:
        if len(data) > MOST_HAD:
            raise serializers.ValidationError(f"These are more than {MOST_HAD} values.")
        if len(json.dumps(data)) > _LARGEST:
            raise serializers.ValidationError(f"This is larger than {_LARGEST} characters.")
        name = ValueName()
        for one in data:
            try:
                name.run_validation(one)
            except serializers.ValidationError as error:
                raise serializers.ValidationError({str(one)[:60]: error.detail}) from None

    def _schema(self, one: dict[str, Any]) -> Any:
        if "example" in one:
            return schema_of_example(one["example"])
        return one.get("schema")


class ProposalsBody(Strict):
    have = HadField(required=False, default=dict)
    want = WantBody()
    group = text_list(required=False, allow_null=True, default=None)
    state = State()


class ConsumedAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    # The field's name is also an attribute's of DRF's serializers.
    required = serializers.BooleanField()  # type: ignore[assignment]
    means = serializers.CharField(allow_null=True, help_text="What its schema declares (x-means).")


class ProducedAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    path = serializers.CharField(help_text="In what it gives back, such as /output/url.")
    always = serializers.BooleanField()
    means = serializers.CharField(allow_null=True)


class ToolNodeAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField(allow_null=True)
    consumes = ConsumedAnswer(many=True)
    produces = ProducedAnswer(many=True)
    capabilities = serializers.ListField(child=serializers.CharField())
    side_effects = serializers.BooleanField()
    requires_confirmation = serializers.BooleanField()
    cost = serializers.CharField()


class ToolEdgeAnswer(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="In what the first gives back.")
    to = serializers.CharField()
    parameter = serializers.CharField()
    fit = serializers.ChoiceField(choices=_FITS)
    why = serializers.ListField(child=serializers.CharField(), help_text="What is doubtful.")

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        return {"from": serializers.CharField(), **super().get_fields()}


class ToolGraphAnswer(Page):
    nodes = ToolNodeAnswer(many=True)
    edges = ToolEdgeAnswer(many=True, help_text="From and to the nodes of this page.")
    more_edges = serializers.BooleanField(help_text="There may be more than are shown.")
    warnings = serializers.ListField(child=serializers.CharField())


class LinkAnswer(serializers.Serializer[Any]):
    step = serializers.CharField()
    parameter = serializers.CharField()
    fit = serializers.ChoiceField(choices=_FITS)
    why = serializers.ListField(child=serializers.CharField(), help_text="What is doubtful.")

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        origin = serializers.DictField(help_text="`given`, or `step` and `path`.")
        return {**super().get_fields(), "from": origin}


class LackAnswer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="The parameter of the chain that asks for it.")
    step = serializers.CharField()
    parameter = serializers.CharField()
    schema = serializers.DictField()


class ChainProposalAnswer(serializers.Serializer[Any]):
    document = ChainBody(help_text="As POST /chains takes it.")
    tools = serializers.ListField(child=serializers.CharField())
    effort = serializers.IntegerField(
        help_text="Its steps, and in steps its doubts and what it lacks: the least comes first."
    )
    links = LinkAnswer(many=True)
    lacks = LackAnswer(many=True)
    side_effects = serializers.BooleanField()
    confirmations = serializers.ListField(
        child=serializers.CharField(), help_text="Tools for which a person is asked."
    )
    cost = serializers.CharField()
    warnings = serializers.ListField(
        child=serializers.DictField(), help_text="What may not fit, as when a chain is saved."
    )


class ChainProposalsAnswer(serializers.Serializer[Any]):
    results = ChainProposalAnswer(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


class ToolGraph(ToolListing):
    @extend_schema(
        operation_id="get_capability_graph",
        parameters=LISTING,
        responses=ToolGraphAnswer,
    )
    def get(self, request: Request) -> Response:
        """A page of the tools that exist for this request, what each consumes and produces, and
        which of all of them go together with these."""
        tools, warnings = self.list_usable_tools()
        page, graph = self.page(tools), capability_graph(self.snapshot)
        shown: list[CatalogTool] = page.pop("results")
        names = [tool.name for tool in shown]
        edges, more = graph.edges(names, frozenset(tool.name for tool in tools), MOST_EDGES)
        return Response(
            {
                "nodes": [_node_shape(tool, graph.node(tool.name)) for tool in shown],
                "edges": [_edge_shape(edge) for edge in edges],
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
        asked, snapshot = (
            EffectiveRequest.from_options(given["group"], given["state"]),
            self.snapshot,
        )
        warnings = self.check_requested_groups(asked, snapshot)
        tools = usable_tools(self.caller, asked, snapshot)
        usable = frozenset(tool.name for tool in tools)
        wish = _planning_target(given["want"])
        found = proposals(snapshot, usable, given_ports(given["have"]), wish)
        warnings += _proposal_warnings(wish, given["have"], usable, found)
        return Response({"results": [_proposal_shape(one) for one in found], "warnings": warnings})


def _planning_target(want: dict[str, Any]) -> PlanningTarget:
    if "value" in want:
        return PlanningTarget(value=target_port(want["value"], want.get("schema")))
    return PlanningTarget(capability=want.get("capability", ""), tool=want.get("tool", ""))


def _proposal_warnings(
    wish: PlanningTarget, have: dict[str, Any], usable: frozenset[str], found: list[Proposal]
) -> list[str]:
    if wish.value is not None and normalize_key(wish.called) in map(normalize_key, have):
        return [f"{wish.called} is among what you have."]
    if wish.tool and wish.tool not in usable:
        return [f"There is no tool {wish.tool} for this request."]
    return [] if found else [f"No tool that exists for this request gives {wish.called}."]


def _node_shape(tool: CatalogTool, node: CapabilityNode) -> dict[str, Any]:
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


def _edge_shape(edge: CapabilityEdge) -> dict[str, Any]:
    return {
        "from": edge.source,
        "path": f"{OUTPUT}{edge.given.pointer}",
        "to": edge.target,
        "parameter": edge.taken.name,
        "fit": str(edge.link.fit),
        "why": list(edge.link.why),
    }


def _proposal_shape(found: Proposal) -> dict[str, Any]:
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
