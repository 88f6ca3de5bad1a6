"""`/api/v1/audit`: reading evidence. Its caller is a user with permissions in one place."""

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import alerts
from audit.actions import Actor
from audit.models import Alert, AuditRecord
from audit.search import FIELDS, records_of, search

PERMISSION = "audit.view_auditrecord"
# Named, not imported: the component that the rest of the document calls so.
_ERROR = {"$ref": "#/components/schemas/ErrorAnswer"}
REFUSALS: dict[int, Any] = {
    401: OpenApiResponse(_ERROR, "No token, or one that is not valid."),
    403: OpenApiResponse(_ERROR, "The caller may not read evidence here."),
    503: OpenApiResponse(_ERROR, "Not possible right now; `Retry-After` says when to try again."),
}


class RecordAnswer(serializers.ModelSerializer[AuditRecord]):
    class Meta:
        model = AuditRecord
        fields = "__all__"


class RecordPage(serializers.Serializer[Any]):
    results = RecordAnswer(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class RecordPages(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        raw = request.query_params.get("page_size", str(self.page_size))
        if not raw.isdecimal() or not 1 <= int(raw[:9]) <= self.max_page_size:
            raise ValidationError({"page_size": [f"must be from 1 to {self.max_page_size}"]})
        return int(raw)

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise ValidationError({"cursor": ["is not one this list gave out"]}) from None


class EvidenceView(APIView):
    permission = PERMISSION

    def organization(self) -> str:
        """Where the caller acts. Raises PermissionDenied for who may not read evidence there."""
        if not self.request.user.has_perm(self.permission):
            raise PermissionDenied
        caller: Any = self.request.auth
        return str(caller.organization)


class RecordList(EvidenceView):
    @extend_schema(
        operation_id="list_audit_records",
        summary="List audit records",
        responses={
            200: RecordPage,
            400: OpenApiResponse(_ERROR, "A query parameter cannot be read."),
            **REFUSALS,
        },
        parameters=[
            *(OpenApiParameter(name, OpenApiTypes.STR) for name in FIELDS),
            OpenApiParameter("code", OpenApiTypes.STR, description="TOOL.DENY, or TOOL. for all."),
            OpenApiParameter("since", OpenApiTypes.DATETIME),
            OpenApiParameter("q", OpenApiTypes.STR),
            OpenApiParameter("cursor", OpenApiTypes.STR),
            OpenApiParameter("page_size", OpenApiTypes.INT),
        ],
    )
    def get(self, request: Request) -> Response:
        """Records, the newest first."""
        query = request.query_params
        found = search(
            self.organization(),
            exact={name: query[name] for name in FIELDS if query.get(name)},
            code=query.get("code", ""),
            since=_moment(query.get("since")),
            text=query.get("q", ""),
        )
        pages = RecordPages()
        page: list[AuditRecord] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(RecordAnswer(page, many=True).data)


class RecordDetail(EvidenceView):
    @extend_schema(
        operation_id="get_audit_record",
        summary="Get audit record",
        responses={200: RecordAnswer, 404: OpenApiResponse(_ERROR, "Not there."), **REFUSALS},
    )
    def get(self, request: Request, record_id: UUID) -> Response:
        found = records_of(self.organization()).filter(pk=record_id).first()
        if found is None:
            raise Http404
        return Response(RecordAnswer(found).data)


class AlertAnswer(serializers.ModelSerializer[Alert]):
    class Meta:
        model = Alert
        fields = "__all__"


class AlertPage(serializers.Serializer[Any]):
    results = AlertAnswer(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class AlertList(EvidenceView):
    @extend_schema(
        operation_id="list_alerts",
        summary="List alerts",
        responses={200: AlertPage, **REFUSALS},
        parameters=[
            OpenApiParameter("open", OpenApiTypes.BOOL, description="Only those not acknowledged."),
            OpenApiParameter("cursor", OpenApiTypes.STR),
            OpenApiParameter("page_size", OpenApiTypes.INT),
        ],
    )
    def get(self, request: Request) -> Response:
        """What in the records a person should look at, the newest first."""
        found = alerts.alerts_of(self.organization())
        if request.query_params.get("open") == "true":
            found = found.open()
        pages = RecordPages()
        page: list[Alert] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(AlertAnswer(page, many=True).data)


class AlertAcknowledgement(EvidenceView):
    permission = "audit.change_alert"

    @extend_schema(
        operation_id="acknowledge_alert",
        summary="Acknowledge alert",
        request=None,
        responses={200: AlertAnswer, 404: OpenApiResponse(_ERROR, "Not there."), **REFUSALS},
    )
    def post(self, request: Request, alert_id: UUID) -> Response:
        """Say that somebody has looked at it."""
        found = alerts.alerts_of(self.organization()).filter(pk=alert_id).first()
        if found is None:
            raise Http404
        caller: Any = request.auth
        by = Actor(str(caller.kind), caller.name, caller.organization, source_ip=caller.source_ip)
        alerts.acknowledge(alert=found, by=by)
        found.refresh_from_db()
        return Response(AlertAnswer(found).data)


def _moment(text: str | None) -> Any:
    if not text:
        return None
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValidationError({"since": ["must be a time such as 2026-01-31T12:00:00Z"]})
    return moment
