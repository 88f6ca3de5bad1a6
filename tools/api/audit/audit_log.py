"""`/api/v1/audit`: what proves the log's integrity: hashes and signatures, nothing of the
records."""

import base64
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from audit.log.proofs import NotProvable, inclusion_proof
from audit.models import AuditRecord, Checkpoint
from tools.api.audit.audit import EvidenceView
from tools.web.pages import CursorPages, PageReference, newest, paging


class RecordNotSealed(APIException):
    """It will be sealed in a moment."""

    status_code = 409
    wait = 2


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


class CheckpointPage(serializers.Serializer[Any]):
    results = CheckpointAnswer(many=True)
    next = PageReference(allow_null=True)
    previous = PageReference(allow_null=True)


class CheckpointList(EvidenceView):
    @extend_schema(
        operation_id="list_audit_checkpoints",
        summary="List checkpoints",
        responses=CheckpointPage,
        parameters=paging(newest()),
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
