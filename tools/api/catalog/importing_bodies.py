"""Serializers of an import and its result."""

from typing import Any

from rest_framework import serializers

from tools.api.common.fields import Flag, Items, Strict, Text, texts
from tools.definitions.dialects.import_entries import MAX_ITEMS, ImportSource


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
    group = texts(
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
