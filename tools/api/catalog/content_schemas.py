"""`/api/v1/content-schemas`: the named schemas of `validate_content`, with all their versions."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common import event_streams
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page
from tools.api.common.views import CallerView
from tools.catalog.sandbox import content_schemas
from tools.definitions.callers import Scope
from tools.definitions.values.strict_json import MAX_VALUES
from tools.models import ContentSchema, SchemaKind
from tools.shapes.catalog import content_schema_shape, content_schema_version_shape
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method


class ContentSchemaChange(serializers.Serializer[Any]):
    document = serializers.JSONField(help_text="The schema: an object, or the text of an XSD.")
    note = serializers.CharField(required=False, help_text="Why, for those who read versions.")


class ContentSchemaBody(ContentSchemaChange):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=SchemaKind.values, required=False)
    description = serializers.CharField(required=False)


class ContentSchemaVersionAnswer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    document = serializers.JSONField()
    digest = serializers.CharField()
    note = serializers.CharField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()


class ContentSchemaAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=SchemaKind.values)
    description = serializers.CharField()
    versions = serializers.IntegerField(help_text="The number of the newest.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class ContentSchemaWhole(ContentSchemaAnswer):
    current = ContentSchemaVersionAnswer()


class ContentSchemaPage(Page):
    results = ContentSchemaAnswer(many=True)


class ContentSchemaView(ConditionalView):
    def representation(self, name: str) -> Representation:
        row = content_schemas.find_schema(self.organization, name)
        current = content_schema_version_shape(content_schemas.newest(row))
        return Representation(content_schema_shape(row) | {"current": current})


class ContentSchemaList(ContentSchemaView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(
        operation_id="list_content_schemas",
        parameters=paging_parameters(by_name()),
        responses=ContentSchemaPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_contentschema")
        rows = ContentSchema.objects.with_latest().filter(
            organization_id=self.caller.organization_id
        )
        pages = CursorPages(by_name())
        page: list[ContentSchema] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([content_schema_shape(row) for row in page])

    @extend_schema(
        operation_id="create_content_schema",
        request=ContentSchemaBody,
        responses={201: ContentSchemaWhole},
    )
    def post(self, request: Request) -> Response:
        """The schema is tried once inside the sandbox before it is stored."""
        self.require("add_contentschema")
        with event_streams.required_waiting_slot(self.caller):
            row = content_schemas.create_schema(
                organization=self.organization, schema=self.json_body(), by=self.actor
            )
        headers = {"Location": f"/api/v1/content-schemas/{row.name}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class ContentSchemaDetail(ContentSchemaView):
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NOT_NEEDED, delete=Proof.NEEDED)
    most_values = MAX_VALUES

    @extend_schema(operation_id="get_content_schema", responses=ContentSchemaWhole)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_contentschema")
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="change_content_schema",
        request=ContentSchemaChange,
        responses=ContentSchemaWhole,
    )
    def put(self, request: Request, name: str) -> Response:
        """A new version, unless it is unchanged; earlier ones are kept."""
        self.require("change_contentschema")
        row, change = self._row(name), self.json_body()
        with event_streams.required_waiting_slot(self.caller):
            content_schemas.try_version(row=row, change=change)
        with self.open_change(name=name):
            content_schemas.keep_version(row=row, change=change, by=self.actor)
            return self.resource_response(self.representation(name))

    @extend_schema(operation_id="delete_content_schema", responses={204: None})
    @conditional("delete_contentschema")
    def delete(self, request: Request, name: str) -> Response:
        """With all its versions."""
        content_schemas.delete_schema(row=self._row(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _row(self, name: str) -> ContentSchema:
        return content_schemas.find_schema(self.organization, name)


class ContentSchemaVersionDetail(CallerView):
    @extend_schema(
        operation_id="get_content_schema_version",
        responses=ContentSchemaVersionAnswer,
    )
    def get(self, request: Request, name: str, number: int) -> Response:
        self.require("view_contentschema")
        row = content_schemas.find_schema(self.organization, name)
        version = content_schemas.find_version(row, number)
        return Response(content_schema_version_shape(version))
