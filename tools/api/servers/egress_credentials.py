"""`/api/v1/egress-credentials`: headers that the egress broker adds. Values are write-only."""

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.bodies import (
    CredentialAnswer,
    CredentialBody,
    CredentialChange,
    CredentialPage,
    CredentialReplacement,
)
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.catalog.sandbox import credentials
from tools.definitions.callers import Scope
from tools.models import EgressCredential
from tools.shapes import credential_shape
from tools.web.pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method

CHANGED = {200: CredentialAnswer}


class CredentialView(ConditionalView):
    def representation(self, name: str) -> Representation:
        row = credentials.find_credential(self.organization, name)
        return Representation(credential_shape(row), (row.sealed,))


class CredentialList(CredentialView):
    scope = Scope.ORGANIZATION
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_egress_credentials",
        parameters=paging_parameters(by_name()),
        responses=CredentialPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_egresscredential")
        rows = EgressCredential.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        page: list[EgressCredential] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([credential_shape(row) for row in page])

    @extend_schema(
        operation_id="create_egress_credential",
        request=CredentialBody,
        responses={201: CredentialAnswer},
    )
    def post(self, request: Request) -> Response:
        """A list of hosts names it; the broker adds it to requests to that host."""
        self.require("add_egresscredential")
        row = credentials.create_credential(
            organization=self.organization, credential=self.given(), by=self.actor
        )
        headers = {"Location": f"/api/v1/egress-credentials/{row.name}"}
        return self.answer(self.representation(row.name), status.HTTP_201_CREATED, headers)


class CredentialDetail(CredentialView):
    scope = Scope.ORGANIZATION
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_egress_credential", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_egresscredential")
        return self.answer(self.representation(name))

    @extend_schema(
        operation_id="replace_egress_credential", request=CredentialReplacement, responses=CHANGED
    )
    @conditional("change_egresscredential")
    def put(self, request: Request, name: str) -> Response:
        """Header and value; runs that begin now use them. The mask in place of the value keeps
        it."""
        row = self._row(name)
        wanted = {"name": row.name} | self.body(CredentialReplacement)
        changed = credentials.replace_credential(row=row, credential=wanted, by=self.actor)
        return self.answer(self.representation(changed.name))

    @extend_schema(
        operation_id="change_egress_credential", request=CredentialChange, responses=CHANGED
    )
    @conditional("change_egresscredential")
    def patch(self, request: Request, name: str) -> Response:
        """Another header, another value, or both; runs that begin now use it."""
        row = self._row(name)
        wanted = {"name": row.name, "header": row.header} | self.given()
        credentials.replace_credential(row=row, credential=wanted, by=self.actor)
        return self.answer(self.representation(name))

    @extend_schema(
        operation_id="delete_egress_credential",
        responses={204: None},
    )
    @conditional("delete_egresscredential")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while a list of hosts names it."""
        credentials.delete_credential(row=self._row(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _row(self, name: str) -> EgressCredential:
        return credentials.find_credential(self.organization, name)
