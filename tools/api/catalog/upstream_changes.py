"""`/api/v1/tools/changes`: unapproved changes of upstreams, and comparison of versions."""

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.catalog.tools import DefinitionAnswer, saved_tool
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import PERIOD, TOOL, Page, filter_rows, period_columns
from tools.api.common.serializer_fields import Strict, Text
from tools.api.common.views import CallerView
from tools.catalog import actions
from tools.catalog.signatures import drift
from tools.catalog.signatures.drift import difference_of
from tools.catalog.signatures.versions import compare_versions
from tools.definitions.callers import Scope
from tools.definitions.differences import DifferenceKind
from tools.errors import Malformed
from tools.models import Decision, UpstreamChange
from tools.shapes.scalars import moment
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

_ORDERS = newest_first("seen_at")
_COLUMNS = {"decision": "decision", "tool": "tool__name", **period_columns("seen_at")}
DECIDED = {200: DefinitionAnswer}


class FieldDifference(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="A JSON pointer into the definition.")
    kind = serializers.ChoiceField(choices=[*DifferenceKind])
    before = serializers.JSONField()
    after = serializers.JSONField()
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Characters that cannot be seen, or look alike."
    )


class VersionsApart(serializers.Serializer[Any]):
    tool = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()
    differences = FieldDifference(many=True)


class ChangeAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tool = serializers.CharField()
    digest = serializers.CharField()
    seen_at = serializers.DateTimeField()
    decision = serializers.ChoiceField(choices=Decision.choices)
    decided_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    reason = serializers.CharField()
    differences = FieldDifference(many=True, required=False)


class ChangePage(Page):
    results = ChangeAnswer(many=True)


class ApprovalBody(Strict):
    digest = Text(max_length=71, help_text="Of the change as it was read.")
    reason = Text(required=False, max_length=500, allow_blank=True)


def change_shape(change: UpstreamChange, *, whole: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "id": str(change.pk),
        "tool": change.tool.name,
        "digest": change.digest,
        "seen_at": moment(change.seen_at),
        "decision": change.decision,
        "decided_at": moment(change.decided_at) if change.decided_at else None,
        "decided_by": change.decided_by,
        "reason": change.reason,
    }
    if whole:
        shape["differences"] = [one.as_dict() for one in difference_of(change)]
    return shape


class ChangeList(CallerView):
    @extend_schema(
        operation_id="list_upstream_changes",
        parameters=[
            OpenApiParameter("decision", OpenApiTypes.STR, enum=[*Decision.values]),
            TOOL,
            *PERIOD,
            *paging_parameters(_ORDERS),
        ],
        responses=ChangePage,
    )
    def get(self, request: Request) -> Response:
        """The newest first; those that wait have `decision=open`."""
        self.require("view_tool")
        rows = UpstreamChange.objects.filter(
            tool__organization_id=self.caller.organization_id
        ).select_related("tool")
        rows = filter_rows(rows, self.query, _COLUMNS)
        pages = CursorPages(_ORDERS)
        page: list[UpstreamChange] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([change_shape(row) for row in page])


class OneChange(ConditionalView):
    def representation(self, change_id: UUID) -> Representation:
        change = drift.find_change(self.caller.organization_id, change_id)
        return Representation(change_shape(change, whole=True))


class ChangeDetail(OneChange):
    @extend_schema(operation_id="get_upstream_change", responses=ChangeAnswer)
    def get(self, request: Request, change_id: UUID) -> Response:
        """With the difference, field by field, and nothing hidden in it."""
        self.require("view_tool")
        return self.resource_response(self.representation(change_id))


class ChangeDecision(OneChange):
    """`approve` and `reject`."""

    answers_resource = False
    scope = Scope.CATALOG

    def decided(self, change_id: UUID, *, approve: bool) -> Response:
        wanted = self.body(ApprovalBody)
        change = drift.find_change(self.caller.organization_id, change_id)
        tool = drift.decide_change(
            change=change, approve=approve, read_digest=wanted["digest"], by=self.actor,
            words=wanted.get("reason", ""),
        )  # fmt: skip
        return Response(saved_tool(self, tool.name).shape)


class ChangeApprove(ChangeDecision):
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(operation_id="approve_upstream_change", request=ApprovalBody, responses=DECIDED)
    @conditional("change_tool")
    def post(self, request: Request, change_id: UUID) -> Response:
        """The change becomes the next version. A digest other than that of the reviewed change is
        refused."""
        return self.decided(change_id, approve=True)


class ChangeReject(ChangeDecision):
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(operation_id="reject_upstream_change", request=ApprovalBody, responses=DECIDED)
    @conditional("change_tool")
    def post(self, request: Request, change_id: UUID) -> Response:
        """The approved version stays, and this change needs no further decision."""
        return self.decided(change_id, approve=False)


class ToolDifference(CallerView):
    @extend_schema(
        operation_id="compare_tool_versions",
        parameters=[
            OpenApiParameter("from", OpenApiTypes.STR, required=True, description="A version."),
            OpenApiParameter("to", OpenApiTypes.STR, description="Absent: the current one."),
        ],
        responses=VersionsApart,
    )
    def get(self, request: Request, name: str) -> Response:
        """Any two versions, field by field."""
        self.require("view_tool")
        tool = actions.find_tool(self.organization, name)
        before, after = (request.query_params.get(key) for key in ("from", "to"))
        if not before:
            raise Malformed("Name the earlier version: ?from=1.0.0.")
        old, new, found = compare_versions(tool, before, after)
        return Response(
            {
                "tool": tool.name,
                "before": old.label,
                "after": new.label,
                "differences": [one.as_dict() for one in found],
            }
        )
