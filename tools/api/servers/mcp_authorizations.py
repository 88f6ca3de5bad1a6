"""`/api/v1/mcp-servers/<name>/authorizations`: OAuth for upstream MCP servers."""

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.conditional import Representation, conditional
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import check_known_fields
from tools.api.servers.mcp_servers import McpServerView
from tools.catalog.mcp import mcp_consents, mcp_tokens
from tools.errors import Malformed
from tools.models import Grant, McpAuthorization, McpOAuthClient, User
from tools.shapes.catalog import mcp_authorization_shape
from tools.shapes.scalars import moment
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

_ORDERS = {"owner": "owner", "-owner": "-owner", **newest_first()}
EVERYBODY = "organization"  # in a URL, which cannot have an empty owner


class McpAuthorizationBody(serializers.Serializer[Any]):
    owner = serializers.CharField(
        required=False,
        help_text="As the server's credential_scope says: nothing, agent:<slug> or user:<name>.",
    )


class McpAuthorizationBegun(serializers.Serializer[Any]):
    authorization_url = serializers.URLField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class McpAuthorizationAnswer(serializers.Serializer[Any]):
    owner = serializers.CharField(allow_blank=True)
    issuer = serializers.CharField()
    scope = serializers.ListField(child=serializers.CharField())
    good = serializers.BooleanField()
    flaw = serializers.CharField(help_text="Why only a new consent helps.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="It is renewed before.")
    connected_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class McpOAuthClientAnswer(serializers.Serializer[Any]):
    client_id = serializers.CharField()
    client_secret = serializers.CharField(allow_null=True, help_text="••• where there is one.")
    grant = serializers.ChoiceField(choices=Grant.values)


class McpOAuthClientBody(serializers.Serializer[Any]):
    client_id = serializers.CharField(
        required=False, help_text="May be left out where the server has a client already."
    )
    client_secret = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Kept encrypted; ••• and null leave it, an empty text removes it.",
    )
    grant = serializers.ChoiceField(choices=Grant.values, required=False)


class McpAuthorizations(Page):
    client = McpOAuthClientAnswer(allow_null=True)
    results = McpAuthorizationAnswer(many=True)


class McpAuthorizationList(McpServerView):
    keying = Keying.IN_PROGRESS
    secret = ("authorization_url",)
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_mcp_authorizations",
        parameters=paging_parameters(_ORDERS),
        responses=McpAuthorizations,
    )
    def get(self, request: Request, name: str) -> Response:
        """Who connected the server, and whether the consent is still valid. No token is ever
        shown."""
        self.require("view_mcpserver")
        row = self.find_server(name)
        client = McpOAuthClient.objects.filter(server=row).first()
        pages = CursorPages(_ORDERS)
        found = row.authorizations.select_related("server")
        page: list[McpAuthorization] = pages.paginate_queryset(found, request, self) or []
        answer = pages.get_paginated_response([mcp_authorization_shape(one) for one in page])
        answer.data["client"] = client and mcp_consents.client_written(client)
        return answer

    @extend_schema(
        operation_id="begin_mcp_authorization",
        request=McpAuthorizationBody,
        responses=McpAuthorizationBegun,
    )  # fmt: skip
    def post(self, request: Request, name: str) -> Response:
        """The URL where the browser of the requesting person, who is logged in here, asks for
        consent. With client credentials the server is connected at once, and there is no URL."""
        own = self.json_body(optional=True).get("owner") == f"user:{self.caller.name}"
        self.require("view_mcpserver" if own else "change_mcpserver")
        row, owner = self.find_server(name), self._owner()
        client = McpOAuthClient.objects.filter(server=row).first()
        if client is not None and client.grant == Grant.CLIENT_CREDENTIALS:
            self.require("change_mcpserver")
            mcp_consents.connect_client(row=row, owner=owner, by=self.actor)
            return Response({"authorization_url": None, "expires_at": None})
        url, expires_at = mcp_consents.begin_consent(
            row=row,
            owner=owner,
            user=User.objects.get(pk=self.caller.user_id),
            redirect_uri=request.build_absolute_uri(reverse("oauth-callback")),
        )
        return Response({"authorization_url": url, "expires_at": moment(expires_at)})

    def _owner(self) -> str:
        given = self.json_body(optional=True)
        check_known_fields(given, ("owner",))
        owner = given.get("owner", "")
        if not isinstance(owner, str):
            raise Malformed("owner must be a text such as user:ada, or left out.")
        return owner


class McpAuthorizationDetail(McpServerView):
    proof = by_method(delete=Proof.NOT_NEEDED)
    volatile = frozenset({"good", "flaw", "expires_at", "updated_at"})

    def representation(self, name: str, owner: str) -> Representation | None:
        key = mcp_tokens.known_key(self.caller.organization_id, _owner_name(owner))
        found = self.find_server(name).authorizations.filter(owner=key).first()
        return Representation(mcp_authorization_shape(found)) if found else None

    @extend_schema(operation_id="delete_mcp_authorization", responses={204: None})
    def delete(self, request: Request, name: str, owner: str) -> Response:
        """Calls go out without its token from now on. `organization` is the owner of the shared
        one."""
        whose = _owner_name(owner)
        own = whose == f"user:{self.caller.name}"
        self.require("view_mcpserver" if own else "change_mcpserver")
        with self.open_change(name=name, owner=owner):
            mcp_consents.disconnect(row=self.find_server(name), owner=whose, by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class McpServerOAuthClient(McpServerView):
    proof = by_method(put=Proof.NEEDED, delete=Proof.NOT_NEEDED)

    def representation(self, name: str) -> Representation | None:
        found = McpOAuthClient.objects.filter(server=self.find_server(name)).first()
        if found is None:
            return None
        return Representation(mcp_consents.client_written(found), (found.sealed,))

    @extend_schema(
        operation_id="set_mcp_oauth_client",
        request=McpOAuthClientBody,
        responses=McpOAuthClientAnswer,
    )
    @conditional("change_mcpserver")
    def put(self, request: Request, name: str) -> Response:
        """Set the OAuth client for an authorization server without dynamic client registration."""
        given: Any = self.json_body()
        mcp_consents.set_client(row=self.find_server(name), client=given, by=self.actor)
        return self.resource_response(self.representation(name))

    @extend_schema(operation_id="delete_mcp_oauth_client", responses={204: None})
    @conditional("change_mcpserver")
    def delete(self, request: Request, name: str) -> Response:
        mcp_consents.delete_client(row=self.find_server(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _owner_name(owner: str) -> str:
    """The owner that an address names."""
    return "" if owner == EVERYBODY else owner
