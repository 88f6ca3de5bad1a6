"""Serializers of `/api/v1/content-schemas`. `catalog.sandbox.content_schemas` validates them."""

from typing import Any

from rest_framework import serializers

from tools.api.common.pagination import Page
from tools.models import SchemaKind


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
