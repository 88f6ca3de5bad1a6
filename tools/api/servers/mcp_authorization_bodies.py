"""Serializers of `/api/v1/mcp-servers/<name>/authorizations`."""

from typing import Any

from rest_framework import serializers

from tools.api.common.pagination import Page
from tools.models import Grant


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
    client_id = serializers.CharField()
    client_secret = serializers.CharField(
        required=False, help_text="Kept encrypted; ••• leaves it, an empty text removes it."
    )
    grant = serializers.ChoiceField(choices=Grant.values, required=False)


class McpAuthorizations(Page):
    client = McpOAuthClientAnswer(allow_null=True)
    results = McpAuthorizationAnswer(many=True)
