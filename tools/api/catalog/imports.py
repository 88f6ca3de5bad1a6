"""`/api/v1/tools/import` and `/api/v1/tools/export`: import and export of the catalog."""

from typing import Any

from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.serializer_fields import Flag, Items, Strict, Text, text_list
from tools.api.common.views import CallerView
from tools.catalog.imports import catalog_export, catalog_import
from tools.catalog.imports.openapi_import import import_openapi
from tools.definitions.callers import Scope
from tools.definitions.dialects import import_documents, import_entries
from tools.definitions.dialects.import_documents import ImportDocument
from tools.definitions.dialects.import_entries import (
    MAX_ITEMS,
    ImportSelection,
    ImportSource,
    operation_line,
)
from tools.definitions.values.strict_json import MAX_VALUES
from tools.errors import Malformed
from tools.web.reauthentication import Proof, by_method

EXAMPLE = OpenApiExample(
    "A tool service and a tool of it",
    request_only=True,
    value={
        "source": "items",
        "items": [
            {
                "key": "tool-service/joke-service",
                "value": {
                    "id": "joke-service",
                    "request-queue": "non-persistent://tg/request/joke",
                    "response-queue": "non-persistent://tg/response/joke",
                    "config-params": [{"name": "style", "required": False}],
                },
            },
            {
                "key": "tool/tell-joke",
                "value": {
                    "type": "tool-service",
                    "name": "tell-joke",
                    "description": "Tell a joke on a given topic",
                    "service": "joke-service",
                    "style": "pun",
                    "arguments": [{"name": "topic", "type": "string", "description": "The topic"}],
                },
            },
        ],
        "dry_run": True,
    },
)


class ImportBody(Strict):
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=[str(one) for one in ImportSource],
        required=False,
        allow_null=True,
        default=None,
        help_text="What is sent; absent: what it looks like.",
    )
    items = serializers.JSONField(
        required=False, default=None, help_text="A list, such as of objects of key and value."
    )
    document = serializers.JSONField(
        required=False, default=None, help_text="JSON, or the text of a JSON or YAML document."
    )
    server = Text(
        required=False, default="", max_length=128, allow_blank=True,
        help_text="The MCP server of tools that name none; of an OpenAPI document the address that "
        "takes the place of its own.",
    )  # fmt: skip
    variables = serializers.DictField(
        child=Text(max_length=500),
        required=False,
        default=dict,
        help_text="Of an OpenAPI document's server: values of the variables in its address.",
    )
    pick = Items(
        child=serializers.JSONField(),
        required=False,
        allow_null=True,
        default=None,
        max_length=MAX_ITEMS,
        help_text="Of a server's tools or a document's operations: names, or objects of name, as "
        "(another name), and fields of the definition that win. Absent or empty: all.",
    )
    group = text_list(
        required=False, allow_null=True, default=None, help_text="Of the tools that name none."
    )
    dry_run = Flag(required=False, default=False, help_text="Answer the same, write nothing.")
    atomic = Flag(required=False, default=False, help_text="All of it, or nothing.")


class ImportFlaw(serializers.Serializer[Any]):
    field = serializers.CharField(allow_blank=True)
    message = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)


class ImportFinding(ImportFlaw):
    code = serializers.CharField()


class ImportedItem(serializers.Serializer[Any]):
    key = serializers.CharField()
    name = serializers.CharField()
    result = serializers.ChoiceField(
        choices=["created", "updated", "unchanged", "review", "refused"],
        help_text="review: its tool would ask for something else under its name; it stays as it "
        "is until a person approves the change, which is listed under tools/changes.",
    )
    errors = ImportFlaw(many=True)  # type: ignore[assignment]
    findings = ImportFinding(
        many=True, required=False, help_text="What is odd about an item that was saved."
    )
    changes = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="Of an operation of an OpenAPI document: what its tool says otherwise now.",
    )
    notes = serializers.ListField(child=serializers.CharField(), required=False)


class ImportAnswer(serializers.Serializer[Any]):
    items = ImportedItem(many=True)
    dry_run = serializers.BooleanField()


class ToolImport(CallerView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES

    @extend_schema(
        operation_id="import_tools",
        examples=[EXAMPLE],
        request=ImportBody,
        responses=ImportAnswer,
    )
    def post(self, request: Request) -> Response:
        """Register the tools of a document, in any dialect. The response has a result for each
        item; a refused one does not stop the others, unless `atomic`."""
        self.require("add_tool")
        body = self.body(ImportBody)
        read = _read_documents(body)
        if len(read) == 1 and read[0][1] == ImportSource.OPENAPI:
            return self._openapi(read[0][0], body)
        found = _split_items(read, body)
        organization = self.organization
        for permission in catalog_import.permissions(organization, found):
            self.require(permission)
        way = catalog_import.ImportOptions(
            group=body["group"],
            server=body["server"],
            dry_run=body["dry_run"],
            atomic=body["atomic"],
        )
        with transaction.atomic():
            done = catalog_import.import_items(
                organization=organization, items=found, by=self.actor, way=way
            )
            if catalog_import.has_changed(found, done):  # one that was not there a moment ago, too
                self.require("change_tool")
        return Response({"items": [one.as_dict() for one in done], "dry_run": way.dry_run})

    @transaction.atomic
    def _openapi(self, document: ImportDocument, body: dict[str, Any]) -> Response:
        """People's settings of a tool are kept when its document is imported again."""
        rows = import_openapi(
            organization=self.organization,
            document=document.value,
            by=self.actor,
            pick=_operation_names(body["pick"]),
            group=body["group"],
            server=body["server"] or None,
            variables=body["variables"],
            dry_run=body["dry_run"],
        )
        if any(row["result"] in {"updated", "review"} for row in rows):
            self.require("change_tool")
        if body["atomic"] and any(row["result"] == "refused" for row in rows):
            transaction.set_rollback(True)
            rows = [row | {"result": "refused"} for row in rows]
        return Response(
            {"items": [_result_shape(row, document) for row in rows], "dry_run": body["dry_run"]}
        )


class ToolExport(CallerView):
    proof = by_method(get=Proof.ALWAYS)

    @extend_schema(
        operation_id="export_tools",
        parameters=[
            OpenApiParameter("format", OpenApiTypes.STR, enum=[*catalog_export.CatalogExportFormat])
        ],
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/yaml"): OpenApiTypes.OBJECT,
        },
    )
    def get(self, request: Request) -> HttpResponse:
        """Every custom tool, and the services they name, in a form that can be imported. `left_out`
        names the tools whose stored version has no valid signature."""
        self.require("view_tool")
        wanted = self.query.get("format", catalog_export.CatalogExportFormat.DEFINITIONS)
        found = catalog_export.exported(self.organization)
        if wanted == catalog_export.CatalogExportFormat.YAML:
            return HttpResponse(found.yaml(), content_type="application/yaml; charset=utf-8")
        if wanted == catalog_export.CatalogExportFormat.TRUSTGRAPH:
            return Response({"items": found.items(), "left_out": found.left_out})
        return Response(found.document)


def _read_documents(body: dict[str, Any]) -> list[tuple[ImportDocument, ImportSource]]:
    """Of the body's `document` or `items`, whichever is given. Raises `Malformed`."""
    given = [key for key in ("document", "items") if body[key] is not None]
    if len(given) != 1:
        raise Malformed("Give either document or items.", code="invalid")
    source = ImportSource(body["source"]) if body["source"] else None
    return [
        (one, source or import_entries.detect_source(one))
        for one in import_documents.parse_documents(
            body[given[0]], openapi=source in {None, ImportSource.OPENAPI}
        )
    ]


def _split_items(
    read: list[tuple[ImportDocument, ImportSource]], body: dict[str, Any]
) -> list[import_entries.ImportItem]:
    choice = ImportSelection(body["server"], tuple(body["pick"] or ()))
    found: list[import_entries.ImportItem] = []
    for document, source in read:
        found += import_entries.split_document(document, source, choice)
    return import_entries.limit_items(found)


def _operation_names(pick: list[Any] | None) -> list[str]:
    """Of an OpenAPI document by name alone. Raises `Malformed`."""
    if any(not isinstance(one, str) for one in pick or ()):
        raise Malformed("Pick operations by their names.", code="invalid")
    return list(pick or ())


def _result_shape(row: dict[str, Any], document: ImportDocument) -> dict[str, Any]:
    line = operation_line(document, row["key"])
    return row | {"errors": [error | {"line": line} for error in row["errors"]]}
