"""`/api/v1/signing-keys`: the keys that sign the organization's tools."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page
from tools.api.common.views import CallerView
from tools.catalog.signatures import keys
from tools.definitions.callers import Scope
from tools.errors import NotFound
from tools.models import SigningKey
from tools.shapes.catalog import signing_key_shape
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method


class SigningKeyAnswer(serializers.Serializer[Any]):
    key_id = serializers.CharField()
    public_key = serializers.CharField(help_text="Ed25519, base64.")
    created_at = serializers.DateTimeField()
    retired_at = serializers.DateTimeField(allow_null=True)
    distrusted_at = serializers.DateTimeField(allow_null=True)


class SigningKeyPage(Page):
    results = SigningKeyAnswer(many=True)


class SigningKeyList(CallerView):
    scope = Scope.ORGANIZATION
    proof = by_method(post=Proof.NEEDED)
    bodiless = frozenset({"POST"})

    @extend_schema(
        operation_id="list_signing_keys",
        parameters=paging_parameters(newest_first()),
        responses=SigningKeyPage,
    )
    def get(self, request: Request) -> Response:
        """The newest first; the one that signs has no `retired_at`."""
        self.require("view_signingkey")
        rows = SigningKey.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages()
        page: list[SigningKey] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([signing_key_shape(row) for row in page])

    @extend_schema(
        operation_id="rotate_signing_key", request=None, responses={201: SigningKeyAnswer}
    )
    def post(self, request: Request) -> Response:
        """A new key signs from now on. Signatures of the old one stay valid."""
        self.require("add_signingkey")
        row = keys.rotate_key(organization=self.organization, by=self.actor)
        address = f"/api/v1/signing-keys/{row.key_id}"
        shape = signing_key_shape(row)
        return Response(shape, status.HTTP_201_CREATED, headers={"Location": address})


class OneSigningKey(ConditionalView):
    def representation(self, key_id: str) -> Representation:
        rows = SigningKey.objects.filter(organization_id=self.caller.organization_id)
        row = rows.filter(key_id=key_id).first()
        if row is None:
            raise NotFound("There is no such key.", code="key_not_found")
        return Representation(signing_key_shape(row))


class SigningKeyDetail(OneSigningKey):
    @extend_schema(operation_id="get_signing_key", responses=SigningKeyAnswer)
    def get(self, request: Request, key_id: str) -> Response:
        self.require("view_signingkey")
        return self.resource_response(self.representation(key_id))


class SigningKeyDistrust(OneSigningKey):
    scope = Scope.ORGANIZATION
    proof = by_method(post=Proof.NEEDED)
    bodiless = frozenset({"POST"})

    @extend_schema(
        operation_id="distrust_signing_key",
        request=None,
        responses=SigningKeyAnswer,
    )
    @conditional("change_signingkey")
    def post(self, request: Request, key_id: str) -> Response:
        """No version that it signed runs before an operator signs it again. Safe to repeat."""
        keys.distrust_key(organization=self.organization, key_id=key_id, by=self.actor)
        return self.resource_response(self.representation(key_id))
