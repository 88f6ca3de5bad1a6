"""`/api/v1/tools/explain` and `/api/v1/tools/what-if`: explains access and previews changes."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_field,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.idempotency import Keying
from tools.api.common.pagination import BY_NAME, Page, paginate_tools
from tools.api.common.serializer_fields import Strict, Text, text_list
from tools.api.common.views import CallerView
from tools.authorization.pins import snapshot_for
from tools.catalog.snapshot import CatalogTool
from tools.definitions.callers import Caller, Scope
from tools.definitions.values.strict_json import MAX_VALUES
from tools.execution import sessions
from tools.insight.changes import GrantChange, Group, PreviewedChange, Tier, ToolGroups
from tools.insight.explain import Explanation, pretended, subject_of
from tools.insight.whatif import what_if
from tools.policy.questions import EffectiveRequest
from tools.shapes.reports import difference_shape, explained_shape, request_shape
from tools.web.cursor_pagination import PAGING_PARAMETERS
from tools.web.reauthentication import Proof, by_method


class KindBody(Strict):
    """A hypothetical change."""

    kind = Text(max_length=20)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        raise NotImplementedError


class GrantKind(KindBody):
    """An agent's grants, each kind as the whole list it would be."""

    kind = serializers.ChoiceField(choices=["grant"])  # type: ignore[assignment]
    agent = Text(max_length=63)
    groups = text_list(required=False)
    tools = text_list(required=False)
    tool_groups = text_list(required=False)
    permissions = text_list(required=False)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        lists = ("groups", "tools", "tool_groups", "permissions")
        return GrantChange(given["agent"], **{n: tuple(given[n]) for n in lists if n in given})


class TierKind(KindBody):
    """The organization's tier."""

    kind = serializers.ChoiceField(choices=["tier"])  # type: ignore[assignment]
    tier = Text(max_length=60)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        return Tier(given["tier"])


class ToolGroupsKind(KindBody):
    """A tool's groups; null is absent."""

    kind = serializers.ChoiceField(choices=["tool_groups"])  # type: ignore[assignment]
    tool = Text(max_length=128)
    groups = text_list(allow_null=True)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        groups = given["groups"]
        return ToolGroups(given["tool"], None if groups is None else tuple(groups))


class GroupKind(KindBody):
    """What is given of a group, written as `/groups/{name}` takes it."""

    kind = serializers.ChoiceField(choices=["group"])  # type: ignore[assignment]
    group = Text(max_length=100)
    parent = Text(required=False, allow_null=True, max_length=100)  # type: ignore[assignment]
    permissions = text_list(required=False)
    schedule = serializers.JSONField(required=False)
    max_queue_age_s = serializers.JSONField(required=False)
    max_cpu_percent = serializers.JSONField(required=False)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        fields = {name: value for name, value in given.items() if name not in ("kind", "group")}
        return Group(given["group"], fields)


KINDS: dict[str, type[KindBody]] = {
    "grant": GrantKind,
    "tier": TierKind,
    "tool_groups": ToolGroupsKind,
    "group": GroupKind,
}
_ANY_KIND = PolymorphicProxySerializer(
    component_name="ChangeBody", serializers={**KINDS}, resource_type_field_name="kind"
)
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


class GateRow(serializers.Serializer[Any]):
    gate = serializers.CharField()
    passed = serializers.BooleanField()
    code = serializers.CharField()
    reason = serializers.CharField(help_text="Empty where it passed.")
    remedy = serializers.CharField(help_text="What would change a no.")


class ToolExplained(serializers.Serializer[Any]):
    tool = serializers.CharField()
    available = serializers.BooleanField(help_text="Whether the tool exists for the request.")
    refused_by = serializers.CharField(
        allow_null=True, help_text="The gate a call would fail at first, of those told here."
    )
    held = serializers.BooleanField(help_text="Whether a person would be asked.")
    effective_isolation = serializers.CharField()
    gates = GateRow(many=True)


class RequestExplained(serializers.Serializer[Any]):
    caller = serializers.CharField()
    groups = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField()
    gates = GateRow(many=True, help_text="What is asked of the caller and the request alone.")


class ExplanationPage(Page):
    request = RequestExplained()
    results = ToolExplained(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


@extend_schema_field(_ANY_KIND)
class ChangeField(serializers.Field[PreviewedChange, Any, Any, Any]):
    """One of the kinds, read by its own body."""

    default_error_messages = {
        "kind": "This must be an object whose kind is one of: {kinds}.",
    }

    def to_internal_value(self, data: Any) -> PreviewedChange:
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            self.fail("kind", kinds=", ".join(KINDS))
        body = KINDS[kind]()
        return body.change(dict(body.run_validation(data)))


class WhatIfBody(Strict):
    change = ChangeField()
    since = serializers.DateTimeField(
        required=False, help_text="Calls from then on; 24 hours ago by default, 7 days at most."
    )


class AgentSeen(serializers.Serializer[Any]):
    agent = serializers.CharField()
    added = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    added_count = serializers.IntegerField()
    removed_count = serializers.IntegerField()


class AgentsSeen(serializers.Serializer[Any]):
    looked_at = serializers.IntegerField()
    cut = serializers.BooleanField(help_text="Whether there are more agents.")
    results = AgentSeen(many=True)


class CallsTurned(serializers.Serializer[Any]):
    agent = serializers.CharField()
    tool = serializers.CharField()
    group = serializers.ListField(child=serializers.CharField(), allow_null=True)
    state = serializers.CharField()
    calls = serializers.IntegerField()
    gate = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()


class Turned(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    results = CallsTurned(many=True)


class CallsReplayed(serializers.Serializer[Any]):
    looked_at = serializers.IntegerField()
    combinations = serializers.IntegerField()
    cut = serializers.BooleanField(help_text="Whether there were more combinations.")
    would_be_refused = Turned(help_text="`gate` is the one that would refuse.")
    would_pass = Turned(help_text="`gate` is the one that refuses as things stand.")


class DifferenceAnswer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    agents = AgentsSeen()
    calls = CallsReplayed(allow_null=True, help_text="Null for who may not view executions.")


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
            self.check_requested_groups(explanation.asked, explanation.snapshot)
        page = paginate_tools(request, [t for t in explanation.tools if self._is_requested(t)])
        explained = [explanation.explain(tool) for tool in page["results"]]
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
            caller, self._subject_request(about), snapshot, everything, account=about.user_id
        )

    def _subject_request(self, about: Caller) -> EffectiveRequest:
        """Uses the current state of another's session; nothing is counted."""
        session = self.request.query_params.get("session")
        if session is None or about is self.caller:
            return self.effective_request()
        found = sessions.find_own_session(about, session)
        return EffectiveRequest(frozenset(found.groups), found.state)

    def _is_requested(self, tool: CatalogTool) -> bool:
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
