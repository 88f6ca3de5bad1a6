"""`/api/v1/audit`: reads audit records. The caller is a user with permissions in one
organization."""

import base64
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from audit.actions import Actor
from audit.alerts import alerts
from audit.events import Severity
from audit.export import export
from audit.log.proofs import NotProvable, inclusion_proof
from audit.models import Alert, AuditRecord, Checkpoint
from audit.records import erasure, record_access, record_search
from config.http.errors import encode_json
from tools.api.common.idempotency import KeyedView, Keying
from tools.api.common.pagination import Page
from tools.web.cursor_pagination import (
    CursorPages,
    cursor_error,
    newest_first,
    page_reference,
    paging_parameters,
    parse_page_size,
)
from tools.web.query_parameters import BadQuery, QueryView
from tools.web.reauthentication import Proof, by_method

PERMISSION = "audit.view_auditrecord"
_DESCRIBED = {"execution", "code", "since", "until", "q"}
FILTERS = [
    *(
        OpenApiParameter(name, OpenApiTypes.STR)
        for name in record_search.SEARCH_FIELDS
        if name not in _DESCRIBED
    ),
    OpenApiParameter("execution", OpenApiTypes.UUID),
    OpenApiParameter("code", OpenApiTypes.STR, description="TOOL.DENY, or TOOL. for all of them."),
    OpenApiParameter("since", OpenApiTypes.DATETIME),
    OpenApiParameter("until", OpenApiTypes.DATETIME),
    OpenApiParameter(
        "q",
        OpenApiTypes.STR,
        description="Words that all stand in a record or, for who may see it, all in what went in"
        " or came out.",
    ),
]
_RECORDS = newest_first("occurred_at")
_ALERTS = newest_first("first_at")
_COLUMNS = {
    "open": "acknowledged_at__isnull",
    "severity": "severity",
    "rule": "rule",
    "since": "last_at__gte",
    "until": "first_at__lt",
}


class RecordAnswer(serializers.ModelSerializer[AuditRecord]):
    class Meta:
        model = AuditRecord
        exclude = ["mac", "transaction"]


class RecordPage(Page):
    results = RecordAnswer(many=True)


class PayloadAnswer(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=["none", "withheld", "erased", "shown"])
    content = serializers.JSONField(allow_null=True)
    salt = serializers.CharField(help_text="Goes before the content in its commitment.")
    erased_at = serializers.DateTimeField(allow_null=True)
    erased_by = serializers.CharField()


class SealedAnswer(serializers.Serializer[Any]):
    log = serializers.CharField()
    index = serializers.IntegerField()
    leaf_hash = serializers.CharField()
    signed_at = serializers.DateTimeField(allow_null=True)


class OpenedAnswer(RecordAnswer):
    """A record as the list has it, its payload and its place in the log."""

    payload = PayloadAnswer()
    sealed = SealedAnswer(allow_null=True)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {
            **RecordAnswer(instance.record).data,
            "payload": PayloadAnswer(instance.payload).data,
            "sealed": SealedAnswer(instance.sealed).data if instance.sealed else None,
        }


class ErasureBody(serializers.Serializer[Any]):
    execution = serializers.UUIDField(required=False)
    agent = serializers.CharField(required=False, max_length=200)
    all = serializers.CharField(
        required=False, max_length=200, help_text="The organization's slug: all of its calls."
    )
    before = serializers.DateTimeField(required=False, help_text="Only what is older.")
    reason = serializers.CharField(max_length=500)
    dry_run = serializers.BooleanField(default=False, help_text="Count, and erase nothing.")

    def to_internal_value(self, data: Any) -> Any:
        """Nothing is coerced and no field is ignored, since an erasure is permanent."""
        if isinstance(data, dict):
            wrong = {
                str(name)[:60]: flaw
                for name, value in data.items()
                if (flaw := _find_flaw(name, value))
            }
            if wrong:
                raise ValidationError(wrong)
        return super().to_internal_value(data)

    def validate(self, attrs: Any) -> Any:
        if sum(name in attrs for name in ("execution", "agent", "all")) != 1:
            raise ValidationError("Name exactly one of execution, agent and all.")
        return attrs


class ErasureAnswer(serializers.Serializer[Any]):
    matched = serializers.IntegerField(help_text="Payloads that were there before.")
    erased = serializers.IntegerField(help_text="None of them in a dry run.")
    dry_run = serializers.BooleanField()


class AlertAnswer(serializers.ModelSerializer[Alert]):
    class Meta:
        model = Alert
        fields = "__all__"


class AlertPage(Page):
    results = AlertAnswer(many=True)


class CheckpointAnswer(serializers.Serializer[Any]):
    size = serializers.IntegerField()
    # Fields have a `root` of their own, which the class of a serializer takes this one out for.
    root = serializers.SerializerMethodField(  # type: ignore[assignment]
        help_text="In base64, as the note has it."
    )
    note = serializers.CharField(help_text="The signed note: https://c2sp.org/tlog-checkpoint")
    created_at = serializers.DateTimeField()

    def get_root(self, checkpoint: Checkpoint) -> str:
        return base64.b64encode(bytes(checkpoint.root)).decode()


class CheckpointPage(Page):
    results = CheckpointAnswer(many=True)


class AuditLogBusy(APIException):
    status_code = 503
    wait = 5


class LinesRenderer(BaseRenderer):
    """Named so that its type is understood in `Accept`; an export writes itself."""

    media_type = "application/x-ndjson"
    format = "lines"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None,
               ) -> bytes:  # fmt: skip
        return encode_json(data)


class CsvRenderer(LinesRenderer):
    media_type = "text/csv"
    format = "csv"


class EvidenceView(QueryView):
    permission = PERMISSION
    bodiless = frozenset[str]()  # methods whose body has no meaning

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in self.bodiless and request.body.strip() not in {b"", b"{}"}:
            raise ValidationError("A body means nothing here; send none.")

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
        responses=RecordPage,
        parameters=[
            *FILTERS,
            *paging_parameters(_RECORDS),
        ],
    )
    def get(self, request: Request) -> Response:
        """Records, the newest first. That they were read is on record, with the filters."""
        wanted = _read_search(self)
        size, position = parse_page_size(request), _read_position(request)
        ascending = self.query.get("ordering") == "occurred_at"
        if ascending and position is None:
            position = record_search.OLDEST
        page = record_access.read_page(wanted, size, position, by=_request_actor(request))
        records, beside = page.records, [page.older, page.newer]
        if ascending:
            records, beside = records[::-1], beside[::-1]
        following, before = (_page_address(request, place) for place in beside)
        return Response(
            {
                "results": RecordAnswer(records, many=True).data,
                "next": following,
                "previous": before,
            }
        )


class RecordDetail(EvidenceView):
    @extend_schema(
        operation_id="get_audit_record",
        summary="Get audit record",
        responses=OpenedAnswer,
    )
    def get(self, request: Request, record_id: UUID) -> Response:
        """A record, where it is sealed and, for who may see it, what went in or came out. That it
        was read is on record."""
        self.organization()
        may_open = request.user.has_perm(record_access.MAY_OPEN)
        opened = record_access.open_record(record_id, by=_request_actor(request), may_open=may_open)
        if opened is None:
            raise Http404
        return Response(OpenedAnswer().to_representation(opened))


class RecordExport(EvidenceView):
    proof = by_method(get=Proof.ALWAYS)
    renderer_classes = [*EvidenceView.renderer_classes, LinesRenderer, CsvRenderer]

    @extend_schema(
        operation_id="export_audit_records",
        summary="Export audit records",
        responses={
            (200, "application/x-ndjson"): OpenApiTypes.STR,
            (200, "text/csv"): OpenApiTypes.STR,
        },
        parameters=[OpenApiParameter("format", enum=[*export.FORMATS], default="jsonl"), *FILTERS],
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """All that fits, the oldest first: as sealed lines, CSV or OCSF events. On record."""
        wanted = _read_search(self)
        name = self.query.get("format", "jsonl")
        try:
            return export_response(
                export.begin_export(wanted, name, _request_actor(request)), wanted, name
            )
        except export.TooManyExports as busy:
            raise AuditLogBusy(str(busy)) from None


def _find_flaw(name: Any, value: Any) -> list[str]:
    if name not in ErasureBody._declared_fields:
        return ["This field is not known here."]
    if name == "dry_run":
        return [] if isinstance(value, bool) else ["This must be true or false."]
    return [] if isinstance(value, str) else ["This must be a text."]


class Erasures(KeyedView, EvidenceView):
    keying = Keying.IN_PROGRESS  # batch by batch, and its key's file is gone at once
    scope = "audit"
    proof = by_method(post=Proof.NEEDED)
    permission = erasure.MAY_ERASE

    def check_replay(self, **place: Any) -> None:
        self.organization()

    @extend_schema(
        operation_id="erase_audit_payloads",
        summary="Erase audit payloads",
        request=ErasureBody,
        responses=ErasureAnswer,
    )
    def post(self, request: Request) -> Response:
        """Permanently erase inputs and outputs of calls. The records stay and still verify.

        For all calls, give the organization's slug: `{"all": "acme", "reason": "…"}`. `dry_run`
        counts what would be erased.
        """
        organization = self.organization()
        body = ErasureBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        if asked.get("all", organization) != organization:
            raise ValidationError(
                {"all": [f"This must be {organization}, the organization you act in."]}
            )
        scope = erasure.ErasureScope(
            organization, asked.get("execution"), asked.get("agent", ""), asked.get("before")
        )
        dry_run, matched, erased = asked["dry_run"], erasure.count_payloads(scope), 0
        if not dry_run:
            erased = erasure.erase_payloads(
                scope, by=_request_actor(request), reason=asked["reason"]
            )
        return Response({"matched": matched, "erased": erased, "dry_run": dry_run})


class AlertList(EvidenceView):
    @extend_schema(
        operation_id="list_alerts",
        summary="List alerts",
        responses=AlertPage,
        parameters=[
            OpenApiParameter(
                "open", OpenApiTypes.BOOL, description="Not acknowledged yet, or acknowledged."
            ),
            OpenApiParameter("severity", OpenApiTypes.STR, enum=[*Severity]),
            OpenApiParameter("rule", OpenApiTypes.STR, description="A rule's name."),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Seen since then."),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Begun before it."),
            *paging_parameters(_ALERTS),
        ],
    )
    def get(self, request: Request) -> Response:
        """Alerts about records for a person to review, the newest first."""
        found = alerts.alerts_of(self.organization())
        asked = {
            column: self.query[name] for name, column in _COLUMNS.items() if name in self.query
        }
        found = found.filter(**asked)
        pages = CursorPages(_ALERTS)
        page: list[Alert] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(AlertAnswer(page, many=True).data)


class AlertAcknowledgement(KeyedView, EvidenceView):
    scope = "audit"
    proof = by_method(post=Proof.NOT_NEEDED)
    bodiless = frozenset({"POST"})
    permission = "audit.change_alert"

    def check_replay(self, **place: Any) -> None:
        self.organization()

    @extend_schema(
        operation_id="acknowledge_alert",
        summary="Acknowledge alert",
        request=None,
        responses=AlertAnswer,
    )
    def post(self, request: Request, alert_id: UUID) -> Response:
        """Acknowledge the alert."""
        found = alerts.alerts_of(self.organization()).filter(pk=alert_id).first()
        if found is None:
            raise Http404
        alerts.acknowledge(alert=found, by=_request_actor(request))
        found.refresh_from_db()
        return Response(AlertAnswer(found).data)


def _request_actor(request: Request) -> Actor:
    caller: Any = request.auth
    return Actor(
        kind=str(caller.kind),
        name=caller.name,
        organization=caller.organization,
        id=str(caller.agent_id or caller.user_id),
        token_id=str(caller.token_id or ""),
        source_ip=caller.source_ip,
        request_id=str(getattr(request, "name", "")),
    )


def export_response(
    stream: export.ExportStream, wanted: record_search.RecordSearch, name: str
) -> StreamingHttpResponse:
    """A response that a browser saves as a file."""
    kind = export.FORMATS[name]
    answer = StreamingHttpResponse(stream, content_type=kind.content_type)
    file = f"audit-{wanted.organization}-{timezone.now():%Y-%m-%d-%H%M%S}.{kind.suffix}"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


def _read_search(view: EvidenceView) -> record_search.RecordSearch:
    opened = view.request.user.has_perm(record_access.MAY_OPEN)
    wanted = record_search.read_search(
        view.organization(), view.request.query_params, opened=opened
    )
    if wanted.flaws:
        name, flaw = next(iter(wanted.flaws.items()))
        raise BadQuery(f"{name} {flaw}.", field=name)
    return wanted


def _read_position(request: Request) -> record_search.Position | None:
    cursor = request.query_params.get("cursor")
    if not cursor:
        return None
    try:
        return record_search.Position.read(cursor)
    except record_search.BadPosition:
        raise cursor_error() from None


def _page_address(request: Request, position: record_search.Position | None) -> str | None:
    if position is None:
        return None
    return page_reference(request, position.cursor)


class RecordNotSealed(APIException):
    """It will be sealed in a moment."""

    status_code = 409
    wait = 2


class CheckpointList(EvidenceView):
    @extend_schema(
        operation_id="list_audit_checkpoints",
        summary="List checkpoints",
        responses=CheckpointPage,
        parameters=paging_parameters(newest_first()),
    )
    def get(self, request: Request) -> Response:
        """Signed statements of the log's size and root, the newest first."""
        found = Checkpoint.objects.filter(log__name=self.organization())
        pages = CursorPages()
        page: list[Checkpoint] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(CheckpointAnswer(page, many=True).data)


class ProofRenderer(BaseRenderer):
    """Named so that its type is understood in `Accept`; a proof is written as it is."""

    media_type = "text/plain"
    format = "proof"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None,
               ) -> bytes:  # fmt: skip
        return str(data).encode()


class RecordProof(EvidenceView):
    renderer_classes = [*EvidenceView.renderer_classes, ProofRenderer]

    @extend_schema(
        operation_id="get_audit_record_proof",
        summary="Get proof of an audit record",
        responses={(200, "text/plain"): OpenApiTypes.STR, 409: None},
    )
    def get(self, request: Request, record_id: UUID) -> HttpResponse:
        """Proof that the record is in the log, to be checked offline: https://c2sp.org/tlog-proof

        The proof covers the record's line in a JSONL export."""
        mine = AuditRecord.objects.filter(organization=self.organization())
        if not mine.filter(pk=record_id).exists():
            raise Http404
        try:
            proof = inclusion_proof(record_id)
        except NotProvable as error:
            raise RecordNotSealed(str(error)) from None
        name = f'attachment; filename="{record_id}.tlog-proof"'
        return HttpResponse(
            proof, content_type="text/plain; charset=utf-8", headers={"Content-Disposition": name}
        )
