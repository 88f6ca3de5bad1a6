"""`/api/v1/mcp-servers`: upstream MCP servers, their health, and import of their tools."""

from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common import event_streams
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import check_known_fields
from tools.catalog.mcp import mcp_import, mcp_servers, mcp_tokens
from tools.definitions.callers import Scope
from tools.definitions.values.strict_json import MAX_VALUES
from tools.errors import Malformed
from tools.models import CredentialScope, McpServer, OnDrift, Transport
from tools.shapes.catalog import mcp_server_shape
from tools.shapes.scalars import moment
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method

_MASK = "Values are texts (kept encrypted, shown as •••), or references the operator allows."


class McpServerChange(serializers.Serializer[Any]):
    transport = serializers.ChoiceField(choices=Transport.values, required=False)
    url = serializers.CharField(max_length=2_000, required=False)
    headers = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    command = serializers.CharField(max_length=500, required=False)
    args = serializers.ListField(child=serializers.CharField(), required=False)
    env = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    remote_name = serializers.CharField(max_length=128, required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    credential_scope = serializers.ChoiceField(choices=CredentialScope.values, required=False)
    on_drift = serializers.ChoiceField(choices=OnDrift.values, required=False)
    check_every_s = serializers.FloatField(required=False)
    enabled = serializers.BooleanField(required=False)


class McpServerBody(McpServerChange):
    name = serializers.CharField(max_length=128)


class McpFinding(serializers.Serializer[Any]):
    tool = serializers.CharField(help_text="As the server calls it; empty of the list itself.")
    result = serializers.ChoiceField(
        choices=["refused", "repaired"], help_text="refused: it cannot be imported; the others can."
    )
    message = serializers.CharField()


class McpServerAnswer(McpServerBody):
    status = serializers.CharField(help_text="unknown, alive, dead or disabled")
    tools = serializers.IntegerField(allow_null=True, help_text="How many it listed last.")
    protocol = serializers.CharField()
    snapshot_at = serializers.DateTimeField(allow_null=True)
    findings = McpFinding(many=True, help_text="What is wrong with tools of the latest list.")
    last_seen_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    dead_since = serializers.DateTimeField(allow_null=True)
    credentials = serializers.ListField(
        child=serializers.CharField(), help_text="Whose own credentials are set."
    )
    created_at = serializers.DateTimeField()


class McpServerPage(Page):
    results = McpServerAnswer(many=True)


class McpRefreshBody(serializers.Serializer[Any]):
    owner = serializers.CharField(
        max_length=200, required=False, help_text="With whose credentials, where they have own."
    )


class McpChange(serializers.Serializer[Any]):
    tool = serializers.CharField()
    name = serializers.CharField(allow_null=True, help_text="Ours; null while it is not imported.")
    change = serializers.ChoiceField(choices=["new", "gone", "changed", "same", "unpinned"])
    fields_ = serializers.ListField(child=serializers.DictField())
    suggested = serializers.DictField(help_text="What the server says of its tool, unchecked.")
    digest = serializers.CharField(
        allow_null=True, help_text="Of what is shown here; an import that names it takes no other."
    )
    suspicions = serializers.ListField(
        child=serializers.CharField(),
        help_text="Signs of a poisoned definition: such a tool is imported only with its digest.",
    )

    def get_fields(self) -> dict[str, Any]:
        found = super().get_fields()
        return {name.rstrip("_"): one for name, one in found.items()}


class McpDifference(serializers.Serializer[Any]):
    server = serializers.CharField()
    snapshot_at = serializers.DateTimeField(allow_null=True)
    tools = McpChange(many=True)


class McpImportBody(serializers.Serializer[Any]):
    tools = serializers.ListField(
        child=serializers.DictField(),
        help_text="tool, the digest of what was read, and what is to differ: name, group, state, "
        "delivery, parameters, …",
    )
    dry_run = serializers.BooleanField(required=False)


class McpImported(serializers.Serializer[Any]):
    tool = serializers.CharField()
    name = serializers.CharField()
    result = serializers.ChoiceField(choices=["created", "updated", "unchanged", "refused"])
    errors = serializers.ListField(child=serializers.DictField())  # type: ignore[assignment]


class McpImportAnswer(serializers.Serializer[Any]):
    items = McpImported(many=True)
    findings = McpFinding(many=True, help_text="Of the latest list, as the server's answer has.")


class McpCredentialBody(serializers.Serializer[Any]):
    headers = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    env = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)


class McpCredentialAnswer(McpCredentialBody):
    owner = serializers.CharField()


CHANGED = {200: McpServerAnswer}


class McpServerView(ConditionalView):
    scope = Scope.CATALOG

    def find_server(self, name: str) -> McpServer:
        return mcp_servers.find_server(self.organization, name)


class OneMcpServer(McpServerView):
    volatile = frozenset(
        {"status", "tools", "protocol", "snapshot_at", "findings", "last_seen_at", "last_error",
         "dead_since", "credentials"}
    )  # fmt: skip

    def representation(self, name: str) -> Representation:
        row = self.find_server(name)
        return Representation(mcp_server_shape(row), (row.sealed,))


class McpServerList(OneMcpServer):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_mcp_servers",
        parameters=paging_parameters(by_name()),
        responses=McpServerPage,
    )
    def get(self, request: Request) -> Response:
        """All servers, also unreachable ones: `status` says so, and since when."""
        self.require("view_mcpserver")
        rows = McpServer.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        found = rows.prefetch_related("credentials")
        page: list[McpServer] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([mcp_server_shape(row) for row in page])

    @extend_schema(
        operation_id="create_mcp_server",
        request=McpServerBody,
        responses={201: McpServerAnswer},
    )
    def post(self, request: Request) -> Response:
        """The server is not contacted before a refresh."""
        self.require("add_mcpserver")
        row = mcp_servers.create_server(
            organization=self.organization, server=self.json_body(), by=self.actor
        )
        headers = {"Location": f"/api/v1/mcp-servers/{row.name}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class McpServerDetail(OneMcpServer):
    proof = by_method(patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_mcp_server", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_mcpserver")
        return self.resource_response(self.representation(name))

    @extend_schema(operation_id="change_mcp_server", request=McpServerChange, responses=CHANGED)
    @conditional("change_mcpserver")
    def patch(self, request: Request, name: str) -> Response:
        """Change what is given; ••• in place of a value keeps it."""
        mcp_servers.change_server(
            row=self.find_server(name), changes=self.json_body(), by=self.actor
        )
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="delete_mcp_server",
        responses={204: None},
    )
    @conditional("delete_mcpserver")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while tools name it."""
        mcp_servers.delete_server(row=self.find_server(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class McpServerRefresh(OneMcpServer):
    keying = Keying.IN_PROGRESS
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="refresh_mcp_server",
        request=McpRefreshBody,
        responses=McpServerAnswer,
    )
    @conditional("change_mcpserver", held=False)
    def post(self, request: Request, name: str) -> Response:
        """List its tools now. Nothing of the catalog changes: read the differences, then import the
        tools you want."""
        row = self.find_server(name)
        given = self.json_body(optional=True)
        check_known_fields(given, ("owner",))
        owner = given.get("owner", "")
        if not isinstance(owner, str):
            raise Malformed("owner must be a text such as agent:magpie, or left out.")
        with event_streams.required_waiting_slot(self.caller):
            row = mcp_import.refresh(row=row, by=self.actor, owner=owner)
        return self.resource_response(Representation(mcp_server_shape(row), (row.sealed,)))


class McpServerDifference(McpServerView):
    @extend_schema(
        operation_id="get_mcp_server_difference",
        responses=McpDifference,
    )
    def get(self, request: Request, name: str) -> Response:
        """How the latest list differs from what was approved: new, gone, changed, field by
        field."""
        self.require("view_mcpserver")
        row = self.find_server(name)
        shape: dict[str, Any] = {
            "server": row.name,
            "snapshot_at": row.snapshot_at and moment(row.snapshot_at),
            "tools": mcp_import.difference(row),
        }
        return Response(shape)


class McpServerImport(OneMcpServer):
    answers_resource = False
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(
        operation_id="import_mcp_tools",
        request=McpImportBody,
        responses=McpImportAnswer,
    )
    @conditional("add_tool")
    def post(self, request: Request, name: str) -> Response:
        """Import tools as the latest list describes them, with the given overrides. Importing a
        changed tool again approves the change."""
        row = self.find_server(name)
        given = self.json_body()
        check_known_fields(given, ("tools", "dry_run"))
        if not isinstance(given.get("dry_run", False), bool):
            raise Malformed("dry_run must be true or false.")
        with transaction.atomic():
            items = mcp_import.import_tools(
                row=row,
                items=given.get("tools"),
                by=self.actor,
                dry_run=given.get("dry_run", False),
            )
            if mcp_import.has_changed(items):
                self.require("change_tool")
        shape = {"items": [item.as_dict() for item in items], "findings": row.findings}
        return Response(shape)


class McpServerCredential(McpServerView):
    proof = by_method(put=Proof.NEEDED, delete=Proof.NOT_NEEDED)

    def representation(self, name: str, owner: str) -> Representation | None:
        key = mcp_tokens.known_key(self.caller.organization_id, owner)
        row = self.find_server(name).credentials.filter(owner=key).first()
        if row is None:
            return None
        shape = {"owner": owner, **mcp_servers.written_values(row)}
        return Representation(shape, (row.sealed,))

    @extend_schema(
        operation_id="set_mcp_credential",
        request=McpCredentialBody,
        responses=McpCredentialAnswer,
    )
    @conditional("change_mcpserver")
    def put(self, request: Request, name: str, owner: str) -> Response:
        """Headers that calls of one agent or person send beside the shared ones."""
        mcp_servers.set_credential(
            row=self.find_server(name), owner=owner, values=self.json_body(), by=self.actor
        )
        return self.resource_response(self.representation(name, owner))

    @extend_schema(operation_id="delete_mcp_credential", responses={204: None})
    @conditional("change_mcpserver")
    def delete(self, request: Request, name: str, owner: str) -> Response:
        mcp_servers.delete_credential(row=self.find_server(name), owner=owner, by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)
